"""The reference of the tables is what the code declares."""

from pathlib import Path

import polars as pl

from spanloop.converters.enums import RowStart, TokenSource, UntrainableReason
from spanloop.converters.schema import TABLES, markdown

DOCUMENT = Path(__file__).parents[3] / "docs" / "reference" / "transitions.md"


def test_every_value_of_the_vocabularies_is_described() -> None:
    text = markdown()
    for vocabulary in (UntrainableReason, TokenSource, RowStart):
        assert all(f"| `{value}` |" in text for value in vocabulary)


def test_the_document_is_what_the_code_says() -> None:
    assert DOCUMENT.read_text() == markdown(), (
        "run: python -m spanloop.converters.schema > docs/reference/transitions.md"
    )


def test_types_are_those_that_arrow_files_keep() -> None:
    for table in TABLES:
        assert all(dtype != pl.Object for dtype in table.schema.values())
