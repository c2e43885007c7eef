"""Find the traces that decide how a batch is converted, as many as memory allows.

Invariant: an episode is built from all of its spans. Where they exceed the memory setting, it is built from the
earliest ones; the others are counted as rejected, ``episode_too_large``. A batch that is too large together with its
required traces is halved. Traces that are only near in time are added, nearest first, while memory allows.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import polars as pl

from spanloop.converters.linking.span_links import MAX_LINKED_TRACES
from spanloop.store import Store

from .batches import Batch

STITCH_WINDOW_NS: Final = 30 * 60 * 1_000_000_000
"""Largest time between two model calls that are linked without a common id."""

RELATED_WINDOW_NS: Final = 24 * 3_600 * 1_000_000_000
"""Largest time between traces of one named episode or conversation."""

MAX_NEIGHBOURS: Final = 5_000
"""Most traces that are loaded only because they are near in time."""

EPISODE_SPANS: Final = 100_000
"""Most spans with one episode or conversation id within the window; spans that start later are rejected."""

TOO_LARGE: Final = "episode_too_large"

FOREVER_NS: Final = 2**63 - 1
_SPAN_BYTES: Final = 500
"""Memory of a span besides its text."""
_TOKEN_BYTES: Final = 8


class AffectedTraces(NamedTuple):
    """Part of a batch with every trace that decides how it is converted."""

    batch: Batch
    trace_ids: frozenset[str]
    """Traces to load."""
    from_ns: int
    until_ns: int
    """Bounds of the spans' start times, both included."""
    reconverted: frozenset[str]
    """Traces whose episodes are written again: the batch's traces, traces of the same session when a score judges the
    whole session, and all traces of stored episodes that contain one of these."""
    stored: pl.DataFrame
    """Newest revisions of stored episodes with any of the traces; columns of ``pipeline_stored.sql``."""
    rejected: Mapping[str, int]
    """Reason → number of the batch's spans that are not loaded."""


class _RequiredTraces(NamedTuple):
    """Traces that belong to a batch by an id or a stored episode."""

    trace_ids: frozenset[str]
    reconverted: frozenset[str]
    stored: pl.DataFrame
    over_limit: frozenset[str]
    """Traces of the batch that start after the first ``EPISODE_SPANS`` spans of their id."""
    may_exceed_limit: bool
    """Whether an id has so many spans that other traces may start after the limit."""


def affected_traces(
    store: Store, batch: Batch, *, max_bytes: int, session_is_episode: bool
) -> Iterator[AffectedTraces]:
    """Yield a batch in as many parts as memory requires. Each part queries the store when it is requested.

    Args:
        store: The store.
        batch: Traces with new rows.
        max_bytes: Most text and captured tokens in one part, in bytes, as ``pipeline_sizes.sql`` counts them.
        session_is_episode: Whether all traces of a session form one episode.
    """
    waiting = [batch]
    while waiting:
        part = waiting.pop()
        required = _required_traces(store, part, by_session=session_is_episode)
        sizes = _sizes(store, part, required.trace_ids)
        is_too_large = _size_bytes(sizes) > max_bytes
        if is_too_large and part.traces.height > 1:
            older, newer = part.halves()
            waiting += [newer, older]
        elif is_too_large:
            yield _truncated(store, part, required, sizes, max_bytes)
        else:
            yield _with_neighbours(store, part, required, sizes, max_bytes, by_session=session_is_episode)


def stored_episodes(store: Store, *, trace_ids: Iterable[str] = (), episode_ids: Iterable[str] = ()) -> pl.DataFrame:
    """Return the newest stored revisions of episodes, by trace id or by episode id."""
    results = [store.query("pipeline_stored", episode_ids=[], trace_ids=ids) for ids in slices(trace_ids)]
    results += [store.query("pipeline_stored", episode_ids=ids, trace_ids=[]) for ids in slices(episode_ids)]
    if not results:
        return store.query("pipeline_stored", episode_ids=[], trace_ids=[])
    return pl.concat(results).unique("episode_id", maintain_order=True)


