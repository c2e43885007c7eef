"""Keep ``otel_traces.IsModelCall`` equal to a condition that the caller generates.

Invariant: new spans are marked by the condition from the moment that the column is altered. Spans that are stored are
marked day by day, newest first; the column's comment records the condition and the days that are done, so an
interrupted call continues. No span loses its trace's summary: summaries only gain model calls.
"""

import hashlib
import time
from typing import Final, NamedTuple

from .client import Connection
from .cluster import cluster_text
from .store import Store

_NO_DAY: Final = "99999999"
"""Sorts behind the partition of every day."""
_DOING: Final = "marking model calls"
_COMMENT: Final = """
SELECT comment FROM system.columns
WHERE database = currentDatabase() AND table = 'otel_traces' AND name = 'IsModelCall'
"""
_DAYS: Final = """
SELECT DISTINCT partition_id FROM system.parts
WHERE database = currentDatabase() AND table IN ('otel_traces', 'otel_traces_shard') AND active
    AND partition_id < {before:String}
ORDER BY partition_id DESC
"""
_IS_UNMARKED: Final = "_partition_id = {{day:String}} AND NOT IsModelCall AND ({condition})"
_IS_DIFFERENT: Final = "_partition_id = {{day:String}} AND IsModelCall != ({condition})"
_SUMMARISE: Final = """
INSERT INTO trace_summaries (ten_minutes, trace_id, started_at, ended_at, ingested_at, calls)
SELECT
    toStartOfTenMinutes(toDateTime(min(Timestamp), 'UTC')) AS ten_minutes,
    TraceId AS trace_id,
    toTimeZone(min(Timestamp), 'UTC') AS started_at,
    toTimeZone(max(Timestamp + toIntervalNanosecond(least(Duration, 4000000000000000000))), 'UTC') AS ended_at,
    max(IngestedAt) AS ingested_at,
    maxMap(map(
        cityHash64(SpanId), bitOr(bitShiftLeft(toUInt64(GenAiInputTokens), 32), toUInt64(GenAiOutputTokens))
    )) AS calls
FROM otel_traces
WHERE TraceId != '' AND {unmarked}
GROUP BY TraceId
SETTINGS max_bytes_before_external_group_by = 200000000, insert_deduplicate = 0
"""


class _State(NamedTuple):
    """What a column's comment records."""

    digest: str
    before: str
    """The days before this one are not marked yet; empty when all are."""


def mark_model_calls(store: Store, condition: str, *, max_s: float) -> int:
    """Make ``condition`` the expression of ``IsModelCall``, and mark stored spans for about ``max_s`` seconds.

    Args:
        store: The store.
        condition: A SQL condition on a row of ``otel_traces``.
        max_s: Time after which no further day begins, in seconds.

    Returns:
        The number of days that are left; call it until this is 0.

    Raises:
        StoreError: ClickHouse refused or is unreachable; the next call continues.
    """
    connection = store.connection
    digest = hashlib.sha256(condition.encode()).hexdigest()[:16]
    state = _read(connection)
    if state.digest != digest:
        state = _State(digest, _NO_DAY)
        column = f"IsModelCall Bool MATERIALIZED {condition} COMMENT '{digest} before {_NO_DAY}'"
        connection.command(f"ALTER TABLE otel_traces MODIFY COLUMN {column}", doing=_DOING)
    if not state.before:
        return 0
    deadline = time.monotonic() + max_s
    sql = _DAYS if connection.cluster is None else cluster_text(_DAYS, connection.cluster)
    days = [str(day) for day in connection.query(sql, doing=_DOING, parameters={"before": state.before})[:, 0]]
    for number, day in enumerate(days):
        if number and time.monotonic() > deadline:
            return len(days) - number
        _mark(connection, condition, day)
        _write(connection, f"{digest} before {day}")
    _write(connection, digest)
    return 0


def _read(connection: Connection) -> _State:
    comment = str(connection.query(_COMMENT, doing=_DOING).item())
    digest, _, before = comment.partition(" before ")
    return _State(digest, before)


def _write(connection: Connection, comment: str) -> None:
    connection.command(f"ALTER TABLE otel_traces COMMENT COLUMN IsModelCall '{comment}'", doing=_DOING)


def _mark(connection: Connection, condition: str, day: str) -> None:
    """Mark the spans of one day; the server rewrites the column in the background."""
    different = _IS_DIFFERENT.format(condition=condition)
    sql = f"SELECT count() FROM otel_traces WHERE {different}"  # noqa: S608 - the condition has escaped literals only
    if not connection.query(sql, doing=_DOING, parameters={"day": day}).item():
        return
    summarise = _SUMMARISE.format(unmarked=_IS_UNMARKED.format(condition=condition))
    connection.command(summarise, doing=_DOING, parameters={"day": day})
    connection.command(f"ALTER TABLE otel_traces MATERIALIZE COLUMN IsModelCall IN PARTITION ID '{day}'", doing=_DOING)
