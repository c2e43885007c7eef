"""From a few touched traces to everything that their episodes consist of.

Invariant: whatever an episode has in the store is loaded as a whole: all spans of every trace of it, those of the
traces that belong to it by an earlier run, those that share its ids, and, for model calls that no app context holds
together, those near enough in time to be continued; with them their scores and captures.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import polars as pl

from spanloop.store import Store

STITCH_WINDOW_NS: Final = 30 * 60 * 1_000_000_000
"""How far apart in time two model calls of one scattered loop may be."""

RELATED_WINDOW_NS: Final = 24 * 3_600 * 1_000_000_000
"""How far apart in time the traces of one named episode or conversation may be."""

MAX_NEIGHBOURS: Final = 5_000
"""Traces loaded only because they are near in time, the nearest first; bounds memory."""

_IDS_PER_QUERY: Final = 2_000
"""Bound parameters travel in the request, whose size ClickHouse limits."""


class Batch(NamedTuple):
    """Some of the touched traces."""

    trace_ids: frozenset[str]
    started_ns: int
    ended_ns: int
    new_spans: int
    bare_services: frozenset[str]
    """Services of model calls that no app context holds together."""


class Loaded(NamedTuple):
    """All rows that decide about a batch."""

    spans: pl.DataFrame
    scores: pl.DataFrame
    generations: pl.DataFrame
    logs: pl.DataFrame
    """Log records that tell of the spans."""
    stored: pl.DataFrame
    """Newest revisions of the episodes that hold any of the traces: see ``pipeline_stored.sql``."""
    concerned: frozenset[str]
    """What must be written anew: the batch's traces, those that a score of a whole session judges together with them,
    and all traces of stored episodes that hold one of these."""


def batches(store: Store, *, since_us: int, until_us: int, counted_since_us: int, max_spans: int) -> list[Batch]:
    """The touched traces, oldest first, in batches of about ``max_spans`` spans (a trace is never split)."""
    touched = store.query("pipeline_touched", since_us=since_us, until_us=until_us, counted_since_us=counted_since_us)
    number = (touched["spans"].cum_sum() - touched["spans"]) // max_spans
    found = touched.with_columns(number.alias("batch")).partition_by("batch", maintain_order=True)
    return [
        Batch(
            trace_ids=frozenset(part["trace_id"].to_list()),
            started_ns=int(part["started_ns"].min() or 0),  # type: ignore[arg-type]
            ended_ns=int(part["ended_ns"].max() or 0),  # type: ignore[arg-type]
            new_spans=int(part["new_spans"].sum()),
            bare_services=frozenset(part["bare_services"].explode(empty_as_null=False).to_list()),
        )
        for part in found
    ]


def load(store: Store, batch: Batch, *, session_is_episode: bool = False) -> Loaded:
    """Everything that decides about the episodes of ``batch``; all of a session where a session is an episode."""
    judged = batch.trace_ids | _companions(store, batch)
    trace_ids = {*judged, *_relatives(store, batch, by_session=session_is_episode), *_neighbours(store, batch)}
    stored = stored_episodes(store, trace_ids=trace_ids)
    concerned = set(judged)
    for row in stored.filter(pl.col("is_deleted") == 0)["trace_ids"].to_list():
        trace_ids.update(row)
        if not judged.isdisjoint(row):
            concerned.update(row)
    spans = _concat(store.query("pipeline_spans", trace_ids=ids) for ids in _parts(trace_ids))
    return Loaded(
        spans=spans,
        scores=_scores(store, spans, trace_ids),
        generations=_generations(store, spans, trace_ids),
        logs=_concat(store.query("pipeline_logs", trace_ids=ids) for ids in _parts(trace_ids)),
        stored=stored,
        concerned=frozenset(concerned),
    )


def stored_episodes(store: Store, *, trace_ids: Iterable[str] = (), episode_ids: Iterable[str] = ()) -> pl.DataFrame:
    """Newest stored revisions of episodes, by a trace of theirs or by id."""
    found = [store.query("pipeline_stored", episode_ids=[], trace_ids=ids) for ids in _parts(trace_ids)]
    found += [store.query("pipeline_stored", episode_ids=ids, trace_ids=[]) for ids in _parts(episode_ids)]
    if not found:
        return store.query("pipeline_stored", episode_ids=[], trace_ids=[])
    return _concat(found).unique("episode_id", maintain_order=True)


def _companions(store: Store, batch: Batch) -> set[str]:
    parts = [store.query("pipeline_companions", trace_ids=ids) for ids in _parts(batch.trace_ids)]
    return {str(trace_id) for part in parts for trace_id in part["trace_id"]}


def _relatives(store: Store, batch: Batch, *, by_session: bool) -> set[str]:
    found: set[str] = set()
    for ids in _parts(batch.trace_ids):
        found.update(
            store.query(
                "pipeline_relatives",
                trace_ids=ids,
                from_ns=_bounded(batch.started_ns - RELATED_WINDOW_NS),
                until_ns=_bounded(batch.ended_ns + RELATED_WINDOW_NS),
                by_session=by_session,
            )["trace_id"].to_list()
        )
    return found


def _neighbours(store: Store, batch: Batch) -> set[str]:
    if not batch.bare_services:
        return set()
    found = store.query(
        "pipeline_neighbours",
        services=sorted(batch.bare_services),
        from_ns=batch.started_ns,
        until_ns=batch.ended_ns,
        window_ns=STITCH_WINDOW_NS,
        max_traces=len(batch.trace_ids) + MAX_NEIGHBOURS,
    )
    return set(found["trace_id"].to_list())


def _bounded(moment_ns: int) -> int:
    """Nanoseconds that a DateTime64(9) can hold."""
    return min(max(moment_ns, 0), 2**63 - 1)


def _scores(store: Store, spans: pl.DataFrame, trace_ids: set[str]) -> pl.DataFrame:
    sessions = {*spans["session_id"].to_list(), *spans["conversation_id"].to_list()}
    wanted = {
        "trace_ids": trace_ids,
        "response_ids": set(spans["response_id"].to_list()),
        "episode_keys": set(spans["episode_key"].to_list()),
        "session_ids": sessions,
    }
    return _by_any_id(store, "pipeline_scores", wanted).unique("score_id", maintain_order=True)


def _generations(store: Store, spans: pl.DataFrame, trace_ids: set[str]) -> pl.DataFrame:
    wanted = {"trace_ids": trace_ids, "response_ids": set(spans["response_id"].to_list())}
    return _by_any_id(store, "pipeline_generations", wanted).unique("generation_id", maintain_order=True)


def _by_any_id(store: Store, query_name: str, wanted: dict[str, set[str]]) -> pl.DataFrame:
    nothing: dict[str, Sequence[str]] = {kind: [] for kind in wanted}
    found = [store.query(query_name, **nothing)]
    for kind, ids in wanted.items():
        found += [store.query(query_name, **{**nothing, kind: part}) for part in _parts(ids)]
    return _concat(found)


def _parts(ids: Iterable[str]) -> Iterator[list[str]]:
    """Sorted slices small enough for one request; empty ids are left out."""
    ordered = sorted(identity for identity in ids if identity)
    for start in range(0, len(ordered), _IDS_PER_QUERY):
        yield ordered[start : start + _IDS_PER_QUERY]


def _concat(parts: Iterable[pl.DataFrame]) -> pl.DataFrame:
    return pl.concat(list(parts), how="vertical")
