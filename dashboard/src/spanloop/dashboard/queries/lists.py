"""Read one page of a list: sorted over all rows by the query, and paged by the key of a row instead of its number.

Invariant: going forward from the first page meets every row once, also while rows arrive.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import polars as pl

from spanloop.dashboard.queries.conditions import (
    AGENT,
    COMMON_HITS,
    Conditions,
    Words,
    episode_conditions,
    failure_conditions,
    own_failure_conditions,
    parse_words,
    step_conditions,
    trace_conditions,
)
from spanloop.dashboard.view_models.filters import Filters
from spanloop.store import Store

PAGE_ROWS: Final = 100
EXACT_ROWS: Final = 100_000
"""Above so many rows the total is an estimate."""
_CANDIDATES: Final = 4
"""Rows that are looked at for each one that is asked for, because some are of replaced revisions."""


class SortColumn(NamedTuple):
    """The order of a list."""

    expression: str
    sql_type: str = "String"
    """The type that a key of the address is read as."""


class Source(NamedTuple):
    """A list: where its rows are read, and what they can be sorted by."""

    table: str
    """Name, or a query in parentheses."""
    columns: str
    key: str
    """Column that tells rows with the same value apart."""
    sorts: Mapping[str, SortColumn]
    default_sort: str
    leading: str = ""
    """The column that the table is ordered by and read with FINAL; empty for a query."""


class Cursor(NamedTuple):
    """Where a page begins or ends."""

    value: str = ""
    key: str = ""
    is_before: bool = False
    """Whether the page ends before the row; without a row it is the last page."""


class _Asked(NamedTuple):
    sort: str
    cursor: Cursor | None
    words: Words | None


@dataclass(frozen=True)
class ListPage:
    """Rows of a page, and what lies around it."""

    rows: pl.DataFrame
    """The list's columns, and ``sort_value`` and ``sort_id``, the row's cursor."""
    total: int
    is_estimate: bool
    has_earlier: bool
    has_later: bool
    words: Words | None


_TIME: Final = "DateTime64(9, 'UTC')"
EPISODES: Final = Source(
    "episode_summaries",
    f"episode_id, revision, task_id, service_name, {AGENT} AS agent, policy_version, started_at, duration_ns, "
    "step_count, tool_call_count, tool_error_count, input_tokens + output_tokens AS tokens, outcome, reward, "
    "error_class, fault_owner, marks, session_id",
    "episode_id",
    {
        "started": SortColumn("started_at", _TIME),
        "outcome": SortColumn("toString(outcome)"),
        "reward": SortColumn("ifNull(reward, -inf)", "Float64"),
        "task": SortColumn("task_id"),
        "agent": SortColumn(f"toString({AGENT})"),
        "policy": SortColumn("toString(policy_version)"),
        "steps": SortColumn("step_count", "UInt32"),
        "errors": SortColumn("tool_error_count", "UInt32"),
        "tokens": SortColumn("input_tokens + output_tokens", "UInt64"),
        "duration": SortColumn("duration_ns", "UInt64"),
        "class": SortColumn("concat(fault_owner, error_class)"),
    },
    "started",
    "started_at",
)
FAILURES: Final = Source(
    "failure_summaries",
    "failure_id, episode_id, task_id, step, agent_name, tool_name, policy_version, error_class, fault_owner, "
    "is_recovered, headline AS message, confidence, rule, toString(fingerprint) AS fingerprint, occurred_at",
    "failure_id",
    {
        "when": SortColumn("occurred_at", _TIME),
        "owner": SortColumn("toString(fault_owner)"),
        "class": SortColumn("toString(error_class)"),
        "tool": SortColumn("toString(tool_name)"),
        "task": SortColumn("task_id"),
        "policy": SortColumn("toString(policy_version)"),
        "confidence": SortColumn("confidence", "Float32"),
    },
    "when",
    "occurred_at",
)
STEPS: Final = Source(
    "transition_rows",
    "transition_id, episode_id, step, task_id, agent_name, model, policy_version, reward, is_trainable, "
    "untrainable_reason, tool_error_count, error_class, fault_owner, input_tokens + output_tokens AS tokens, "
    "started_at, duration_ns, finish_reason, preview, tool_names",
    "transition_id",
    {
        "started": SortColumn("started_at", _TIME),
        "reward": SortColumn("ifNull(reward, -inf)", "Float64"),
        "task": SortColumn("task_id"),
        "policy": SortColumn("toString(policy_version)"),
        "tokens": SortColumn("input_tokens + output_tokens", "UInt32"),
        "duration": SortColumn("duration_ns", "UInt64"),
        "errors": SortColumn("tool_error_count", "UInt32"),
        "class": SortColumn("concat(fault_owner, error_class)"),
    },
    "started",
)
_TRACES_TABLE: Final = """(
    SELECT
        trace_id,
        min(t.started_at) AS started_at,
        toUInt64(greatest(
            0, toUnixTimestamp64Nano(max(t.ended_at)) - toUnixTimestamp64Nano(min(t.started_at))
        )) AS duration_ns,
        toString(max(t.root_name)) AS root_name,
        toString(max(t.service_name)) AS service_name,
        toString(max(t.agent_name)) AS agent_name,
        toString(max(t.model)) AS model,
        max(t.task_id) AS task_id,
        max(t.session_id) AS session_id,
        toUInt32(length(groupUniqArrayArray(t.spans))) AS span_count,
        toUInt32(length(groupUniqArrayArray(t.failed_spans))) AS failed_span_count,
        toUInt32(length(maxMap(t.calls))) AS model_calls,
        arraySum(tokens -> bitShiftRight(tokens, 32), mapValues(maxMap(t.calls))) AS input_tokens,
        arraySum(tokens -> bitAnd(tokens, 4294967295), mapValues(maxMap(t.calls))) AS output_tokens
    FROM trace_summaries AS t
    WHERE {within}
    GROUP BY trace_id
)"""
TRACES: Final = Source(
    _TRACES_TABLE,
    f"trace_id, started_at, duration_ns, root_name, service_name, {AGENT} AS agent, model, task_id, session_id, "
    "span_count, failed_span_count, model_calls, input_tokens + output_tokens AS tokens",
    "trace_id",
    {
        "started": SortColumn("started_at", _TIME),
        "root": SortColumn("root_name"),
        "service": SortColumn("service_name"),
        "agent": SortColumn(AGENT),
        "model": SortColumn("model"),
        "spans": SortColumn("span_count", "UInt32"),
        "failed": SortColumn("failed_span_count", "UInt32"),
        "calls": SortColumn("model_calls", "UInt32"),
        "tokens": SortColumn("input_tokens + output_tokens", "UInt64"),
        "duration": SortColumn("duration_ns", "UInt64"),
    },
    "started",
)


def parse_sort(source: Source, text: str) -> tuple[str, bool] | None:
    """Return the column and whether the largest comes first; None for a column that the list does not have."""
    if not text:
        return source.default_sort, True
    name = text.removeprefix("-")
    return (name, text.startswith("-")) if name in source.sorts else None


def fetch_episodes(store: Store, filters: Filters, sort: str, cursor: Cursor | None) -> ListPage:
    """Return a page of current episodes."""
    words = _weighed(store, parse_words(filters))
    return _fetch(store, EPISODES, episode_conditions(filters, words), _Asked(sort, cursor, words))


def fetch_failures(store: Store, filters: Filters, sort: str, cursor: Cursor | None) -> ListPage:
    """Return a page of failures of current episodes."""
    words = parse_words(filters)
    conditions = failure_conditions(filters, words)
    asked = _Asked(sort, cursor, words)
    if (parse_sort(FAILURES, sort) or (FAILURES.default_sort, True)) != (FAILURES.default_sort, True):
        return _fetch(store, FAILURES, conditions, asked)
    return _fetch(store, FAILURES, conditions, asked, newest=_newest_failures(store, filters, words, cursor))


def _newest_failures(store: Store, filters: Filters, words: Words | None, cursor: Cursor | None) -> Conditions | None:
    """Return conditions on the page's failures that read only the episodes of their time; None where all are read."""
    own = own_failure_conditions(filters, words)
    if own is None or (cursor is not None and cursor.is_before):
        return None
    if cursor is not None:
        own.add(f"occurred_at <= toDateTime64({own.bind(cursor.value, 'String')}, 9, 'UTC')")
    oldest = store.connection.query(
        "SELECT toInt64(toUnixTimestamp(toDateTime(min(occurred_at), 'UTC'))) AS oldest FROM (SELECT occurred_at "
        f"FROM failure_summaries WHERE {own.sql} ORDER BY occurred_at DESC LIMIT {_CANDIDATES * (PAGE_ROWS + 1)})",
        doing="finding the newest failures",
        parameters=own.parameters,
    )
    return failure_conditions(filters, words, since_s=int(oldest["oldest"][0] or 0))


