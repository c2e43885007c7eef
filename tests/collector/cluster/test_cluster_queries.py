"""Every named query gives the same rows on two shards as on one server."""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, cast

import pytest

from spanloop.store import Store
from spanloop.store.named_queries import NamedQuery, named_query, query_names

from ...generated_rows import POOLS, WORDS

FIXED: Final[Mapping[str, Any]] = {
    "from_ns": 0, "since_us": 0, "since_s": 0, "from_s": 0, "given_from_ns": 0, "first_ns": 0, "counted_since_us": 0,
    "after_ns": 0, "after_trace_id": "", "since_ns": 0, "last": "g", "sample_rate": 1.0, "seed": 1, "task_prefix": "",
    "rule": "", "mark": "", "words": ["refund"], "part": "", "text": "v", "parts": 1, "days": 30, "by_session": True,
    "table": "otel_traces", "first_token": 0, "first": 0, "first_step": 0, "prompt_tail": 3, "bucket_s": 600,
    "data_set": "", "name": "", "with_replayed": 1, "prefix": "0", "reason": "", "start_ns": 0,
    "evaluation_revision": 1_000, "step": 1, "row_number": 0, "window_ns": 3_600 * 10**9, "until_s": 4 * 10**9,
    "reach_ns": 0, "last_steps": [9, 9], "consumed_steps": [0, 0], "model_call_keys": ["gen_ai.request.model"],
}  # fmt: skip
PARALLEL: Final[Mapping[str, Callable[[int], int]]] = {
    "revisions": lambda number: 2_000 - 1_000 * (number % 2),
    "steps": lambda number: number % 3,
}
"""Lists that are parallel to the episode ids."""
OF_THE_SERVER: Final = {
    "collector_server_start", "pipeline_lag", "store_clock", "store_copy_identity", "store_backup_counts",
    "store_backup_progress", "store_backup_running",
}  # fmt: skip
"""Queries about a server or its clock, or about backups of the embedded one."""
OF_PARTS: Final = {"store_copy_parts", "store_copy_part_hashes", "store_copy_rows"}
"""Queries of parts, which differ; test_cluster_copy compares what they copy."""
IN_ANY_ORDER: Final = {"store_forget_derived"}
"""Queries with lists in an order that depends on the server."""


def values(query: NamedQuery, *, is_narrow: bool) -> dict[str, object]:
    """Return parameters with which the query finds rows: of few ids, or of all and without filters."""
    drawn = {name: value_of(name, kind, is_narrow=is_narrow) for name, kind in query.parameters.items()}
    for name in PARALLEL.keys() & drawn.keys():
        drawn[name] = [PARALLEL[name](number) for number in range(len(drawn["episode_ids"]))]
    return drawn


def value_of(name: str, kind: str, *, is_narrow: bool) -> Any:  # noqa: PLR0911 - one return a kind
    if name in ("after", "revision"):
        return {"after": ("m@v2", ""), "revision": (2_000, 1_000)}[name][not is_narrow]
    if name in FIXED and not (name == "part" and kind == "UInt32"):
        return FIXED[name]
    if pool := POOLS.get(WORDS.get(name, "")):
        if kind.startswith("Array"):
            return pool[:2] if is_narrow and "job" not in name else pool
        return pool[0] if is_narrow or name in {"before", "trace_id", "episode_id"} else ""
    if kind.startswith(("Date", "Nullable(Date")):
        return datetime(2100 if name in {"until", "ended_before", "settled_before"} else 2020, 1, 1, tzinfo=UTC)
    if name.endswith(("_ns", "_us")):
        return 4 * 10**18 if name.endswith("_ns") else 4 * 10**15
    others: Mapping[str, Any] = {
        "Array": [],
        "String": "",
        "Identifier": "otel_logs" if name.startswith("logs_") else "otel_traces",
    }
    return next((value for word, value in others.items() if word in kind), 0 if name == "part" else 100_000)


def is_reading(name: str) -> bool:
    return re.sub(r"--[^\n]*", "", named_query(name).sql).lstrip().upper().startswith(("SELECT", "WITH", "("))


COMPARED: Final = [name for name in query_names() if is_reading(name) and name not in OF_THE_SERVER | OF_PARTS]


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPARED)
def test_rows_are_those_of_one_server(stores: tuple[Store, Store], name: str) -> None:
    for parameters in both_values(name):
        single, sharded = (rows(store, name, parameters) for store in stores)
        assert sharded == single


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(OF_THE_SERVER | OF_PARTS))
def test_a_query_about_a_server_runs(stores: tuple[Store, Store], name: str) -> None:
    stores[1].query(name, **values(named_query(name), is_narrow=True))


@pytest.mark.slow
def test_most_queries_have_rows(stores: tuple[Store, Store]) -> None:
    empty = [name for name in COMPARED if not any(rows(stores[0], name, each) for each in both_values(name))]
    assert set(empty) <= WITHOUT_ROWS, " ".join(empty)


def both_values(name: str) -> list[dict[str, object]]:
    return [values(named_query(name), is_narrow=is_narrow) for is_narrow in (True, False)]


WITHOUT_ROWS: Final = {
    "dashboard_session_turns", "dashboard_span", "dashboard_span_scores", "dashboard_span_step",
    "judgements_first", "lineage_jobs",
    "pipeline_companions", "pipeline_run_lease", "pipeline_state",
    "store_copy_hashes", "store_retention",
}  # fmt: skip
"""Queries whose parameters have to fit one row in several columns; the rest of the test shows that they run."""


def rows(store: Store, name: str, parameters: Mapping[str, object]) -> list[str]:
    frame = store.query(name, **parameters)
    if name == "store_counts":
        frame = frame.drop("size_bytes")
    return sorted(repr([comparable(value, is_sorted=name in IN_ANY_ORDER) for value in row]) for row in frame.rows())


def comparable(value: object, *, is_sorted: bool) -> Any:
    """Return a value without the digits of a sum that depend on the order of its terms."""
    if isinstance(value, float):
        return f"{value:.9g}"
    if isinstance(value, list):
        items = [comparable(each, is_sorted=is_sorted) for each in cast("Sequence[object]", value)]
        return sorted(items, key=repr) if is_sorted else items
    if isinstance(value, dict):
        pairs = cast("Mapping[str, object]", value).items()
        return sorted((key, comparable(each, is_sorted=is_sorted)) for key, each in pairs)
    return value


JOINS: Final = re.compile(r"(?<!ARRAY )\bJOIN\b|\bIN\s*\(\s*SELECT\b")
OTHER_STORES: Final = ("remote_", "store_views_of_table")
"""Queries of another store, and of system tables alone."""


@pytest.mark.parametrize("name", query_names())
def test_a_query_that_joins_says_how(name: str) -> None:
    query = named_query(name)
    text = re.sub(r"--[^\n]*", "", query.sql)
    subqueries = [text[match.start() :] for match in JOINS.finditer(text)]
    # A name without parentheses is that of a subquery in WITH.
    joins_tables = any(map(reads_a_table, subqueries)) or re.search(r"\bIN [a-z_]+\b", text) is not None
    if name.startswith(OTHER_STORES):
        return
    assert bool(query.joins) == joins_tables


def reads_a_table(text: str) -> bool:
    """Return whether a join, or the subquery at the beginning of a text, reads a table."""
    if text.startswith("JOIN"):
        return True
    depth, end = 0, 0
    for character in text:
        end += 1
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth == 0 and character == ")":
            break
    return re.search(r"\bFROM\s+\w", text[:end]) is not None