_IDS_PER_QUERY: Final = 2_000
"""ClickHouse limits the size of a request, and bound parameters are part of it."""


def slices(ids: Iterable[str]) -> Iterator[list[str]]:
    """Yield sorted slices that fit into one request; empty ids are left out."""
    ordered = sorted(identity for identity in ids if identity)
    for start in range(0, len(ordered), _IDS_PER_QUERY):
        yield ordered[start : start + _IDS_PER_QUERY]


def _required_traces(store: Store, batch: Batch, *, by_session: bool) -> _RequiredTraces:
    batch_and_session = batch.trace_ids | _traces_of_scored_sessions(store, batch)
    related = _traces_sharing_ids(store, batch, batch.trace_ids if batch.is_named else (), by_session=by_session)
    over_limit = related.over_limit
    trace_ids = {*batch_and_session, *related.trace_ids, *_linked_traces(store, batch)} - over_limit
    stored = stored_episodes(store, trace_ids=trace_ids)
    reconverted = set(batch_and_session - over_limit)
    for members in stored.filter(pl.col("is_deleted") == 0)["trace_ids"].to_list():
        trace_ids.update(members)
        if not batch_and_session.isdisjoint(members):
            reconverted.update(members)
    return _RequiredTraces(
        frozenset(trace_ids - over_limit),
        frozenset(reconverted - over_limit),
        stored,
        over_limit & batch.trace_ids,
        related.may_exceed_limit,
    )


def _linked_traces(store: Store, batch: Batch) -> set[str]:
    """Return traces that span links connect with the batch's, in either direction."""
    parts = [
        store.query(
            "pipeline_linked",
            trace_ids=ids,
            given_from_ns=batch.started_ns,
            given_until_ns=batch.ended_ns,
            from_ns=_clamp_ns(batch.started_ns - STITCH_WINDOW_NS),
            until_ns=_clamp_ns(batch.ended_ns + STITCH_WINDOW_NS),
            max_linked=MAX_LINKED_TRACES,
            max_traces=MAX_NEIGHBOURS,
        )
        for ids in slices(batch.trace_ids)
    ]
    return {str(trace_id) for part in parts for trace_id in part["trace_id"]}


def _traces_of_scored_sessions(store: Store, batch: Batch) -> set[str]:
    if not batch.is_named:
        return set()
    parts = [
        store.query(
            "pipeline_companions",
            trace_ids=ids,
            from_ns=batch.started_ns,
            until_ns=batch.ended_ns,
            max_traces=MAX_NEIGHBOURS,
        )
        for ids in slices(batch.trace_ids)
    ]
    return {str(trace_id) for part in parts for trace_id in part["trace_id"]}


class _SharedIds(NamedTuple):
    """Traces that share an id with given ones; the limit is that of `_RequiredTraces`."""

    trace_ids: frozenset[str]
    over_limit: frozenset[str]
    may_exceed_limit: bool


def _traces_sharing_ids(store: Store, batch: Batch, trace_ids: Collection[str], *, by_session: bool) -> _SharedIds:
    from_ns, until_ns = _clamp_ns(batch.started_ns - RELATED_WINDOW_NS), _clamp_ns(batch.ended_ns + RELATED_WINDOW_NS)
    is_within_batch = batch.trace_ids.issuperset(trace_ids)
    parts = [
        store.query(
            "pipeline_relatives",
            trace_ids=ids,
            given_from_ns=batch.started_ns if is_within_batch else from_ns,
            given_until_ns=batch.ended_ns if is_within_batch else until_ns,
            from_ns=from_ns,
            until_ns=until_ns,
            by_session=by_session,
            max_spans=EPISODE_SPANS,
        )
        for ids in slices(trace_ids)
    ]
    spans = {str(trace_id): int(so_far) for part in parts for trace_id, so_far in part.iter_rows()}
    over_limit = frozenset(trace_id for trace_id, so_far in spans.items() if so_far > EPISODE_SPANS)
    may_exceed_limit = max(spans.values(), default=0) > EPISODE_SPANS // 2
    return _SharedIds(frozenset(spans) - over_limit, over_limit, may_exceed_limit)


