"""Blocks of requests into the store, without what is there already.

Invariant: an item is stored once, however often and by however many imports it comes. Each block asks the store first,
goes in under a token that its keys decide (so two imports of one file at the same time meet), and asks the store again:
what a token of an earlier life of the same rows, since forgotten, has held back goes in without one.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple, cast

import polars as pl
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from spanloop.collector.log_rows import LogRows
from spanloop.collector.span_rows import SpanRows
from spanloop.store import Store

from .import_requests import Score

_IDS_PER_QUERY: Final = 2_000


class _Kind(NamedTuple):
    """How the rows of one table are told apart."""

    table: str
    keys: Callable[[pl.DataFrame], list[str]]
    """One key for each row."""
    candidates: Callable[[Store, pl.DataFrame, list[str]], pl.DataFrame]
    """The stored rows, with the columns that make their keys, that some rows (those of these trace ids) may be."""


def store_spans(store: Store, requests: Iterable[ExportTraceServiceRequest]) -> list[bool]:
    """Insert the spans that the store does not hold. A span is known by its trace id and span id.

    Returns:
        For each span, in the order of the requests, whether it was new.

    Raises:
        StoreError: ClickHouse refused or is out of reach.
    """
    rows = SpanRows()
    for request in requests:
        rows.add(request)
    return store_span_rows(store, rows.to_frame())


def store_span_rows(store: Store, frame: pl.DataFrame) -> list[bool]:
    """As `store_spans`, for rows of ``otel_traces``."""
    return _store(store, _SPANS, frame)


def store_logs(store: Store, requests: Iterable[ExportLogsServiceRequest]) -> list[bool]:
    """Insert the log records that the store does not hold, as `store_spans`.

    A record has no id: where it belongs, when it was and what it says is its key.
    """
    rows = LogRows()
    for request in requests:
        rows.add(request)
    return store_log_rows(store, rows.to_frame())


def store_log_rows(store: Store, frame: pl.DataFrame) -> list[bool]:
    """As `store_logs`, for rows of ``otel_logs``."""
    return _store(store, _LOGS, frame)


def store_scores(store: Store, scores: Iterable[Score]) -> list[bool]:
    """Insert the scores that the store does not hold with this value; one that was deleted there stays deleted.

    Returns:
        For each score whether it was new.
    """
    wanted = list(scores)
    known: dict[str, float] = {}
    for part in _batches({score.score_id for score in wanted}):
        found = store.query("import_known_scores", score_ids=part)
        known |= dict(found.select("score_id", "value").iter_rows())
    new: list[bool] = []
    for score in wanted:
        new.append(known.get(score.score_id) != score.value)
        known[score.score_id] = score.value
    fresh = [score for score, is_new in zip(wanted, new, strict=True) if is_new]
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
        schema = store.schema("scores")
        del schema["ingested_at"]
        store.insert("scores", pl.DataFrame(rows, schema=schema))
    return new


def _store(store: Store, kind: _Kind, frame: pl.DataFrame) -> list[bool]:
    keys = kind.keys(frame)
    known = _known(store, kind, frame)
    new: list[bool] = []
    for key in keys:
        new.append(key not in known)
        known.add(key)
    fresh = frame.filter(pl.Series(new, dtype=pl.Boolean))
    if not fresh.is_empty():
        fresh_keys = kind.keys(fresh)
        digest = hashlib.blake2b("\n".join(fresh_keys).encode(), digest_size=16).hexdigest()
        store.insert(kind.table, fresh, token=f"import-{digest}")
        arrived = _known(store, kind, fresh)
        held_back = [key not in arrived for key in fresh_keys]
        store.insert(kind.table, fresh.filter(pl.Series(held_back, dtype=pl.Boolean)))
    return new


def _known(store: Store, kind: _Kind, frame: pl.DataFrame) -> set[str]:
    """Keys of the stored rows that have the trace ids of these."""
    parts = _batches(frame["TraceId"].to_list())
    return {key for part in parts for key in kind.keys(kind.candidates(store, frame, part))}


def _span_keys(frame: pl.DataFrame) -> list[str]:
    return (frame["TraceId"] + frame["SpanId"]).to_list()


def _stored_spans(store: Store, _: pl.DataFrame, trace_ids: list[str]) -> pl.DataFrame:
    return store.query("import_known_spans", trace_ids=trace_ids)


def _log_keys(frame: pl.DataFrame) -> list[str]:
    said = frame.select(
        "TraceId", "SpanId", pl.col("Timestamp").cast(pl.Int64), "ServiceName", "EventName", "Body", "LogAttributes"
    )
    return [_digest(row) for row in said.iter_rows()]


def _digest(row: tuple[object, ...]) -> str:
    *plain, attributes = row
    whole = (plain, sorted(cast("dict[str, str]", attributes).items()))
    return hashlib.blake2b(repr(whole).encode(), digest_size=16).hexdigest()


def _stored_logs(store: Store, frame: pl.DataFrame, trace_ids: list[str]) -> pl.DataFrame:
    moments = frame["Timestamp"].cast(pl.Int64)
    return store.query("import_known_logs", trace_ids=trace_ids, from_ns=moments.min(), until_ns=moments.max())


def _batches(ids: Iterable[str]) -> Iterator[list[str]]:
    ordered = sorted(set(ids))
    for start in range(0, len(ordered), _IDS_PER_QUERY):
        yield ordered[start : start + _IDS_PER_QUERY]


_SPANS: Final = _Kind("otel_traces", _span_keys, _stored_spans)
_LOGS: Final = _Kind("otel_logs", _log_keys, _stored_logs)
