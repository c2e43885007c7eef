"""Read one page of a list: sorted over all rows by the query, and paged by the key of a row instead of its number.

Invariant: going forward from the first page meets every row once, also while rows arrive.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

import polars as pl

from spanloop.dashboard.queries.conditions import (
    AGENT,
    COMMON_HITS,
    Conditions,
    Words,
    episode_conditions,
    failure_conditions,
    own_failure_conditions,
    own_step_conditions,
    parse_words,
    step_conditions,
    trace_conditions,
)
from spanloop.dashboard.view_models.filters import Filters, TimeRange
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


class _Conditions(NamedTuple):
    counted: Conditions
    paged: Conditions
    """Conditions of the same rows as far as the page needs them; ``counted`` itself where nothing is cheaper."""
    filters: Filters
    own: Conditions | None = None
    """Conditions that need no other table; None where every row must be looked up."""


class _CurrentConditions(Protocol):
    def __call__(self, filters: Filters, words: Words | None, *, since_s: int = 0) -> Conditions: ...


class _CurrentRows(NamedTuple):
    current: _CurrentConditions
    """On the rows of current revisions."""
    own: Callable[[Filters, Words | None], Conditions | None]
    """On columns of the table alone; None where a filter is one on the episode."""


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
_STEP_ID: Final = "concat(episode_id, '/', toString(step))"
STEPS: Final = Source(
    "step_summaries",
    f"{_STEP_ID} AS transition_id, episode_id, revision, step, task_id, model, policy_version, reward, is_trainable, "
    "untrainable_reason, tool_error_count, error_class, fault_owner, input_tokens + output_tokens AS tokens, "
    "started_at, duration_ns, finish_reason, tool_names",
    _STEP_ID,
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
    "started_at",
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
    conditions = episode_conditions(filters, words)
    return _fetch(store, EPISODES, _Conditions(conditions, conditions, filters), _Asked(sort, cursor, words))


def fetch_failures(store: Store, filters: Filters, sort: str, cursor: Cursor | None) -> ListPage:
    """Return a page of failures of current episodes."""
    asked = _Asked(sort, cursor, parse_words(filters))
    conditions = _CurrentRows(failure_conditions, own_failure_conditions)
    return _fetch_current(store, FAILURES, filters, asked, conditions)


def fetch_steps(store: Store, filters: Filters, sort: str, cursor: Cursor | None) -> ListPage:
    """Return a page of transitions of current episodes."""
    asked = _Asked(sort, cursor, parse_words(filters))
    return _fetch_current(store, STEPS, filters, asked, _CurrentRows(step_conditions, own_step_conditions))


def _fetch_current(store: Store, source: Source, filters: Filters, asked: _Asked, conditions: _CurrentRows) -> ListPage:
    """Return a page of rows of current revisions; the newest ones read only the episodes of their time."""
    since_s = 0
    newest, cursor = conditions.own(filters, asked.words), asked.cursor
    is_newest = (parse_sort(source, asked.sort) or (source.default_sort, True)) == (source.default_sort, True)
    if newest is not None and is_newest and not filters.time.start_s and not (cursor and cursor.is_before):
        if cursor is not None:
            newest.add(f"{source.leading} <= toDateTime64({newest.bind(cursor.value, 'String')}, 9, 'UTC')")
        oldest = store.connection.query(
            f"SELECT toInt64(toUnixTimestamp(toDateTime(min({source.leading}), 'UTC'))) AS oldest FROM (SELECT "
            f"{source.leading} FROM {source.table} WHERE {newest.sql} ORDER BY {source.leading} DESC "
            f"LIMIT {_CANDIDATES * (PAGE_ROWS + 1)})",
            doing="finding the newest rows of a list",
            parameters=newest.parameters,
        )
        since_s = int(oldest["oldest"][0] or 0)
    counted = conditions.current(filters, asked.words)
    paged = conditions.current(filters, asked.words, since_s=since_s) if since_s else counted
    own = conditions.own(filters, asked.words)
    return _fetch(store, source, _Conditions(counted, paged, filters, own), asked)


def fetch_traces(store: Store, filters: Filters, sort: str, cursor: Cursor | None) -> ListPage:
    """Return a page of traces."""
    words = _weighed(store, parse_words(filters))
    conditions = trace_conditions(filters, words)
    within = Conditions(parameters=conditions.parameters)
    start, end = filters.time
    within.add_minutes(TimeRange(max(0, start - 86_400), end + 86_400))
    name, is_descending = parse_sort(TRACES, sort) or (TRACES.default_sort, True)
    is_simple = not filters.values and words is None
    counted = f"(SELECT DISTINCT trace_id FROM trace_summaries WHERE {within.sql})" if is_simple else ""
    if name == "started" and is_simple:
        is_reversed = is_descending != bool(cursor and cursor.is_before)
        within.add(_newest_traces(within, is_reversed=is_reversed, cursor=cursor))
        within.add(_traces_of_page(within, conditions, is_reversed=is_reversed, cursor=cursor))
    source = TRACES._replace(table=_TRACES_TABLE.replace("{within}", within.sql))
    return _fetch(store, source, _Conditions(conditions, conditions, filters), _Asked(sort, cursor, words), counted)


def _newest_traces(within: Conditions, *, is_reversed: bool, cursor: Cursor | None) -> str:
    """Return the ten minutes that hold the page, so that the other traces are not grouped."""
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


def _traces_of_page(within: Conditions, conditions: Conditions, *, is_reversed: bool, cursor: Cursor | None) -> str:
    """Return the traces of the page by their start alone, so that the sets of the other traces' spans are not read."""
    where = Conditions(list(conditions.texts), within.parameters)
    if cursor and cursor.key:
        where.add(_after(where, TRACES, TRACES.sorts["started"], cursor, is_reversed=is_reversed))
    order = "DESC" if is_reversed else "ASC"
    return (
        "trace_id IN (SELECT trace_id FROM (SELECT trace_id, min(t.started_at) AS started_at FROM trace_summaries AS t "
        f"WHERE {within.sql} GROUP BY trace_id) WHERE {where.sql} "
        f"ORDER BY started_at {order}, trace_id {order} LIMIT {PAGE_ROWS + 1})"
    )


