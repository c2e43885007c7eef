"""Every column type that the tables use has a frame type, and values survive the way in and out."""

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spanloop.foundation.errors import StoreError
from spanloop.foundation.tables.column import Column, Table
from spanloop.foundation.tables.polars_types import polars_type
from spanloop.store.client import Connection


@pytest.mark.parametrize(
    ("clickhouse", "polars"),
    [
        ("String", pl.String()),
        ("LowCardinality(String)", pl.String()),
        ("Nullable(Float64)", pl.Float64()),
        ("LowCardinality(Nullable(String))", pl.String()),
        ("Array(UInt32)", pl.List(pl.UInt32())),
        ("Bool", pl.Boolean()),
        ("DateTime64(9)", pl.Datetime("ns", "UTC")),
        ("DateTime64(9, 'UTC')", pl.Datetime("ns", "UTC")),
        ("DateTime64(6, 'Europe/Berlin')", pl.Datetime("us", "UTC")),
        ("DateTime64(3)", pl.Datetime("ms", "UTC")),
        ("DateTime", pl.Datetime("ms", "UTC")),
        ("DateTime('UTC')", pl.Datetime("ms", "UTC")),
        ("Map(LowCardinality(String), String)", pl.Map(pl.String(), pl.String())),
        ("Map(String, Array(Nullable(Float64)))", pl.Map(pl.String(), pl.List(pl.Float64()))),
        ("Array(Map(LowCardinality(String), String))", pl.List(pl.Map(pl.String(), pl.String()))),
        ("SimpleAggregateFunction(max, DateTime64(6, 'UTC'))", pl.Datetime("us", "UTC")),
        ("SimpleAggregateFunction(groupUniqArrayArray, Array(UInt64))", pl.List(pl.UInt64())),
        ("Array(Array(Int64))", pl.List(pl.List(pl.Int64()))),
    ],
)
def test_types(clickhouse: str, polars: pl.DataType) -> None:
    assert polars_type(clickhouse) == polars


@pytest.mark.parametrize("unknown", ["Decimal(9, 2)", "Tuple(String)", "Array(JSON)", "Map(Array(String), String)", ""])
def test_an_unknown_type_is_named(unknown: str) -> None:
    with pytest.raises(StoreError, match="has no polars type"):
        polars_type(unknown)


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
ATTRIBUTES = st.dictionaries(TEXT, TEXT, max_size=4)
ROW = st.fixed_dictionaries(
    {
        "id": st.integers(0, 2**64 - 1),
        "text": TEXT,
        "attributes": ATTRIBUTES,
        "events.attributes": st.lists(ATTRIBUTES, max_size=3),
        "tokens": st.lists(st.integers(0, 2**32 - 1), max_size=5),
        "logprobs": st.lists(st.floats(width=32, allow_nan=False), max_size=5),
        "reward": st.none() | st.floats(allow_nan=False),
        "breakdown": st.dictionaries(TEXT, st.floats(allow_nan=False), max_size=2),
        "flag": st.booleans(),
    }
)
ANYTHING = Table(
    "anything",
    (
        Column("id", "UInt64", "a number"),
        Column("text", "String", "a text"),
        Column("attributes", "Map(LowCardinality(String), String)", "a map"),
        Column("events.attributes", "Array(Map(LowCardinality(String), String))", "a list of maps"),
        Column("tokens", "Array(UInt32)", "a list"),
        Column("logprobs", "Array(Float32)", "a list"),
        Column("reward", "Nullable(Float64)", "a number or null"),
        Column("breakdown", "Map(LowCardinality(String), Float64)", "a map"),
        Column("flag", "Bool", "true or false"),
    ),
)
SQL = f"""
CREATE TABLE anything ({", ".join(f"`{column.name}` {column.sql_type}" for column in ANYTHING.columns)}) ENGINE = Memory
"""


@pytest.fixture
def anything(connection: Connection) -> str:
    connection.command(SQL, doing="making a table of all types")
    return "anything"


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(ROW, max_size=5))
def test_any_values_round_trip(connection: Connection, anything: str, rows: list[dict[str, object]]) -> None:
    connection.command(f"TRUNCATE TABLE {anything}", doing="starting afresh")
    frame = ANYTHING.frame({name: [row[name] for row in rows] for name in ANYTHING.schema})
    assert frame.equals(pl.DataFrame(rows, schema=ANYTHING.schema))
    connection.insert(anything, frame)
    back = connection.query(f"SELECT * FROM {anything}", doing="reading back")
    assert back.schema == frame.schema
    assert back.sort("id", "text", "tokens").to_dicts() == frame.sort("id", "text", "tokens").to_dicts()
