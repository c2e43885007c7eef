"""Erase a trace, a session or a user: the spans and all data derived from them.

Invariant: the rows by which other rows are found are erased last, so an interrupted call can be repeated. Rows are
erased from the files (mutations), not hidden; ClickHouse removes the old files some minutes later. The next run of the
pipeline converts the remaining traces of an affected episode again.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple, cast

from spanloop.foundation.errors import ConfigurationError
from spanloop.store.store import Store

_IDS_PER_STATEMENT: Final = 2_000
_LONG_STRING_BYTES: Final = 128
"""Length in bytes from which a string's length takes more than one byte in protobuf."""
_HEX_ID: Final = re.compile(r"[0-9a-fA-F]{32}")
_DERIVED_TABLES: Final = (
    "episode_messages",
    "transition_rows",
    "replaced_revisions",
    "pinned_revisions",
    "data_set_episodes",
    "trajectories",
    "failures",
    "failure_summaries",
    "step_summaries",
    "evaluation_episodes",
    "training_samples",
    "attempts",
    "episode_summaries",
    "episodes",
)
"""Tables of derived rows. Episodes are last, because they name the traces that belong together."""


class Forgotten(NamedTuple):
    """Counts and ids of the erased data."""

    trace_ids: tuple[str, ...]
    episode_ids: tuple[str, ...]
    """Episodes whose rows are erased; their remaining traces become new episodes."""
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
    before_responses: Callable[[AbstractSet[str], AbstractSet[str]], None] | None = None,
) -> Forgotten:
    """Erase all data with one of the ids.

    Hold the pipeline's run lease during the call, and drain the spools before: data that arrives later is stored.

    Args:
        store: The store.
        trace_id: One trace.
        session_id: All traces with this ``session.id`` or ``gen_ai.conversation.id``.
        user_id: All traces with this ``user.id`` or ``enduser.id``.
        before: Called with the ids of episodes before they are erased, to erase their data elsewhere, because they
            cannot be found afterwards. An exception from it keeps the episodes.
        before_responses: Called with the ids of responses and those of their traces, as ``before``.

    Raises:
        ConfigurationError: All ids are empty.
        StoreError: ClickHouse rejected a statement or is unreachable; call it again.
    """
    if not (trace_id or session_id or user_id):
        raise ConfigurationError("No data to forget: expected a trace, session or user id.")
    target = {"trace_id": trace_id, "session_id": session_id, "user_id": user_id}
    matches = store.query("store_forget_traces", **target)["trace_id"].to_list()
    traces = sorted({str(match) for match in matches} | ({trace_id} if trace_id else set()))
    counts: dict[str, int] = {"spans": 0, "log_records": 0, "captures": 0, "dead_letters": 0}
    episodes: set[str] = set()
    for part in _chunks(traces):
        for name, count in store.query("store_forget_counts", trace_ids=part).row(0, named=True).items():
            counts[name] += int(count)
        episodes |= _erase(store, part, frozenset(traces), before, before_responses)
        counts["dead_letters"] += _erase_bodies(store, [needle for trace in part for needle in _body_encodings(trace)])
    if session_id or user_id:
        # Data without a trace id.
        if session_id:
            _erase_scores(store, session_id=session_id)
        store.execute("store_forget_logs", trace_ids=[], session_id=session_id, user_id=user_id)
        needles = [needle for text in (session_id, user_id) if text for needle in _body_encodings(text)]
        counts["dead_letters"] += _erase_bodies(store, needles)
    return Forgotten(tuple(traces), tuple(sorted(episodes)), **counts)


def _erase(
    store: Store,
    part: list[str],
    traces: frozenset[str],
    before: Callable[[AbstractSet[str]], None] | None,
    before_responses: Callable[[AbstractSet[str], AbstractSet[str]], None] | None,
) -> set[str]:
    """Erase some of the traces; return the ids of their episodes."""
    derived = cast("dict[str, list[str]]", store.query("store_forget_derived", trace_ids=part).row(0, named=True))
    if before is not None:
        # An episode without an id of the app has its smallest trace id as its id.
        before({*derived["episode_ids"], *part})
    if before_responses is not None:
        before_responses(set(derived["response_ids"]), set(part))
    remaining = set(derived["trace_ids"]) - traces
    for ids in _chunks(remaining):
        store.execute("store_forget_touch", trace_ids=ids)
        store.execute("store_forget_touch_summaries", trace_ids=ids)
    for table in _DERIVED_TABLES:
        for ids in _chunks(derived["episode_ids"]):
            store.execute(f"store_forget_{table}", episode_ids=ids)
    shared: set[str] = set()
    for ids in _chunks(derived["episode_keys"]):
        shared |= set(
            store.query("store_forget_shared_keys", episode_keys=ids, trace_ids=part)["episode_key"].to_list()
        )
    _erase_scores(store, trace_ids=part)
    store.execute("store_forget_judgements", trace_ids=part, episode_ids=[])
    for ids in _chunks(derived["episode_ids"]):
        store.execute("store_forget_judgements", trace_ids=[], episode_ids=ids)
    for ids in _chunks(set(derived["episode_keys"]) - shared):
        _erase_scores(store, episode_keys=ids)
    for ids in _chunks(derived["response_ids"]):
        _erase_scores(store, response_ids=ids)
        store.execute("store_forget_generations", trace_ids=[], response_ids=ids)
        store.execute("store_forget_canary_calls", trace_ids=[], response_ids=ids)
        store.execute("store_forget_shadow_answers", trace_ids=[], response_ids=ids)
    store.execute("store_forget_generations", trace_ids=part, response_ids=[])
    store.execute("store_forget_canary_calls", trace_ids=part, response_ids=[])
    store.execute("store_forget_shadow_answers", trace_ids=part, response_ids=[])
    store.execute("store_forget_dead_letters", trace_ids=part)
    store.execute("store_forget_logs", trace_ids=part, session_id="", user_id="")
    store.execute("store_forget_log_summaries", trace_ids=part)
    store.execute("store_forget_trace_summaries", trace_ids=part)
    store.execute("store_forget_spans", trace_ids=part)
    return set(derived["episode_ids"])


def _erase_bodies(store: Store, needles: Sequence[str]) -> int:
    """Erase dead letters whose ids could not be read and whose body contains one of these byte strings (hex)."""
    count = int(store.query("store_forget_bodies_count", needles=needles).item())
    store.execute("store_forget_bodies", needles=needles)
    return count


def _body_encodings(identity: str) -> Iterator[str]:
    """Yield the encodings of an id in a request body, as hex: JSON string, protobuf string value, bytes of a hex id.

    The plain id is not one of them, because a short id would match most bodies.
    """
    text = identity.encode()
    for spelling in {text, text.upper()}:
        yield (b'"' + spelling + b'"').hex()
    if len(text) < _LONG_STRING_BYTES:
        # The field string_value of AnyValue: tag, length, text.
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


def _chunks(ids: Iterable[str]) -> Iterator[list[str]]:
    ordered = sorted(identity for identity in set(ids) if identity)
    for start in range(0, len(ordered), _IDS_PER_STATEMENT):
        yield ordered[start : start + _IDS_PER_STATEMENT]