def fetch_steps(store: Store, filters: Filters, sort: str, cursor: Cursor | None) -> ListPage:
    """Return a page of transitions of current episodes."""
    words = parse_words(filters)
    return _fetch(store, STEPS, step_conditions(filters, words), _Asked(sort, cursor, words))


def fetch_traces(store: Store, filters: Filters, sort: str, cursor: Cursor | None) -> ListPage:
    """Return a page of traces."""
    words = _weighed(store, parse_words(filters))
    conditions = trace_conditions(filters, words)
    within = Conditions(parameters=conditions.parameters)
    start, end = filters.time
    if start:
        within.add(f"ten_minutes >= toDateTime({within.bind(start - 86_400, 'Int64')}, 'UTC')")
    if end < 4_000_000_000:
        within.add(f"ten_minutes < toDateTime({within.bind(end + 86_400, 'Int64')}, 'UTC')")
    name, is_descending = parse_sort(TRACES, sort) or (TRACES.default_sort, True)
    if name == "started" and not filters.values and words is None:
        within.add(_newest_traces(within, is_descending=is_descending, cursor=cursor))
    source = TRACES._replace(table=_TRACES_TABLE.replace("{within}", within.sql))
    total = Conditions(parameters=within.parameters)
    total.texts = [text for text in within.texts if "LIMIT" not in text]
    simple = not filters.values and words is None
    counted = f"(SELECT DISTINCT trace_id FROM trace_summaries WHERE {total.sql})" if simple else ""
    return _fetch(store, source, conditions, _Asked(sort, cursor, words), counted=counted)


