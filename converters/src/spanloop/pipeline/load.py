"""Load the rows that decide how a batch is converted.

Invariant: all spans of the affected traces within their time are loaded, with their scores, judgements, log events
and captures.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import polars as pl

from spanloop.store import Store

from .affected_traces import FOREVER_NS, AffectedTraces, slices

CAPTURE_WINDOW_NS: Final = 24 * 3_600 * 1_000_000_000
"""Time around a batch's spans in which their captures are searched first."""


class Loaded(NamedTuple):
    """All rows that decide how a batch is converted."""

    spans: pl.DataFrame
    scores: pl.DataFrame
    generations: pl.DataFrame
    logs: pl.DataFrame
    """Log records of the spans: messages and exceptions."""
    judgements: pl.DataFrame
    affected: AffectedTraces


def load(store: Store, affected: AffectedTraces) -> Loaded:
    """Read the rows of the affected traces."""
    trace_ids = affected.trace_ids
    between = {"from_ns": affected.from_ns, "until_ns": affected.until_ns}
    spans = _concat(store.query("pipeline_spans", trace_ids=ids, **between) for ids in _slices_or_empty(trace_ids))
    return Loaded(
        spans=spans,
        scores=_scores(store, spans, trace_ids),
        generations=_generations(store, spans, trace_ids),
        logs=_concat(store.query("pipeline_logs", trace_ids=ids) for ids in _slices_or_empty(trace_ids)),
        judgements=_concat(store.query("pipeline_judgements", trace_ids=ids) for ids in _slices_or_empty(trace_ids)),
        affected=affected,
    )


def _slices_or_empty(ids: Iterable[str]) -> Sequence[list[str]]:
    """Return at least one slice, so that a query gives a frame with its columns."""
    return list(slices(ids)) or [[]]


def _scores(store: Store, spans: pl.DataFrame, trace_ids: Iterable[str]) -> pl.DataFrame:
    sessions = {*spans["session_id"].to_list(), *spans["conversation_id"].to_list()}
    ids_by_kind = {
        "trace_ids": set(trace_ids),
        "response_ids": set(spans["response_id"].to_list()),
        "episode_keys": set(spans["episode_key"].to_list()),
        "session_ids": sessions,
    }
    return _by_any_id(store, "pipeline_scores", ids_by_kind).unique("score_id", maintain_order=True)


def _generations(store: Store, spans: pl.DataFrame, trace_ids: Iterable[str]) -> pl.DataFrame:
    """Return the captures of the spans; a repeated capture occurs repeatedly, and the converters take the newest.

    Captures are searched by response id near their spans first. The clocks of gateway and app may differ, so missing
    ones are searched at any time. Captures of a trace are searched at any time too, because their number is unknown.
    """
    responses = set(spans["response_id"].to_list())
    starts = spans["Timestamp"].cast(pl.Int64)
    near_spans = {
        "from_ns": max(int(starts.min() or 0) - CAPTURE_WINDOW_NS, 0),  # type: ignore[arg-type]
        "until_ns": min(int(starts.max() or 0) + CAPTURE_WINDOW_NS, FOREVER_NS),  # type: ignore[arg-type]
    }
    at_any_time = {"from_ns": 0, "until_ns": FOREVER_NS}
    captures = _by_any_id(store, "pipeline_generations", {"trace_ids": set(), "response_ids": responses}, **near_spans)
    missing = {"trace_ids": set(trace_ids), "response_ids": responses.difference(captures["response_id"].to_list())}
    return _concat([captures, _by_any_id(store, "pipeline_generations", missing, **at_any_time)])


def _by_any_id(store: Store, query_name: str, ids_by_kind: dict[str, set[str]], **bounds: int) -> pl.DataFrame:
    no_ids: dict[str, Sequence[str] | int] = {**bounds, **{kind: [] for kind in ids_by_kind}}
    parts = [{**no_ids, kind: part} for kind, ids in ids_by_kind.items() for part in slices(ids)]
    return _concat(store.query(query_name, **part) for part in parts or [no_ids])


def _concat(parts: Iterable[pl.DataFrame]) -> pl.DataFrame:
    return pl.concat(list(parts), how="vertical")