def _sizes(store: Store, batch: Batch, trace_ids: frozenset[str]) -> pl.DataFrame:
    """Return spans, bytes and times of traces, the earliest first. The times of the batch's own traces are known."""
    batch_ids, other_ids = trace_ids & batch.trace_ids, trace_ids - batch.trace_ids
    results = [
        store.query("pipeline_sizes", trace_ids=ids, from_ns=from_ns, until_ns=until_ns)
        for requested, from_ns, until_ns in ((batch_ids, batch.started_ns, batch.ended_ns), (other_ids, 0, FOREVER_NS))
        for ids in slices(requested)
    ]
    return pl.concat(results).sort("started_ns", "trace_id") if results else _empty_sizes(store)


def _empty_sizes(store: Store) -> pl.DataFrame:
    return store.query("pipeline_sizes", trace_ids=[], from_ns=0, until_ns=0)


def _size_bytes(sizes: pl.DataFrame) -> int:
    return int(sizes["bytes"].sum()) + _SPAN_BYTES * int(sizes["spans"].sum())


def _with_neighbours(
    store: Store, batch: Batch, required: _RequiredTraces, sizes: pl.DataFrame, max_bytes: int, *, by_session: bool
) -> AffectedTraces:
    callers = _callers(sizes.filter(pl.col("trace_id").is_in(sorted(required.reconverted))))
    candidates = _neighbour_candidates(store, batch, callers, required.trace_ids | required.over_limit)
    if required.may_exceed_limit:
        over_limit = _traces_sharing_ids(store, batch, candidates, by_session=by_session).over_limit
        candidates = [trace_id for trace_id in candidates if trace_id not in over_limit]
    near_ids, near_stored, near_sizes = (
        _select_neighbours(store, batch, required, candidates, max_bytes - _size_bytes(sizes))
        if candidates
        else (frozenset[str](), required.stored.clear(), sizes.clear())
    )
    times = pl.concat([sizes, near_sizes])
    return AffectedTraces(
        batch=batch,
        trace_ids=required.trace_ids | near_ids,
        from_ns=int(times["started_ns"].min() or 0),  # type: ignore[arg-type]
        until_ns=int(times["ended_ns"].max() or 0),  # type: ignore[arg-type]
        reconverted=_reconverted(required.reconverted, near_stored),
        stored=pl.concat([required.stored, near_stored]).unique("episode_id", maintain_order=True),
        rejected=_rejection(_span_count(batch, required.over_limit)),
    )


def _reconverted(reconverted: frozenset[str], stored: pl.DataFrame) -> frozenset[str]:
    current = stored.filter(pl.col("is_deleted") == 0)["trace_ids"].to_list()
    return reconverted.union(*(members for members in current if not reconverted.isdisjoint(members)))


def _truncated(
    store: Store, batch: Batch, required: _RequiredTraces, sizes: pl.DataFrame, max_bytes: int
) -> AffectedTraces:
    """Return as much as fits of one trace whose episode is too large, the earliest spans first."""
    (trace_id,) = batch.trace_ids
    so_far = (sizes["bytes"] + _SPAN_BYTES * sizes["spans"]).cum_sum()
    fitting = sizes.filter(so_far <= max_bytes)
    until_ns, rejected = FOREVER_NS, 0
    if fitting.is_empty():
        fitting = sizes[:1]
        fitting_head = store.query(
            "pipeline_head",
            trace_id=str(fitting["trace_id"][0]),
            from_ns=int(fitting["started_ns"][0]),
            until_ns=int(fitting["ended_ns"][0]),
            max_bytes=max_bytes,
        ).row(0, named=True)
        until_ns, rejected = int(fitting_head["until_ns"]), int(fitting_head["all_spans"]) - int(fitting_head["spans"])
    trace_ids = frozenset(fitting["trace_id"].to_list())
    if trace_id not in trace_ids:
        rejected = _span_count(batch, batch.trace_ids)
    return AffectedTraces(
        batch=batch,
        trace_ids=trace_ids if trace_id in trace_ids else frozenset(),
        from_ns=int(fitting["started_ns"][0]),
        until_ns=until_ns,
        reconverted=required.reconverted & trace_ids,
        stored=required.stored,
        rejected=_rejection(rejected),
    )


