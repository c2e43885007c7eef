"""Named queries: looked up by name, called with exactly their parameters, and all of them run."""

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from enum import StrEnum

import pytest

from spanloop.foundation.errors import StoreError
from spanloop.store import Store
from spanloop.store.client import Address, Connection
from spanloop.store.named_queries import NamedQuery, named_query, parse, query_names

from ...databases import ReusedDatabases

QUERY = parse(
    "example",
    "-- What {not_a:Parameter} answers.\nSELECT {a:String}, {ids:Array(String)}, {at:DateTime64(6, 'UTC')}, {a:String}",
)


def test_parameters_are_those_of_the_text_without_its_comments() -> None:
    assert QUERY.parameters == {"a": "String", "ids": "Array(String)", "at": "DateTime64(6, 'UTC')"}


def test_missing_and_unknown_parameters_are_named_with_the_expected_ones() -> None:
    with pytest.raises(StoreError, match=r"'example' .* missing \['ids', 'at'\], unknown \['b'\]") as caught:
        QUERY.bind({"a": "x", "b": 1})
    assert caught.value.next_step == "It takes a: String, ids: Array(String), at: DateTime64(6, 'UTC')."


class Colour(StrEnum):
    RED = "red"


def test_values_have_the_clients_format() -> None:
    at = datetime(2024, 5, 1, 12, 0, 0, 1, tzinfo=UTC)
    assert QUERY.bind({"a": Colour.RED, "ids": ("x", Colour.RED), "at": at}) == {
        "a": "red",
        "ids": ["x", "red"],
        "at": "2024-05-01 12:00:00.000001",
    }
    assert QUERY.bind({"a": None, "ids": [], "at": date(2024, 5, 1)})["at"] == date(2024, 5, 1)


ECHO = parse("echo", "-- Its parameter.\nSELECT {texts:Array(String)} AS texts")


@pytest.mark.parametrize(
    "texts",
    [
        [],
        [""],
        ["0a1b", "", "x y"],
        ["it's"],
        ["a", "', 'b"],
        ["\\"],
        ["a\tb", "a\nb", "`"],
        ["\r\b\f\0", '"', "ü", "[1]"],
    ],
    ids=["none", "empty", "plain", "quote", "quotes", "backslash", "escaped", "others"],
)
def test_lists_of_strings_arrive_unchanged(clickhouse: Address, texts: list[str]) -> None:
    connection = Connection(clickhouse, database="default")
    response = connection.query(ECHO.sql, doing="echoing", parameters=ECHO.bind({"texts": texts}))
    connection.close()
    assert response["texts"].to_list() == [texts]


@pytest.mark.parametrize("value", [object(), {"a": 1}, {1}, b"bytes"])
def test_a_value_without_a_clickhouse_format_is_named(value: object) -> None:
    with pytest.raises(StoreError, match=rf"'a' of query 'example' is a {type(value).__name__}"):
        QUERY.bind({"a": value, "ids": [], "at": "now"})


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(StoreError, match="no query 'nonsense'") as caught:
        named_query("nonsense")
    assert "store_counts" in caught.value.next_step
    assert "queries/nonsense.sql" in caught.value.next_step


def test_wrong_parameters_are_rejected_before_the_query(store: Store) -> None:
    with pytest.raises(StoreError, match="no query 'nonsense'"):
        store.execute("nonsense")
    with pytest.raises(StoreError, match=r"unknown \['limit'\]"):
        store.query("store_counts", limit=1)


@pytest.mark.parametrize("name", query_names())
def test_the_first_line_describes_the_result(name: str) -> None:
    first, _, rest = named_query(name).sql.partition("\n")
    assert re.fullmatch(r"-- [A-Z].{10,}", first), first
    assert rest.strip()
    assert name == name.lower()


@pytest.fixture(scope="module")
def empty_store(clickhouse: Address, databases: ReusedDatabases) -> Iterator[Store]:
    """One database for all queries: they only read."""
    name = databases.take()
    with Store(replace(clickhouse, database=name)) as opened:
        yield opened
    databases.give_back(name)


def example(name: str, kind: str) -> object:
    if kind.startswith("Array"):
        return []
    if kind.startswith(("Date", "Nullable(Date")):
        return datetime(2024, 1, 1, tzinfo=UTC)
    if kind == "Identifier":
        return "otel_logs" if name.startswith("logs_") else "otel_traces"
    return "x" if "String" in kind else 1


@pytest.mark.parametrize("name", query_names())
def test_every_query_runs_on_an_empty_store(empty_store: Store, name: str) -> None:
    query: NamedQuery = named_query(name)
    parameters = {parameter: example(parameter, kind) for parameter, kind in query.parameters.items()}
    body = re.sub(r"--[^\n]*", "", query.sql).lstrip()
    if body.upper().startswith(("SELECT", "WITH", "(")):
        empty_store.query(name, **parameters)
    else:
        empty_store.execute(name, **parameters)