def _newest_traces(within: Conditions, *, is_descending: bool, cursor: Cursor | None) -> str:
    """Return the ten minutes that hold the page, so that the other traces are not grouped."""
    is_reversed = is_descending != bool(cursor and cursor.is_before)
    order, sign = ("DESC", "<=") if is_reversed else ("ASC", ">=")
    conditions = list(within.texts)
    if cursor and cursor.key:
        moment = within.bind(cursor.value, "String")
        day = "+ 86400" if is_reversed else "- 86400"
        conditions.append(
            f"toInt64(toUnixTimestamp(ten_minutes)) {sign} toInt64(toDateTime64({moment}, 9, 'UTC')) {day}"
        )
    inner = " AND ".join(f"({text})" for text in conditions) or "1"
    limit = _CANDIDATES * (PAGE_ROWS + 1)
    candidates = (
        f"SELECT ten_minutes FROM trace_summaries WHERE {inner} ORDER BY ten_minutes {order} LIMIT 1 BY trace_id "
        f"LIMIT {limit}"
    )
    # In seconds, because a DateTime neither begins before 1970 nor ends after 2106.
    if is_reversed:
        return (
            "toInt64(toUnixTimestamp(ten_minutes)) >= "
            f"(SELECT toInt64(toUnixTimestamp(min(ten_minutes))) FROM ({candidates})) - 86400"
        )
    return (
        "toInt64(toUnixTimestamp(ten_minutes)) <= "
        f"(SELECT toInt64(toUnixTimestamp(max(ten_minutes))) FROM ({candidates})) + 86400"
    )


