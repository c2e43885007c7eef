"""Which traces decide about a batch, as many as memory allows.

Invariant: an episode is built from all spans that belong to it, or, where they are more than the setting allows, from
the earliest ones: the others are rejected as ``episode_too_large``, by number, whenever they come. A batch that is too
large with everything that belongs to it is halved. Traces that are only near in time come in nearest first while there
is room.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import polars as pl

from spanloop.store import Store

from .arrivals import Batch

STITCH_WINDOW_NS: Final = 30 * 60 * 1_000_000_000
"""How far apart in time two model calls of one scattered loop may be."""

RELATED_WINDOW_NS: Final = 24 * 3_600 * 1_000_000_000
"""How far apart in time the traces of one named episode or conversation may be."""

MAX_NEIGHBOURS: Final = 5_000
"""Traces loaded only because they are near in time, the nearest first."""

EPISODE_SPANS: Final = 100_000
"""Spans of one id of an episode or conversation within the window of time; those that start later are rejected."""

TOO_LARGE: Final = "episode_too_large"

FOREVER_NS: Final = 2**63 - 1
_SPAN_BYTES: Final = 500
"""What a span costs besides its text."""
_TOKEN_BYTES: Final = 8


class Closure(NamedTuple):
    """Part of a batch with everything that decides about it."""

    batch: Batch
    trace_ids: frozenset[str]
    """What to load."""
    from_ns: int
    until_ns: int
    """The spans' starts lie between these, both included."""
    concerned: frozenset[str]
    """What must be written anew: the batch's traces, those that a score of a whole session judges together with them,
    and all traces of stored episodes that hold one of these."""
    stored: pl.DataFrame
    """Newest revisions of the episodes that hold any of the traces: see ``pipeline_stored.sql``."""
    rejected: Mapping[str, int]
    """Reason → spans of the batch that are not loaded."""


class _Core(NamedTuple):
    """What belongs together with a batch for certain."""

    trace_ids: frozenset[str]
    concerned: frozenset[str]
    stored: pl.DataFrame
    beyond: frozenset[str]
    """Traces of the batch that come after the first ``EPISODE_SPANS`` spans of their id."""
    is_crowded: bool
    """Whether an id has so many spans that others than the batch's may come after those."""


def closures(store: Store, batch: Batch, *, max_bytes: int, session_is_episode: bool) -> Iterator[Closure]:
    """``batch``, in as many parts as it takes; each looks at the store when it is asked for.

    Args:
        store: What is asked.
        batch: Touched traces.
        max_bytes: Of text and captured tokens in one part, as ``pipeline_sizes.sql`` counts.
        session_is_episode: Whether all of a session belongs together.
    """
    waiting = [batch]
    while waiting:
        part = waiting.pop()
        core = _core(store, part, by_session=session_is_episode)
        sizes = _sizes(store, part, core.trace_ids)
        too_much = _bytes(sizes) > max_bytes
        if too_much and part.traces.height > 1:
            older, newer = part.halves()
            waiting += [newer, older]
        elif too_much:
            yield _cut(store, part, core, sizes, max_bytes)
        else:
            yield _whole(store, part, core, sizes, max_bytes, by_session=session_is_episode)


def stored_episodes(store: Store, *, trace_ids: Iterable[str] = (), episode_ids: Iterable[str] = ()) -> pl.DataFrame:
    """Newest stored revisions of episodes, by a trace of theirs or by id."""
    found = [store.query("pipeline_stored", episode_ids=[], trace_ids=ids) for ids in slices(trace_ids)]
    found += [store.query("pipeline_stored", episode_ids=ids, trace_ids=[]) for ids in slices(episode_ids)]
    if not found:
        return store.query("pipeline_stored", episode_ids=[], trace_ids=[])
    return pl.concat(found).unique("episode_id", maintain_order=True)


_IDS_PER_QUERY: Final = 2_000
"""Bound parameters travel in the request, whose size ClickHouse limits."""


def slices(ids: Iterable[str]) -> Iterator[list[str]]:
    """Sorted slices small enough for one request; empty ids are left out."""
    ordered = sorted(identity for identity in ids if identity)
    for start in range(0, len(ordered), _IDS_PER_QUERY):
        yield ordered[start : start + _IDS_PER_QUERY]


def _core(store: Store, batch: Batch, *, by_session: bool) -> _Core:
    judged = batch.trace_ids | _companions(store, batch)
    related = _relatives(store, batch, batch.trace_ids if batch.is_named else (), by_session=by_session)
    beyond = related.beyond
    trace_ids = {*judged - beyond, *related.trace_ids}
    stored = stored_episodes(store, trace_ids=trace_ids)
    concerned = set(judged - beyond)
    for members in stored.filter(pl.col("is_deleted") == 0)["trace_ids"].to_list():
        trace_ids.update(members)
        if not judged.isdisjoint(members):
            concerned.update(members)
    return _Core(
        frozenset(trace_ids - beyond),
        frozenset(concerned - beyond),
        stored,
        beyond & batch.trace_ids,
        related.is_crowded,
    )