def _span_count(batch: Batch, trace_ids: frozenset[str]) -> int:
    return int(batch.traces.filter(pl.col("trace_id").is_in(sorted(trace_ids)))["spans"].sum())


def _rejection(spans: int) -> dict[str, int]:
    return {TOO_LARGE: spans} if spans else {}


def _select_neighbours(
    store: Store, batch: Batch, required: _RequiredTraces, near: Sequence[str], free_bytes: int
) -> tuple[frozenset[str], pl.DataFrame, pl.DataFrame]:
    """Return traces near in time that fit into memory, whole stored episodes at a time; the episodes; the sizes."""
    stored = stored_episodes(store, trace_ids=near)
    episode_of = {
        str(trace_id): (str(episode_id), [str(member) for member in members])
        for episode_id, members in stored.filter(pl.col("is_deleted") == 0)
        .select("episode_id", "trace_ids")
        .iter_rows()
        for trace_id in members
    }
    requested = frozenset(member for trace_id in near for member in episode_of.get(trace_id, ("", [trace_id]))[1])
    sizes = _sizes(store, batch, requested - required.trace_ids)
    costs = {
        str(trace_id): int(text) + _SPAN_BYTES * int(spans)
        for trace_id, text, spans in sizes.select("trace_id", "bytes", "spans").iter_rows()
    }
    selected: set[str] = set()
    for trace_id in near:
        members = [member for member in episode_of.get(trace_id, ("", [trace_id]))[1] if member not in selected]
        cost = sum(costs.get(member, 0) for member in members)
        if cost <= free_bytes:
            free_bytes -= cost
            selected.update(members)
    loaded = selected | required.trace_ids
    left_out = [episode for trace_id, (episode, _) in episode_of.items() if trace_id not in loaded]
    return (
        frozenset(selected),
        stored.filter(~pl.col("episode_id").is_in(left_out)),
        sizes.filter(pl.col("trace_id").is_in(sorted(selected))),
    )


class _Callers(NamedTuple):
    """Services and scopes that record the model calls of traces."""

    services: frozenset[str]
    """Services whose calls may continue calls of other traces, or that have several scopes which record calls."""
    scopes: Mapping[str, str]
    """Other services → the one scope that records their calls. All of their calls have an episode id, their own or
    that of their trace: another trace can only repeat such a call, recorded by another scope."""


def _callers(sizes: pl.DataFrame) -> _Callers:
    unscoped: set[str] = set()
    scopes: dict[str, str] = {}
    for callers, is_held in sizes.select("callers", "is_held").iter_rows():
        for service, scope in (caller.values() for caller in callers):
            if not is_held or scopes.setdefault(service, scope) != scope:
                unscoped.add(service)
    return _Callers(
        frozenset(unscoped), {service: scope for service, scope in scopes.items() if service not in unscoped}
    )


def _neighbour_candidates(store: Store, batch: Batch, callers: _Callers, known: frozenset[str]) -> list[str]:
    """Return traces near in time, the nearest first, without the known ones."""
    if not (callers.services or callers.scopes):
        return []
    results = store.query(
        "pipeline_neighbours",
        services=sorted(callers.services),
        held_services=sorted(callers.scopes),
        held_scopes=[callers.scopes[service] for service in sorted(callers.scopes)],
        from_ns=batch.started_ns,
        until_ns=batch.ended_ns,
        window_ns=STITCH_WINDOW_NS,
        max_traces=batch.traces.height + MAX_NEIGHBOURS,
    )
    return [str(trace_id) for trace_id in results["trace_id"] if trace_id not in known]


def _clamp_ns(moment_ns: int) -> int:
    """Limit a time to what a DateTime64(9) can hold."""
    return min(max(moment_ns, 0), FOREVER_NS)