def _fetch(
    store: Store,
    source: Source,
    conditions: Conditions,
    asked: _Asked,
    *,
    counted: str = "",
    newest: Conditions | None = None,
) -> ListPage:
    """Read a page; ``counted`` is a cheaper query of the rows to count, ``newest`` cheaper conditions of the page."""
    cursor = asked.cursor
    name, is_descending = parse_sort(source, asked.sort) or (source.default_sort, True)
    column = source.sorts[name]
    # A search makes its list of hits anew in every query, so that the fewest queries are the fastest.
    total, is_estimate = _count(store, source, conditions, counted, is_search=asked.words is not None)
    is_backward = bool(cursor and cursor.is_before)
    order = "DESC" if is_descending != is_backward else "ASC"
    paged = newest or conditions
    where = Conditions(list(paged.texts), paged.parameters)
    if cursor and cursor.key:
        value = f"CAST({where.bind(cursor.value, 'String')}, '{column.sql_type.replace(chr(39), chr(39) * 2)}')"
        key = where.bind(cursor.key, "String")
        where.add(f"({column.expression}, {source.key}) {'<' if order == 'DESC' else '>'} ({value}, {key})")
    final = ""
    if source.leading or source is STEPS:
        final = " FINAL"
    if source.leading and column.expression == source.leading and newest is None and not asked.words:
        bound, compared = ("min", ">=") if order == "DESC" else ("max", "<=")
        candidates = (
            f"SELECT {source.leading} FROM {source.table} WHERE {where.sql} "
            f"ORDER BY {source.leading} {order} LIMIT {_CANDIDATES * (PAGE_ROWS + 1)}"
        )
        where.add(f"{source.leading} {compared} (SELECT {bound}({source.leading}) FROM ({candidates}))")
    frame = store.connection.query(
        f"SELECT {source.columns}, toString({column.expression}) AS sort_value, {source.key} AS sort_id "
        f"FROM {source.table}{final} WHERE {where.sql} "
        f"ORDER BY {column.expression} {order}, {source.key} {order} LIMIT {PAGE_ROWS + 1}",
        doing="reading a page of a list",
        parameters=where.parameters,
    )
    has_more = frame.height > PAGE_ROWS
    frame = frame.head(PAGE_ROWS)
    has_cursor = bool(cursor and cursor.key)
    return ListPage(
        rows=frame.reverse() if is_backward else frame,
        total=total,
        is_estimate=is_estimate,
        has_earlier=has_more if is_backward else has_cursor,
        has_later=has_cursor if is_backward else has_more,
        words=asked.words,
    )


def _count(store: Store, source: Source, conditions: Conditions, counted: str, *, is_search: bool) -> tuple[int, bool]:
    """Return the number of matching rows, and whether it is an estimate that counts replaced revisions too."""
    where = "" if counted else f" WHERE {conditions.sql}"
    start = f"SELECT count() AS rows FROM {counted or source.table}"
    doing = "counting the rows of a list"
    if is_search and source.leading:
        exact = store.connection.query(f"{start} FINAL{where}", doing=doing, parameters=conditions.parameters)
        return int(exact["rows"][0]), False
    rows = int(store.connection.query(start + where, doing=doing, parameters=conditions.parameters)["rows"][0])
    if rows > EXACT_ROWS or not rows or not source.leading:
        return rows, rows > EXACT_ROWS
    exact = store.connection.query(f"{start} FINAL{where}", doing=doing, parameters=conditions.parameters)
    return int(exact["rows"][0]), False


def _weighed(store: Store, words: Words | None) -> Words | None:
    """Note that words are common, so that the newest episodes are searched instead of a list of all hits made."""
    if words is None or words.is_partial:
        return words
    hits = store.connection.query(
        "SELECT count() AS hits FROM episode_messages WHERE hasAllTokens(words, {words:Array(String)})",
        doing="counting messages with a word",
        parameters={"words": list(words.words)},
    )
    return words._replace(is_common=int(hits["hits"][0]) > COMMON_HITS)
