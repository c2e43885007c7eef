"""Every named query gives the same rows on two shards as on one server."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

import pytest

from spanloop.foundation.tables import Column
from spanloop.store import Store
from spanloop.store.client import Address
from spanloop.store.named_queries import NamedQuery, named_query, query_names

from ...clickhouse_cluster import ClickHouseCluster
from ...databases import ReusedDatabases
from ...generated_rows import POOLS, START, WORDS, RowGenerator, fill

FIXED: Final[Mapping[str, Any]] = {
    "from_ns": 0, "since_us": 0, "since_s": 0, "from_s": 0, "given_from_ns": 0, "first_ns": 0, "counted_since_us": 0,
    "after_ns": 0, "after_trace_id": "", "after": "", "last": "g", "sample_rate": 1.0, "seed": 1, "task_prefix": "",
    "rule": "", "mark": "", "word": "refund", "words": ["refund"], "part": "", "text": "v", "parts": 1, "days": 30,
    "by_session": True, "table": "otel_traces", "first_token": 0, "first": 0, "first_step": 0, "prompt_tail": 3,
    "bucket_s": 600, "data_set": "a@v1", "name": "", "with_replayed": 1, "prefix": "0", "reason": "", "revision": 1_000,
    "evaluation_revision": 1_000, "step": 1, "row_number": 0, "window_ns": 3_600 * 10**9, "until_s": 4 * 10**9,
    "after_version": 1, "last_steps": [9, 9], "consumed_steps": [0, 0], "steps": [0, 1, 2], "revisions": [1_000] * 12,
}  # fmt: skip


def values(query: NamedQuery, *, is_narrow: bool) -> dict[str, object]:
    """Return parameters with which the query finds rows: of few ids, or of all and without filters."""
    drawn = {name: value_of(name, kind, is_narrow=is_narrow) for name, kind in query.parameters.items()}
    parallel = {"revisions": "episode_ids", "steps": "episode_ids", "trace_ids": "episode_ids"}
    for name, other in parallel.items():
        if name in drawn and other in drawn and name != "trace_ids":
            ids = drawn[other]
            drawn[name] = [1_000 if name == "revisions" else number % 3 for number in range(len(ids))]
    return drawn


def value_of(name: str, kind: str, *, is_narrow: bool) -> object:  # noqa: PLR0911
    if name in FIXED:
        return FIXED[name]
    pool = POOLS.get(WORDS.get(name, ""))
    if pool is not None and kind.startswith("Array"):
        return pool[:2] if is_narrow and "job" not in name else pool
    if pool is not None:
        return pool[0] if is_narrow or kind != "String" else ("" if name not in {"trace_id", "episode_id"} else pool[1])
    if kind.startswith("Array"):
        return []
    if kind.startswith(("Date", "Nullable(Date")):
        return datetime(2100 if name in {"until", "ended_before", "settled_before"} else 2020, 1, 1, tzinfo=UTC)
    if kind == "Identifier":
        return "otel_logs" if name.startswith("logs_") else "otel_traces"
    if kind in {"Int64", "UInt64"} and name.endswith(("_ns", "_us")):
        return 4 * 10**18 if name.endswith("_ns") else 4 * 10**15
    return "" if "String" in kind else 100_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClickHouseCluster]:
    with ClickHouseCluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture(scope="module")
def stores(clickhouse: Address, databases: ReusedDatabases, cluster: ClickHouseCluster) -> Iterator[tuple[Store, Store]]:
    """One server's store and a cluster's, filled with the same rows."""
    name = databases.take()
    with Store(replace(clickhouse, database=name)) as single, Store.open(cluster.address("spanloop")) as sharded:
        for store in (single, sharded):
            fill(store)
        yield single, sharded
    databases.give_back(name)


READING = [
    name for name in query_names()
    if re.sub(r"--[^\n]*", "", named_query(name).sql).lstrip().upper().startswith(("SELECT", "WITH", "("))
]  # fmt: skip


@pytest.mark.parametrize("name", READING)
def test_rows_are_those_of_one_server(stores: tuple[Store, Store], name: str) -> None:
    for is_narrow in (True, False):
        parameters = values(named_query(name), is_narrow=is_narrow)
        single, sharded = (comparable(store.query(name, **parameters).rows()) for store in stores)
        assert sharded == single
        print(name, is_narrow, len(single))


def comparable(rows: list[tuple[Any, ...]]) -> list[str]:
    return sorted(repr(tuple(map(rounded, row))) for row in rows)


def rounded(value: Any) -> Any:
    if isinstance(value, float):
        return f"{value:.9g}"
    if isinstance(value, list):
        return [rounded(each) for each in value]
    if isinstance(value, dict):
        return sorted((key, rounded(each)) for key, each in value.items())
    return value
