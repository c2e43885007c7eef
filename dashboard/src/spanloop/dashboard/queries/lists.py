"""Read one page of a list: sorted over all rows by the query, and paged by the key of a row instead of its number.

Invariant: going forward from the first page meets every row once, also while rows arrive.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

import polars as pl

from spanloop.dashboard.queries.conditions import (
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
from spanloop.dashboard.queries.sources import (
    EPISODES,
    FAILURES,
    SESSIONS,
    SESSIONS_TABLE,
    STEPS,
    TRACES,
    TRACES_TABLE,
    SortColumn,
    Source,
    parse_sort,
)
from spanloop.dashboard.view_models.filters import Filters, TimeRange
from spanloop.store import Store

PAGE_ROWS: Final = 100
CURSOR_SEPARATOR: Final = "~"
"""Between the value and the key of a cursor in an address."""
EXACT_ROWS: Final = 100_000
"""Above so many rows the total is an estimate."""
_CANDIDATES: Final = 4
"""Rows that are looked at for each one of a page, because some are of replaced revisions."""


class Cursor(NamedTuple):
    """Where a page begins or ends."""

    value: str = ""
    key: str = ""
    is_before: bool = False
    """Whether the page ends before the row; without a row it is the last page."""

    @classmethod
    def parse(cls, text: str, *, is_before: bool = False) -> "Cursor":
        """Read a cursor as an address states it."""
        value, _, key = text.rpartition(CURSOR_SEPARATOR)
        return cls(value, key, is_before)


class _PageRequest(NamedTuple):
    sort: str
    cursor: Cursor | None
    words: Words | None
    rows: int


class _Order(NamedTuple):
    """The order in which a page is read: backwards from a row it ends at."""

    column: SortColumn
    is_reversed: bool
    cursor: Cursor | None
    rows: int

    @property
    def direction(self) -> str:
        """The direction of ORDER BY."""
        return "DESC" if self.is_reversed else "ASC"


class _CurrentConditions(Protocol):
    def __call__(self, filters: Filters, words: Words | None, *, since_s: int = 0) -> Conditions: ...


class _CurrentRows(NamedTuple):
    current: _CurrentConditions
    """On the rows of current revisions."""
    table: Callable[[Filters, Words | None], Conditions | None]
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

    def cursor(self, row: int) -> str:
        """Return the cursor of a row, as in an address."""
        return CURSOR_SEPARATOR.join(str(part) for part in self.rows.select("sort_value", "sort_id").row(row))


def fetch_episodes(
    store: Store, filters: Filters, sort: str, cursor: Cursor | None, *, rows: int | None = None
) -> ListPage:
    """Return a page of current episodes; of ``PAGE_ROWS`` rows where ``rows`` is None, as the lists below."""
    words = _weighed(store, parse_words(filters))
    conditions = episode_conditions(filters, words)
    request = _PageRequest(sort, cursor, words, rows or PAGE_ROWS)
    if conditions.is_costly:
        return _fetch_by_key(store, EPISODES, conditions, request)
    return _fetch(store, EPISODES, conditions, request)


def fetch_failures(
    store: Store, filters: Filters, sort: str, cursor: Cursor | None, *, rows: int | None = None
) -> ListPage:
    """Return a page of failures of current episodes."""
    request = _PageRequest(sort, cursor, parse_words(filters), rows or PAGE_ROWS)
    conditions = _CurrentRows(failure_conditions, own_failure_conditions)
    return _fetch_current(store, FAILURES, filters, request, conditions)


def fetch_steps(
    store: Store, filters: Filters, sort: str, cursor: Cursor | None, *, rows: int | None = None
) -> ListPage:
    """Return a page of transitions of current episodes."""
    request = _PageRequest(sort, cursor, parse_words(filters), rows or PAGE_ROWS)
    return _fetch_current(store, STEPS, filters, request, _CurrentRows(step_conditions, own_step_conditions))


def count_rows(store: Store, source: Source, filters: Filters) -> int:
    """Return how many rows of current episodes, or of traces, match; never an estimate."""
    words = parse_words(filters)
    if source == TRACES:
        return fetch_traces(store, filters, "", None, rows=1).total
    conditions = _CONDITIONS[source.table](filters, words)
    return _count(store, f"{source.table} FINAL WHERE {conditions.sql}", conditions)


def _fetch_current(
    store: Store, source: Source, filters: Filters, request: _PageRequest, conditions: _CurrentRows
) -> ListPage:
    """Return a page of rows of current revisions; the newest of many rows read only the episodes of their time."""
    table_conditions = conditions.table(filters, request.words)
    rows = (
        0
        if table_conditions is None or table_conditions.is_costly
        else _count(store, f"{source.table} WHERE {table_conditions.sql}", table_conditions)
    )
    if table_conditions is None or rows <= EXACT_ROWS:
        return _fetch_by_key(store, source, conditions.current(filters, request.words), request)
    since_s, cursor = 0, request.cursor
    is_newest = (parse_sort(source, request.sort) or (source.default_sort, True)) == (source.default_sort, True)
    if is_newest and not filters.time.start_s and not (cursor and cursor.is_before):
        if cursor is not None:
            table_conditions.add(
                f"{source.leading} <= toDateTime64({table_conditions.bind(cursor.value, 'String')}, 9, 'UTC')"
            )
        oldest = store.connection.query(
            f"SELECT toInt64(toUnixTimestamp(toDateTime(min({source.leading}), 'UTC'))) AS oldest FROM (SELECT "
            f"{source.leading} FROM {source.table} WHERE {table_conditions.sql} ORDER BY {source.leading} DESC "
            f"LIMIT {_CANDIDATES * (request.rows + 1)})",
            doing="finding the newest rows of a list",
            parameters=table_conditions.parameters,
        )
        since_s = int(oldest["oldest"][0] or 0)
    newest = conditions.current(filters, request.words, since_s=since_s)
    page = _fetch_by_key(store, source, newest, request, total=rows)
    if since_s and page.rows.height < request.rows:
        # The newest rows were of replaced revisions, or this is the last page.
        page = _fetch_by_key(store, source, conditions.current(filters, request.words), request, total=rows)
    return page


_CONDITIONS: Final[Mapping[str, Callable[[Filters, Words | None], Conditions]]] = {
    EPISODES.table: episode_conditions,
    FAILURES.table: failure_conditions,
    STEPS.table: step_conditions,
}
"""The conditions of each list on its table."""


def fetch_traces(
    store: Store, filters: Filters, sort: str, cursor: Cursor | None, *, rows: int | None = None
) -> ListPage:
    """Return a page of traces."""
    words = _weighed(store, parse_words(filters))
    conditions = trace_conditions(filters, words)
    within = Conditions(parameters=conditions.parameters)
    start, end = filters.time
    within.add_minutes(TimeRange(max(0, start - 86_400), end + 86_400))
    name, is_descending = parse_sort(TRACES, sort) or (TRACES.default_sort, True)
    total: int | None = None
    if not filters.values and words is None:
        total = _count(store, f"(SELECT DISTINCT cityHash64(trace_id) FROM trace_summaries WHERE {within.sql})", within)
        if name == "started":
            is_reversed = is_descending != bool(cursor and cursor.is_before)
            within.add(_newest_traces(within, rows or PAGE_ROWS, is_reversed=is_reversed, cursor=cursor))
    source = TRACES._replace(table=TRACES_TABLE.replace("{within}", within.sql))
    request = _PageRequest(sort, cursor, words, rows or PAGE_ROWS)
    return _fetch_by_key(store, source, conditions, request, total=total)


def fetch_sessions(
    store: Store, filters: Filters, sort: str, cursor: Cursor | None, *, rows: int | None = None
) -> ListPage:
    """Return a page of sessions, with those of their traces that match."""
    words = _weighed(store, parse_words(filters))
    matching = trace_conditions(filters, words)
    within = Conditions(parameters=matching.parameters)
    start, end = filters.time
    within.add_minutes(TimeRange(max(0, start - 86_400), end + 86_400))
    source = SESSIONS._replace(table=SESSIONS_TABLE.format(within=within.sql, matching=matching.sql))
    request = _PageRequest(sort, cursor, words, rows or PAGE_ROWS)
    return _fetch_by_key(store, source, Conditions(parameters=matching.parameters), request)


def _newest_traces(within: Conditions, rows: int, *, is_reversed: bool, cursor: Cursor | None) -> str:
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
    limit = _CANDIDATES * (rows + 1)
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


def _after(where: Conditions, expression: str, key: str, sql_type: str, order: _Order) -> str:
    """Return that a row lies behind the cursor; empty without a cursor."""
    cursor = order.cursor
    if not (cursor and cursor.key):
        return ""
    value = f"CAST({where.bind(cursor.value, 'String')}, '{sql_type.replace(chr(39), chr(39) * 2)}')"
    return f"({expression}, {key}) {'<' if order.is_reversed else '>'} ({value}, {where.bind(cursor.key, 'String')})"


def _order(source: Source, request: _PageRequest) -> _Order:
    name, is_descending = parse_sort(source, request.sort) or (source.default_sort, True)
    cursor = request.cursor
    return _Order(source.sorts[name], is_descending != bool(cursor and cursor.is_before), cursor, request.rows)


def _fetch(store: Store, source: Source, matching: Conditions, request: _PageRequest) -> ListPage:
    """Read a page by conditions on columns of the table, which are cheap to evaluate twice."""
    order = _order(source, request)
    column, direction = order.column, order.direction
    exact = f"(SELECT 1 FROM {source.table} FINAL WHERE {matching.sql} LIMIT {EXACT_ROWS + 1})"
    total = _count(store, exact, matching)
    if total > EXACT_ROWS:
        total = _count(store, f"{source.table} WHERE {matching.sql}", matching)
    where = Conditions(list(matching.texts), matching.parameters)
    if after := _after(where, column.expression, source.key, column.sql_type, order):
        where.add(after)
    bounded = Conditions(list(where.texts), where.parameters)
    if column.expression == source.leading:
        bound, compared = ("min", ">=") if order.is_reversed else ("max", "<=")
        candidates = (
            f"SELECT {source.leading} FROM {source.table} WHERE {where.sql} "
            f"ORDER BY {source.leading} {direction} LIMIT {_CANDIDATES * (request.rows + 1)}"
        )
        bounded.add(f"{source.leading} {compared} (SELECT {bound}({source.leading}) FROM ({candidates}))")
    frame = _read_rows(store, source, order, f"FINAL WHERE {bounded.sql}", bounded)
    if frame.height <= request.rows and total > frame.height and len(bounded.texts) > len(where.texts):
        # The candidates were of replaced revisions, or this is the last page.
        frame = _read_rows(store, source, order, f"FINAL WHERE {where.sql}", where)
    return _page(frame, request, total, is_estimate=total > EXACT_ROWS)


def _fetch_by_key(
    store: Store, source: Source, matching: Conditions, request: _PageRequest, *, total: int | None = None
) -> ListPage:
    """Read a page whose conditions read other tables: find and count its rows at once, then read their columns.

    Args:
        store: The store.
        source: The list.
        matching: The conditions.
        request: Sort, cursor and words.
        total: The number of rows, where it is known; it is an estimate above ``EXACT_ROWS``.
    """
    order = _order(source, request)
    is_counted = total is not None
    final = " FINAL" if source.leading else ""
    moment = f"toUnixTimestamp64Nano({source.leading})" if source.leading else "toInt64(0)"
    rows = (
        f"SELECT {order.column.expression} AS sorted_by, {source.key} AS sort_id, {source.row} AS row, {moment} AS at, "
        f"{'toUInt64(0)' if is_counted else 'count() OVER ()'} AS total FROM {source.table}{final} WHERE {matching.sql}"
    )
    where = Conditions(parameters=dict(matching.parameters))
    if after := _after(where, "sorted_by", "sort_id", order.column.sql_type, order):
        where.add(after)
    keys = store.connection.query(
        f"SELECT row, at, total FROM ({rows}) WHERE {where.sql} "
        f"ORDER BY sorted_by {order.direction}, sort_id {order.direction} LIMIT {request.rows + 1}",
        doing="finding the rows of a page",
        parameters=where.parameters,
    )
    if total is None:
        has_rows = not keys.is_empty() or not (request.cursor and request.cursor.key)
        total = sum(keys["total"].head(1)) if has_rows else _count(store, f"({rows})", matching)
    within = Conditions(parameters=dict(matching.parameters))
    if source.leading:
        moments = within.bind(keys["at"].to_list(), "Array(Int64)")
        # Both are conditions on the sorting key, so they may be evaluated before rows are replaced.
        named = (
            f"FINAL PREWHERE {source.leading} IN (SELECT fromUnixTimestamp64Nano(arrayJoin({moments}), 'UTC')) "
            f"AND {source.row} IN {within.bind(keys['row'].to_list(), 'Array(UInt64)')}"
        )
    else:
        named = f"WHERE {source.row} IN {within.bind(keys['row'].to_list(), 'Array(String)')}"
    frame = _read_rows(store, source, order, named, within)
    return _page(frame, request, total, is_estimate=is_counted and total > EXACT_ROWS)


def _read_rows(store: Store, source: Source, order: _Order, matching: str, where: Conditions) -> pl.DataFrame:
    expression, direction = order.column.expression, order.direction
    return store.connection.query(
        f"SELECT {source.columns}, toString({expression}) AS sort_value, {source.key} AS sort_id "
        f"FROM {source.table} {matching} "
        f"ORDER BY {expression} {direction}, {source.key} {direction} LIMIT {order.rows + 1}",
        doing="reading a page of a list",
        parameters=where.parameters,
    )


def _page(frame: pl.DataFrame, request: _PageRequest, total: int, *, is_estimate: bool) -> ListPage:
    """Return the page of up to ``rows + 1`` rows, which are in the order of the query."""
    has_more = frame.height > request.rows
    frame = frame.head(request.rows)
    has_cursor = bool(request.cursor and request.cursor.key)
    is_backward = bool(request.cursor and request.cursor.is_before)
    return ListPage(
        rows=frame.reverse() if is_backward else frame,
        total=total,
        is_estimate=is_estimate,
        has_earlier=has_more if is_backward else has_cursor,
        has_later=has_cursor if is_backward else has_more,
        words=request.words,
    )


def _count(store: Store, sql: str, where: Conditions) -> int:
    """Return the number of rows of a table or query."""
    query = f"SELECT count() AS rows FROM {sql}"
    frame = store.connection.query(query, doing="counting the rows of a list", parameters=where.parameters)
    return int(frame["rows"][0])


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
