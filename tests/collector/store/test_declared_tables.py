"""A migrated database is what `spanloop.foundation.tables` declares: tables, columns, types and defaults."""

from importlib.resources import files

import polars as pl
import pytest

from spanloop.foundation.errors import StoreError
from spanloop.foundation.tables import TABLES, declaration
from spanloop.store import Store
from spanloop.store.client import Connection

MATERIALIZED = "engine = 'MaterializedView' OR name LIKE '.inner%'"


@pytest.fixture
def columns(connection: Connection) -> pl.DataFrame:
    return connection.query(
        "SELECT table, name, type, default_kind, comment FROM system.columns WHERE database = currentDatabase() AND "
        f"table NOT IN (SELECT name FROM system.tables WHERE database = currentDatabase() AND ({MATERIALIZED})) "
        "ORDER BY table, position",
        doing="listing columns",
    )


def test_every_table_is_declared(columns: pl.DataFrame) -> None:
    assert set(columns["table"]) == set(TABLES)


@pytest.mark.parametrize("table", TABLES)
def test_the_columns_of_a_table_are_the_declared_ones(columns: pl.DataFrame, table: str) -> None:
    stored = columns.filter(pl.col("table") == table).select("name", "type", "default_kind").rows()
    is_view = table == "transitions"
    expected = [
        (column.name, column.sql_type, "" if is_view else column.default_kind) for column in TABLES[table].columns
    ]
    assert stored == expected


def test_a_comment_of_the_database_is_the_declared_meaning(columns: pl.DataFrame) -> None:
    """The text of the first migration cannot change; a later one states the meaning as it is declared, or nothing."""
    initial = (files("spanloop.store") / "migrations" / "0001_initial.sql").read_text(encoding="utf-8")
    for table, name, comment in columns.select("table", "name", "comment").iter_rows():
        quoted = "'" + comment.replace("'", "''") + "'"
        assert comment in {"", declaration(table)[name].meaning} or quoted in initial, (table, name)


def test_every_column_has_a_meaning() -> None:
    empty = [(table.name, column.name) for table in TABLES.values() for column in table.columns if not column.meaning]
    assert empty == []


def test_an_unknown_table_is_an_error(store: Store) -> None:
    with pytest.raises(StoreError, match="no table 'spans'"):
        store.insert("spans", pl.DataFrame({"a": [1]}))