def _after(where: Conditions, source: Source, column: SortColumn, cursor: Cursor, *, is_reversed: bool) -> str:
    """Return that a row lies behind the cursor."""
    value = f"CAST({where.bind(cursor.value, 'String')}, '{column.sql_type.replace(chr(39), chr(39) * 2)}')"
    key = where.bind(cursor.key, "String")
    return f"({column.expression}, {source.key}) {'<' if is_reversed else '>'} ({value}, {key})"


def _fetch(store: Store, source: Source, conditions: _Conditions, asked: _Asked, counted: str = "") -> ListPage:
    """Read a page; ``counted`` is a cheaper query of the rows to count."""
    cursor = asked.cursor
    name, is_descending = parse_sort(source, asked.sort) or (source.default_sort, True)
    column = source.sorts[name]
    total, is_estimate = _count(store, source, conditions, counted)
    is_backward = bool(cursor and cursor.is_before)
    is_reversed = is_descending != is_backward
    order = "DESC" if is_reversed else "ASC"
    paged = conditions.paged
    where = Conditions(list(paged.texts), paged.parameters)
    if cursor and cursor.key:
        where.add(_after(where, source, column, cursor, is_reversed=is_reversed))
    # The rows of a range of time are read in less time than a condition on another table is evaluated twice.
    is_narrowed = paged is not conditions.counted or (paged.is_costly and conditions.filters.time.is_bounded)
    if column.expression == source.leading and not is_narrowed and not asked.words:
        bound, compared = ("min", ">=") if is_reversed else ("max", "<=")
        candidates = (
            f"SELECT {source.leading} FROM {source.table} WHERE {where.sql} "
            f"ORDER BY {source.leading} {order} LIMIT {_CANDIDATES * (PAGE_ROWS + 1)}"
        )
        where.add(f"{source.leading} {compared} (SELECT {bound}({source.leading}) FROM ({candidates}))")
    frame = store.connection.query(
        f"SELECT {source.columns}, toString({column.expression}) AS sort_value, {source.key} AS sort_id "
        f"FROM {source.table}{' FINAL' if source.leading else ''} WHERE {where.sql} "
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


def _count(store: Store, source: Source, conditions: _Conditions, counted: str) -> tuple[int, bool]:
    """Return the number of matching rows, and whether it is an estimate that counts replaced revisions too."""

    def count(sql: str, where: Conditions) -> int:
        query = f"SELECT count() AS rows FROM {sql}"
        frame = store.connection.query(query, doing="counting the rows of a list", parameters=where.parameters)
        return int(frame["rows"][0])

    matching, own = conditions.counted, conditions.own
    if counted or not source.leading:
        rows = count(counted or f"{source.table} WHERE {matching.sql}", matching)
        return rows, rows > EXACT_ROWS
    if own is not None and not own.is_costly:
        rows = count(f"{source.table} WHERE {own.sql}", own)
        if rows > EXACT_ROWS:
            return rows, True
    exact = f"SELECT 1 FROM {source.table} FINAL WHERE {matching.sql} LIMIT {EXACT_ROWS + 1}"
    rows = count(f"({exact})", matching)
    return (rows, False) if rows <= EXACT_ROWS else (count(f"{source.table} WHERE {matching.sql}", matching), True)


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
