"""Insert blocks of requests into the store without the rows that it holds already.

Invariant: an item is stored once, however many imports insert it. For each block, the stored rows are queried, the new
rows are inserted under a deduplication token derived from their keys (so that concurrent imports of one file do not
duplicate them), and the stored rows are queried again: rows dropped because of the token of rows deleted since are
inserted without a token.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple, cast

import polars as pl
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from spanloop.collector.blocks.log_rows import LogRows
from spanloop.collector.blocks.span_rows import SpanRows
from spanloop.foundation.tables.arrivals import OTEL_LOGS, OTEL_TRACES, SCORES
from spanloop.store import Store

from .import_requests import Score

_IDS_PER_QUERY: Final = 2_000


class _TableKeys(NamedTuple):
    """How the rows of one table are identified."""

    table: str
    keys: Callable[[pl.DataFrame], list[str]]
    """Return one key for each row."""
    candidates: Callable[[Store, pl.DataFrame, list[str]], pl.DataFrame]
    """Return the key columns of stored rows that may equal given rows, of given trace ids."""


def store_spans(store: Store, requests: Iterable[ExportTraceServiceRequest]) -> list[bool]:
    """Insert the spans that the store does not hold. Trace id and span id identify a span.

    Returns:
        For each span, in the order of the requests, whether it is new.

    Raises:
        StoreError: ClickHouse is unreachable or rejected a request.
    """
    rows = SpanRows()
    for request in requests:
        rows.add(request)
    return store_span_rows(store, rows.to_frame())


def store_span_rows(store: Store, frame: pl.DataFrame) -> list[bool]:
    """Insert rows of ``otel_traces``, as `store_spans`."""
    return _store(store, _SPANS, frame)


def store_logs(store: Store, requests: Iterable[ExportLogsServiceRequest]) -> list[bool]:
    """Insert the log records that the store does not hold, as `store_spans`.

    A record has no id: its trace and span ids, time, service and content are its key.
    """
    rows = LogRows()
    for request in requests:
        rows.add(request)
    return store_log_rows(store, rows.to_frame())


def store_log_rows(store: Store, frame: pl.DataFrame) -> list[bool]:
    """Insert rows of ``otel_logs``, as `store_logs`."""
    return _store(store, _LOGS, frame)


def store_scores(store: Store, scores: Iterable[Score]) -> list[bool]:
    """Insert the scores that the store does not hold with this value; deleted scores stay deleted.

    Returns:
        For each score, whether it is new.
    """
    requested = list(scores)
    known: dict[str, float] = {}
    for score_ids in _batches({score.score_id for score in requested}):
        stored = store.query("import_known_scores", score_ids=score_ids)
        known |= dict(stored.select("score_id", "value").iter_rows())
    is_new: list[bool] = []
    for score in requested:
        is_new.append(known.get(score.score_id) != score.value)
        known[score.score_id] = score.value
    fresh = [score for score, new in zip(requested, is_new, strict=True) if new]
    if fresh:
        rows = [
            {
                "score_id": score.score_id,
                "name": "reward",
                "value": score.value,
                "source": "import",
                "trace_id": score.trace_id,
                "episode_key": score.episode_key,
                "task_id": score.task_id,
                "scored_at": score.scored_ns,
            }
            for score in fresh
        ]
        store.insert(SCORES.name, SCORES.from_dicts(rows))
    return is_new


def _store(store: Store, table_keys: _TableKeys, frame: pl.DataFrame) -> list[bool]:
    keys = table_keys.keys(frame)
    known = _known(store, table_keys, frame)
    is_new: list[bool] = []
    for key in keys:
        is_new.append(key not in known)
        known.add(key)
    fresh = frame.filter(pl.Series(is_new, dtype=pl.Boolean))
    if not fresh.is_empty():
        fresh_keys = table_keys.keys(fresh)
        digest = hashlib.blake2b("\n".join(fresh_keys).encode(), digest_size=16).hexdigest()
        store.insert(table_keys.table, fresh, token=f"import-{digest}")
        inserted = _known(store, table_keys, fresh)
        dropped = [key not in inserted for key in fresh_keys]
        store.insert(table_keys.table, fresh.filter(pl.Series(dropped, dtype=pl.Boolean)))
    return is_new


def _known(store: Store, table_keys: _TableKeys, frame: pl.DataFrame) -> set[str]:
    """Return the keys of the stored rows with the trace ids of ``frame``."""
    batches = _batches(frame["TraceId"].to_list())
    return {key for trace_ids in batches for key in table_keys.keys(table_keys.candidates(store, frame, trace_ids))}


def _span_keys(frame: pl.DataFrame) -> list[str]:
    return (frame["TraceId"] + frame["SpanId"]).to_list()


def _stored_spans(store: Store, _: pl.DataFrame, trace_ids: list[str]) -> pl.DataFrame:
    return store.query("import_known_spans", trace_ids=trace_ids)


def _log_keys(frame: pl.DataFrame) -> list[str]:
    key_columns = frame.select(
        "TraceId", "SpanId", pl.col("Timestamp").cast(pl.Int64), "ServiceName", "EventName", "Body", "LogAttributes"
    )
    return [_digest(row) for row in key_columns.iter_rows()]


def _digest(row: tuple[object, ...]) -> str:
    *values, attributes = row
    content = (values, sorted(cast("dict[str, str]", attributes).items()))
    return hashlib.blake2b(repr(content).encode(), digest_size=16).hexdigest()


def _stored_logs(store: Store, frame: pl.DataFrame, trace_ids: list[str]) -> pl.DataFrame:
    times_ns = frame["Timestamp"].cast(pl.Int64)
    return store.query("import_known_logs", trace_ids=trace_ids, from_ns=times_ns.min(), until_ns=times_ns.max())


def _batches(ids: Iterable[str]) -> Iterator[list[str]]:
    ordered = sorted(set(ids))
    for start in range(0, len(ordered), _IDS_PER_QUERY):
        yield ordered[start : start + _IDS_PER_QUERY]


_SPANS: Final = _TableKeys(OTEL_TRACES.name, _span_keys, _stored_spans)
_LOGS: Final = _TableKeys(OTEL_LOGS.name, _log_keys, _stored_logs)
