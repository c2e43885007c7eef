"""Erasing a trace, a session or a user: the spans, and whatever was made of them.

Invariant: what is erased last is what the rest is found by, so a call that was interrupted is simply made again. Files
are rewritten without what is erased, nothing is merely hidden; ClickHouse removes the old files some minutes later.
What was one episode together with other traces is made anew of those that remain, at the pipeline's next run.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple, cast

from spanloop.semconv.errors import ConfigurationError
from spanloop.store.store import Store

_IDS_PER_STATEMENT: Final = 2_000
_LONG: Final = 128
"""Bytes of a text from which on its length takes more than one byte in protobuf."""
_HEX_ID: Final = re.compile(r"[0-9a-fA-F]{32}")
_DERIVED: Final = (
    "transitions",
    "trajectories",
    "failures",
    "failure_summaries",
    "evaluation_episodes",
    "episode_summaries",
    "episodes",
)
"""Episodes last: they say which traces belong together."""


class Forgotten(NamedTuple):
    """What was erased."""

    trace_ids: tuple[str, ...]
    episode_ids: tuple[str, ...]
    """Episodes whose rows are gone; what remains of them becomes new ones."""
    spans: int
    log_records: int
    captures: int
    dead_letters: int


def forget(
    store: Store,
    *,
    trace_id: str = "",
    session_id: str = "",
    user_id: str = "",
    before: Callable[[AbstractSet[str]], None] | None = None,
) -> Forgotten:
    """Erase whatever carries one of the ids.

    Hold the pipeline's turn meanwhile, and let what waits in a spool arrive first: what comes in later is stored.

    Args:
        store: Where from.
        trace_id: One trace.
        session_id: All traces with this ``session.id`` or ``gen_ai.conversation.id``.
        user_id: All traces with this ``user.id`` or ``enduser.id``.
        before: Called with ids of episodes that are about to be erased, to erase what is kept of them elsewhere: they
            are not found again. What it raises keeps them.

    Raises:
        ConfigurationError: No id.
        StoreError: ClickHouse refused or is out of reach; call it again.
    """
    if not (trace_id or session_id or user_id):
        raise ConfigurationError("Nobody to forget: expected a trace, session or user id.")
    target = {"trace_id": trace_id, "session_id": session_id, "user_id": user_id}
    found = store.query("store_forget_traces", **target)["trace_id"].to_list()
    traces = sorted({str(each) for each in found} | ({trace_id} if trace_id else set()))
    counts: dict[str, int] = {"spans": 0, "log_records": 0, "captures": 0, "dead_letters": 0}
    episodes: set[str] = set()
    for part in _parts(traces):
        for name, count in store.query("store_forget_counts", trace_ids=part).row(0, named=True).items():
            counts[name] += int(count)
        episodes |= _erase(store, part, frozenset(traces), before)
        counts["dead_letters"] += _erase_bodies(store, [each for trace in part for each in _in_bodies(trace)])
    if session_id or user_id:
        # What no trace leads to.
        if session_id:
            _erase_scores(store, session_id=session_id)
        store.execute("store_forget_logs", trace_ids=[], session_id=session_id, user_id=user_id)
        needles = [each for text in (session_id, user_id) if text for each in _in_bodies(text)]
        counts["dead_letters"] += _erase_bodies(store, needles)
    return Forgotten(tuple(traces), tuple(sorted(episodes)), **counts)


def _erase(
    store: Store, part: list[str], traces: frozenset[str], before: Callable[[AbstractSet[str]], None] | None
) -> set[str]:
    """Erase some of the traces; returns the episodes that they were part of."""
    derived = cast("dict[str, list[str]]", store.query("store_forget_derived", trace_ids=part).row(0, named=True))
    if before is not None:
        # An episode without an id of the app's own is called by its smallest trace id.
        before({*derived["episode_ids"], *part})
    rest = set(derived["trace_ids"]) - traces
    for ids in _parts(rest):
        store.execute("store_forget_touch", trace_ids=ids)
        store.execute("store_forget_touch_summaries", trace_ids=ids)
    for table in _DERIVED:
        for ids in _parts(derived["episode_ids"]):
            store.execute(f"store_forget_{table}", episode_ids=ids)
    shared: set[str] = set()
    for ids in _parts(derived["episode_keys"]):
        shared |= set(
            store.query("store_forget_shared_keys", episode_keys=ids, trace_ids=part)["episode_key"].to_list()
        )
    _erase_scores(store, trace_ids=part)
    for ids in _parts(set(derived["episode_keys"]) - shared):
        _erase_scores(store, episode_keys=ids)
    for ids in _parts(derived["response_ids"]):
        _erase_scores(store, response_ids=ids)
        store.execute("store_forget_generations", trace_ids=[], response_ids=ids)
    store.execute("store_forget_generations", trace_ids=part, response_ids=[])
    store.execute("store_forget_dead_letters", trace_ids=part)
    store.execute("store_forget_logs", trace_ids=part, session_id="", user_id="")
    store.execute("store_forget_log_summaries", trace_ids=part)
    store.execute("store_forget_trace_summaries", trace_ids=part)
    store.execute("store_forget_spans", trace_ids=part)
    return set(derived["episode_ids"])


def _erase_bodies(store: Store, needles: Sequence[str]) -> int:
    """Erase the dead letters that nobody could read ids out of, but that hold one of these."""
    found = int(store.query("store_forget_bodies_count", needles=needles).item())
    store.execute("store_forget_bodies", needles=needles)
    return found


def _in_bodies(identity: str) -> Iterator[str]:
    """How an id stands in a request, as hex: a JSON string, a protobuf string value, and the bytes of a hex id.

    Not as it is: a short one would be found in most bodies.
    """
    text = identity.encode()
    for spelling in {text, text.upper()}:
        yield (b'"' + spelling + b'"').hex()
    if len(text) < _LONG:
        # Of AnyValue the field string_value: its tag, the length, the text.
        yield (b"\x0a" + bytes([len(text)]) + text).hex()
    else:
        yield text.hex()
    if _HEX_ID.fullmatch(identity):
        yield identity


def _erase_scores(
    store: Store,
    *,
    trace_ids: Sequence[str] = (),
    response_ids: Sequence[str] = (),
    episode_keys: Sequence[str] = (),
    session_id: str = "",
) -> None:
    store.execute(
        "store_forget_scores",
        trace_ids=trace_ids,
        response_ids=response_ids,
        episode_keys=episode_keys,
        session_id=session_id,
    )


def _parts(ids: Iterable[str]) -> Iterator[list[str]]:
    ordered = sorted(identity for identity in set(ids) if identity)
    for start in range(0, len(ordered), _IDS_PER_STATEMENT):
        yield ordered[start : start + _IDS_PER_STATEMENT]