def _companions(store: Store, batch: Batch) -> set[str]:
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


class _Related(NamedTuple):
    trace_ids: frozenset[str]
    """Those that share an id with some traces."""
    beyond: frozenset[str]
    """Those of these traces that come after the first ``EPISODE_SPANS`` spans of their id."""
    is_crowded: bool
    """Whether an id has so many spans that others than these may come after its first ``EPISODE_SPANS``."""


def _relatives(store: Store, batch: Batch, trace_ids: Collection[str], *, by_session: bool) -> _Related:
    from_ns, until_ns = _bounded(batch.started_ns - RELATED_WINDOW_NS), _bounded(batch.ended_ns + RELATED_WINDOW_NS)
    is_own = batch.trace_ids.issuperset(trace_ids)
    parts = [
        store.query(
            "pipeline_relatives",
            trace_ids=ids,
            given_from_ns=batch.started_ns if is_own else from_ns,
            given_until_ns=batch.ended_ns if is_own else until_ns,
            from_ns=from_ns,
            until_ns=until_ns,
            by_session=by_session,
            max_spans=EPISODE_SPANS,
        )
        for ids in slices(trace_ids)
    ]
    spans = {str(trace_id): int(so_far) for part in parts for trace_id, so_far in part.iter_rows()}
    beyond = frozenset(trace_id for trace_id, so_far in spans.items() if so_far > EPISODE_SPANS)
    is_crowded = max(spans.values(), default=0) > EPISODE_SPANS // 2
    return _Related(frozenset(spans) - beyond, beyond, is_crowded)


def _sizes(store: Store, batch: Batch, trace_ids: frozenset[str]) -> pl.DataFrame:
    """Spans, bytes and times of traces, the earliest first. Where the batch's own lie in time is known."""
    own, others = trace_ids & batch.trace_ids, trace_ids - batch.trace_ids
    found = [
        store.query("pipeline_sizes", trace_ids=ids, from_ns=from_ns, until_ns=until_ns)
        for wanted, from_ns, until_ns in ((own, batch.started_ns, batch.ended_ns), (others, 0, FOREVER_NS))
        for ids in slices(wanted)
    ]
    return pl.concat(found).sort("started_ns", "trace_id") if found else _no_sizes(store)


def _no_sizes(store: Store) -> pl.DataFrame:
    return store.query("pipeline_sizes", trace_ids=[], from_ns=0, until_ns=0)


def _bytes(sizes: pl.DataFrame) -> int:
    return int(sizes["bytes"].sum()) + _SPAN_BYTES * int(sizes["spans"].sum())


def _whole(
    store: Store, batch: Batch, core: _Core, sizes: pl.DataFrame, max_bytes: int, *, by_session: bool
) -> Closure:
    callers = _callers(sizes.filter(pl.col("trace_id").is_in(sorted(core.concerned))))
    candidates = _near(store, batch, callers, core.trace_ids | core.beyond)
    if core.is_crowded:
        beyond = _relatives(store, batch, candidates, by_session=by_session).beyond
        candidates = [trace_id for trace_id in candidates if trace_id not in beyond]
    near, stored, near_sizes = _neighbours(store, batch, core, candidates, max_bytes - _bytes(sizes))
    times = pl.concat([sizes, near_sizes])
    return Closure(
        batch=batch,
        trace_ids=core.trace_ids | near,
        from_ns=int(times["started_ns"].min() or 0),  # type: ignore[arg-type]
        until_ns=int(times["ended_ns"].max() or 0),  # type: ignore[arg-type]
        concerned=_concerned(core.concerned, stored),
        stored=pl.concat([core.stored, stored]).unique("episode_id", maintain_order=True),
        rejected=_rejected(_spans_of(batch, core.beyond)),
    )


def _concerned(concerned: frozenset[str], stored: pl.DataFrame) -> frozenset[str]:
    live = stored.filter(pl.col("is_deleted") == 0)["trace_ids"].to_list()
    return concerned.union(*(members for members in live if not concerned.isdisjoint(members)))


