"""Frames are built from declared columns by name, and a wrong column or value is an error."""

from datetime import UTC, datetime
from typing import NamedTuple

import polars as pl
import pytest

from spanloop.foundation.errors import StoreError
from spanloop.foundation.tables import Column, Table, declaration
from spanloop.foundation.tables.episodes import STEP_MEASURES, TRANSITION_ROWS, TRANSITIONS

CALLS = Table(
    "calls",
    (
        Column("name", "LowCardinality(String)", "name of the call"),
        Column("started_at", "DateTime64(9, 'UTC')", "start"),
        Column("sizes", "Array(UInt32)", "sizes"),
        Column("labels", "Map(LowCardinality(String), String)", "labels"),
        Column("retries", "UInt8", "retries", "DEFAULT"),
        Column("size", "UInt64", "sum of the sizes", "MATERIALIZED"),
    ),
)
ROW = {"name": "a", "started_at": 1_700_000_000_123_456_789, "sizes": [1, 2], "labels": {"x": "y"}}


def columns(**changes: object) -> dict[str, list[object]]:
    return {name: [value] for name, value in {**ROW, **changes}.items()}


def test_a_frame_has_the_declared_types_in_the_declared_order() -> None:
    frame = CALLS.frame(dict(reversed(columns(retries=3).items())))
    assert frame.schema == CALLS.schema
    assert list(frame.schema) == ["name", "started_at", "sizes", "labels", "retries"]
    assert frame["started_at"].cast(pl.Int64).to_list() == [ROW["started_at"]]
    assert frame["labels"].to_list() == [{"x": "y"}]


def test_a_column_with_a_default_is_optional_and_a_computed_one_is_refused() -> None:
    assert CALLS.frame(columns()).schema == CALLS.required
    with pytest.raises(StoreError, match=r"'calls' has the wrong columns: unknown \['size'\], missing \[\]"):
        CALLS.frame(columns(size=3))


def test_missing_and_unknown_columns_are_named() -> None:
    wrong = columns(colour="red")
    del wrong["sizes"]
    with pytest.raises(StoreError, match=r"unknown \['colour'\], missing \['sizes'\]"):
        CALLS.frame(wrong)


@pytest.mark.parametrize(
    "change", [{"name": 1}, {"sizes": [-1]}, {"sizes": [2**32]}, {"started_at": "now"}, {"retries": 256}]
)
def test_a_value_that_does_not_fit_its_column_is_refused(change: dict[str, object]) -> None:
    with pytest.raises((TypeError, OverflowError, pl.exceptions.PolarsError)):
        CALLS.frame(columns(**change))


def test_a_time_may_be_a_datetime() -> None:
    moment = datetime(2026, 11, 26, 12, tzinfo=UTC)
    assert CALLS.frame(columns(started_at=moment))["started_at"].to_list() == [moment]


def test_half_a_surrogate_pair_becomes_a_replacement_character() -> None:
    assert CALLS.frame(columns(name="cut \ud83d"))["name"].to_list() == ["cut \ufffd"]


def test_rows_of_a_frame_may_be_none() -> None:
    assert CALLS.frame({name: [] for name in CALLS.required}).schema == CALLS.required
    assert CALLS.from_dicts([]).schema == CALLS.required
    assert CALLS.from_records([]).schema == CALLS.required


def test_columns_that_dicts_lack_are_null() -> None:
    frame = CALLS.from_dicts([{"name": "a"}, {"name": "b", "retries": 2}])
    assert frame.rows() == [("a", None, None, None, None), ("b", None, None, None, 2)]
    with pytest.raises(StoreError, match=r"unknown \['colour'\]"):
        CALLS.from_dicts([{"name": "a"}, {"name": "b", "colour": "red"}])


class Call(NamedTuple):
    name: str
    start_ns: int
    sizes: list[int]
    labels: dict[str, str]


def test_records_are_read_by_attribute() -> None:
    frame = CALLS.from_records([Call("a", 5, [1], {})], {"started_at": "start_ns"})
    assert frame.select("name", pl.col("started_at").cast(pl.Int64), "sizes").rows() == [("a", 5, [1])]


def test_an_unknown_table_is_named_with_the_known_ones() -> None:
    with pytest.raises(StoreError, match="no table 'span'"):
        declaration("span")


def test_stored_steps_have_the_columns_of_the_view() -> None:
    measures = {column.name for column in STEP_MEASURES}
    assert set(TRANSITION_ROWS.schema) == {*TRANSITIONS.schema, "prompt_step", "prompt_length", *measures}
