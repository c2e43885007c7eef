"""The documented schema is the schema, and a change of it is a new version."""

from hashlib import sha256
from pathlib import Path

import polars as pl
import pytest

from spanloop.converters.enums import RowStart, TokenSource, UntrainableReason
from spanloop.converters.schema import SCHEMA_VERSION, TABLES, markdown

DOCUMENT = Path(__file__).parents[3] / "docs" / "reference" / "transitions.md"
PINNED = {"1": "e89e3e3939b3a1d1", "2": "41d1009101455ff0", "3": "b3bf3ec64d61efb5", "4": "8c43c335750b355a"}
"""Version → what it stands for. A change of columns needs a new version, and its line here."""


@pytest.mark.parametrize("table", TABLES)
def test_every_column_is_described(table: str) -> None:
    schema, meanings = TABLES[table]
    assert set(schema) <= set(meanings)
    assert all(meanings[name] for name in schema)


def test_every_value_of_the_vocabularies_is_described() -> None:
    text = markdown()
    for vocabulary in (UntrainableReason, TokenSource, RowStart):
        assert all(f"| `{value}` |" in text for value in vocabulary)


def test_the_document_is_what_the_code_says() -> None:
    assert DOCUMENT.read_text() == markdown(), (
        "run: python -m spanloop.converters.schema > docs/reference/transitions.md"
    )


def test_another_schema_is_another_version() -> None:
    told = repr([(table, list(schema.items())) for table, (schema, _) in TABLES.items()])
    assert sha256(told.encode()).hexdigest()[:16] == PINNED[SCHEMA_VERSION]


def test_types_are_those_that_arrow_files_keep() -> None:
    for schema, _ in TABLES.values():
        assert all(dtype != pl.Object for dtype in schema.values())