def _cut(store: Store, batch: Batch, core: _Core, sizes: pl.DataFrame, max_bytes: int) -> Closure:
    """One trace whose episode is too large: as much of it as fits, the earliest first."""
    (own,) = batch.trace_ids
    so_far = (sizes["bytes"] + _SPAN_BYTES * sizes["spans"]).cum_sum()
    kept = sizes.filter(so_far <= max_bytes)
    until_ns, rejected = FOREVER_NS, 0
    if kept.is_empty():
        kept = sizes[:1]
        head = store.query(
            "pipeline_head",
            trace_id=str(kept["trace_id"][0]),
            from_ns=int(kept["started_ns"][0]),
            until_ns=int(kept["ended_ns"][0]),
            max_bytes=max_bytes,
        ).row(0, named=True)
        until_ns, rejected = int(head["until_ns"]), int(head["all_spans"]) - int(head["spans"])
    trace_ids = frozenset(kept["trace_id"].to_list())
    if own not in trace_ids:
        rejected = _spans_of(batch, batch.trace_ids)
    return Closure(
        batch=batch,
        trace_ids=trace_ids if own in trace_ids else frozenset(),
        from_ns=int(kept["started_ns"][0]),
        until_ns=until_ns,
        concerned=core.concerned & trace_ids,
        stored=core.stored,
        rejected=_rejected(rejected),
    )


def _spans_of(batch: Batch, trace_ids: frozenset[str]) -> int:
    return int(batch.traces.filter(pl.col("trace_id").is_in(sorted(trace_ids)))["spans"].sum())


def _rejected(spans: int) -> dict[str, int]:
    return {TOO_LARGE: spans} if spans else {}


def _neighbours(
    store: Store, batch: Batch, core: _Core, near: Sequence[str], room_bytes: int
) -> tuple[frozenset[str], pl.DataFrame, pl.DataFrame]:
    """(traces that may continue or be continued by the batch's, with whole stored episodes; these; their sizes)."""
    stored = stored_episodes(store, trace_ids=near)
    episode_of = {
        str(trace_id): (str(episode_id), [str(member) for member in members])
        for episode_id, members in stored.filter(pl.col("is_deleted") == 0)
        .select("episode_id", "trace_ids")
        .iter_rows()
        for trace_id in members
    }
    wanted = frozenset(member for trace_id in near for member in episode_of.get(trace_id, ("", [trace_id]))[1])
    sizes = _sizes(store, batch, wanted - core.trace_ids)
    costs = {
        str(trace_id): int(text) + _SPAN_BYTES * int(spans)
        for trace_id, text, spans in sizes.select("trace_id", "bytes", "spans").iter_rows()
    }
    taken: set[str] = set()
    for trace_id in near:
        members = [member for member in episode_of.get(trace_id, ("", [trace_id]))[1] if member not in taken]
        cost = sum(costs.get(member, 0) for member in members)
        if cost <= room_bytes:
            room_bytes -= cost
            taken.update(members)
    loaded = taken | core.trace_ids
    left_out = [episode for trace_id, (episode, _) in episode_of.items() if trace_id not in loaded]
    return (
        frozenset(taken),
        stored.filter(~pl.col("episode_id").is_in(left_out)),
        sizes.filter(pl.col("trace_id").is_in(sorted(taken))),
    )


class _Callers(NamedTuple):
    """Who makes the model calls of some traces that do not name their episode themselves."""

    services: frozenset[str]
    """Of calls that may continue those of other traces, or whose service has several scopes that record calls."""
    scopes: Mapping[str, str]
    """Other services, all of whose traces are held by one episode id each → the one scope that records their calls:
    all that another trace may know of such a call is what another scope recorded of it."""


def _callers(sizes: pl.DataFrame) -> _Callers:
    bare: set[str] = set()
    scopes: dict[str, str] = {}
    for callers, is_held in sizes.select("callers", "is_held").iter_rows():
        for service, scope in (caller.values() for caller in callers):
            if not is_held or scopes.setdefault(service, scope) != scope:
                bare.add(service)
    return _Callers(frozenset(bare), {service: scope for service, scope in scopes.items() if service not in bare})


def _near(store: Store, batch: Batch, callers: _Callers, known: frozenset[str]) -> list[str]:
    """Traces near in time that are not known yet, the nearest first."""
    if not (callers.services or callers.scopes):
        return []
    found = store.query(
        "pipeline_neighbours",
        services=sorted(callers.services),
        held_services=sorted(callers.scopes),
        held_scopes=[callers.scopes[service] for service in sorted(callers.scopes)],
        from_ns=batch.started_ns,
        until_ns=batch.ended_ns,
        window_ns=STITCH_WINDOW_NS,
        max_traces=batch.traces.height + MAX_NEIGHBOURS,
    )
    return [str(trace_id) for trace_id in found["trace_id"] if trace_id not in known]


def _bounded(moment_ns: int) -> int:
    """Nanoseconds that a DateTime64(9) can hold."""
    return min(max(moment_ns, 0), FOREVER_NS)
