"""The rows of everything that decides about a batch.

Invariant: for the traces of a closure all spans within its time are loaded, with their scores, log events and captures.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import polars as pl

from spanloop.store import Store

from .affected_traces import FOREVER_NS, Closure, slices

CAPTURE_WINDOW_NS: Final = 24 * 3_600 * 1_000_000_000
"""How far from a batch's spans their captures are looked for first."""


class Loaded(NamedTuple):
    """All rows that decide about a batch."""

    spans: pl.DataFrame
    scores: pl.DataFrame
    generations: pl.DataFrame
    logs: pl.DataFrame
    """Log records that tell of the spans."""
    closure: Closure


def load(store: Store, closure: Closure) -> Loaded:
    """Read what ``closure`` names."""
    trace_ids = closure.trace_ids
    between = {"from_ns": closure.from_ns, "until_ns": closure.until_ns}
    spans = _concat(store.query("pipeline_spans", trace_ids=ids, **between) for ids in _some(trace_ids))
    return Loaded(
        spans=spans,
        scores=_scores(store, spans, trace_ids),
        generations=_generations(store, spans, trace_ids),
        logs=_concat(store.query("pipeline_logs", trace_ids=ids) for ids in _some(trace_ids)),
        closure=closure,
    )


def _some(ids: Iterable[str]) -> Sequence[list[str]]:
    """At least one slice, so that there is a frame with its columns."""
    return list(slices(ids)) or [[]]


def _scores(store: Store, spans: pl.DataFrame, trace_ids: Iterable[str]) -> pl.DataFrame:
    sessions = {*spans["session_id"].to_list(), *spans["conversation_id"].to_list()}
    wanted = {
        "trace_ids": set(trace_ids),
        "response_ids": set(spans["response_id"].to_list()),
        "episode_keys": set(spans["episode_key"].to_list()),
        "session_ids": sessions,
    }
    return _by_any_id(store, "pipeline_scores", wanted).unique("score_id", maintain_order=True)


def _generations(store: Store, spans: pl.DataFrame, trace_ids: Iterable[str]) -> pl.DataFrame:
    """Each capture as often as it was written and found: the converters take the newest.

    Responses are looked for near their spans first. The clocks of gateway and app may be apart, so that those that
    are not there are looked for everywhere; and so is what a trace has, of which nobody knows how much there is.
    """
    responses = set(spans["response_id"].to_list())
    starts = spans["Timestamp"].cast(pl.Int64)
    near = {
        "from_ns": max(int(starts.min() or 0) - CAPTURE_WINDOW_NS, 0),  # type: ignore[arg-type]
        "until_ns": min(int(starts.max() or 0) + CAPTURE_WINDOW_NS, FOREVER_NS),  # type: ignore[arg-type]
    }
    always = {"from_ns": 0, "until_ns": FOREVER_NS}
    found = _by_any_id(store, "pipeline_generations", {"trace_ids": set(), "response_ids": responses}, **near)
    rest = {"trace_ids": set(trace_ids), "response_ids": responses.difference(found["response_id"].to_list())}
    return _concat([found, _by_any_id(store, "pipeline_generations", rest, **always)])


def _by_any_id(store: Store, query_name: str, wanted: dict[str, set[str]], **others: int) -> pl.DataFrame:
    nothing: dict[str, Sequence[str] | int] = {**others, **{kind: [] for kind in wanted}}
    found = [store.query(query_name, **nothing)]
    for kind, ids in wanted.items():
        found += [store.query(query_name, **{**nothing, kind: part}) for part in slices(ids)]
    return _concat(found)


def _concat(parts: Iterable[pl.DataFrame]) -> pl.DataFrame:
    return pl.concat(list(parts), how="vertical")
