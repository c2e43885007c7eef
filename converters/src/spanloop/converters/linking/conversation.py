"""Traces that carry one conversation id are one episode as far as their histories agree.

Invariant: episodes that the app named itself are left alone, and a trace joins at most one episode before it. The later
trace must hold an answer of the earlier one, or begin as it did and go on. A history without the answer is another
conversation: programs use one id for a whole process, or a constant. An input that is visibly a part of a prompt (no
content, no system prompt any more, more tokens than its text explains) belongs to the trace before it. An id that is
not unique by construction joins only what the same service and scope recorded within a short time.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from ..spans import Span, SpanKind
from .base import LONGEST_NS, IsUnique, source
from .continuation import continues
from .sweep import SpanKey
from .union import UnionFind

_MOST_CANDIDATES: Final = 8
"""So many earlier traces are compared with a later one by content."""

_FIRST_CALLS: Final = 3
"""So many calls of a trace are looked at for an earlier answer: calls for a title or a check may come first."""

_SHORTEST_QUOTE: Final = 16
"""Characters of an answer that counts as quoted within a longer text."""


class Conversations(NamedTuple):
    """Initial groups that conversation ids join, and those that they do not."""

    joined: list[tuple[str, str]]
    """Pairs that belong to one episode."""
    open: dict[tuple[str, str], str]
    """Pairs that one id names, without evidence that they belong to one episode → the id."""


Traces = Mapping[str, Sequence[Span]]
"""Home → its model calls, by start."""


def conversations(
    spans: Sequence[Span],
    home: Mapping[SpanKey, str],
    is_unique: IsUnique,
    sets: UnionFind,
    *,
    session_is_episode: bool,
) -> Conversations:
    """Find the homes that conversation ids join.

    Args:
        spans: In the order of start and id.
        home: Span key → home.
        is_unique: Whether an id names one thing in the whole store.
        sets: The homes that continuations have joined.
        session_is_episode: Whether ``session.id`` joins traces, whatever the id looks like.
    """
    joins = Conversations([], {})
    identified = spans if session_is_episode else [span for span in spans if span.conversation_id]
    in_traces = [span for span in identified if home[span.key].startswith("t:")]
    named = _groups_by_id((span.service_name, span.conversation_id, home[span.key]) for span in in_traces)
    sessions = _groups_by_id(
        (span.service_name, span.session_id, home[span.key]) for span in in_traces if session_is_episode
    )
    if not named and not sessions:
        return joins
    traces = _traces(
        spans, home, {home_id for group_ids in (*named.values(), *sessions.values()) for home_id in group_ids}
    )
    for (_, identifier), group_ids in named.items():
        for one, other, is_joined in _pairs(list(group_ids), traces, sets, is_unique=is_unique(identifier)):
            if is_joined:
                joins.joined.append((one, other))
            else:
                joins.open[one, other] = identifier
    for group_ids in sessions.values():
        joins.joined.extend(_until_it_starts_over(group_ids, traces))
    return joins


def identities(spans: Iterable[Span], home: Mapping[SpanKey, str], is_unique: IsUnique) -> dict[str, str]:
    """Home → the unique conversation id of its spans; homes with none or several are absent."""
    ids: dict[str, str] = {}
    for span in spans:
        identity = span.conversation_id
        if identity and is_unique(identity):
            home_id = home[span.key]
            ids[home_id] = identity if ids.get(home_id, identity) == identity else ""
    return {home_id: identity for home_id, identity in ids.items() if identity}


def _groups_by_id(named: Iterable[tuple[str, str, str]]) -> dict[tuple[str, str], dict[str, None]]:
    """(service, id) → homes, in the order of their first spans, where there are several."""
    group_ids: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)
    for service, identifier, home_id in named:
        if identifier:
            group_ids[service, identifier][home_id] = None
    return {name: members for name, members in group_ids.items() if len(members) > 1}


def _traces(spans: Iterable[Span], home: Mapping[SpanKey, str], joinable: set[str]) -> Traces:
    traces: dict[str, list[Span]] = defaultdict(list)
    for span in spans:
        if span.kind is SpanKind.LLM and home[span.key] in joinable:
            traces[home[span.key]].append(span)
    return traces


def _pairs(
    group_ids: Sequence[str], traces: Traces, sets: UnionFind, *, is_unique: bool
) -> Iterator[tuple[str, str, bool]]:
    """Triples of a home, a later one with the same id, and whether the later one belongs to its episode."""
    earlier = _Earlier()
    calling = [home_id for home_id in group_ids if home_id in traces]
    for home_id in group_ids:
        calls = traces.get(home_id)
        if calls is None:
            before = earlier.newest or next(iter(calling), "")
            if before:
                yield before, home_id, is_unique
            continue
        if earlier.newest and sets.find(home_id) not in earlier.sets:
            before = earlier.agreeing(calls) if is_unique else earlier.repeated(calls)
            yield before or earlier.newest, home_id, bool(before)
        earlier.add(home_id, calls, sets.find(home_id))


class _Earlier:
    """The traces of one conversation id so far."""

    def __init__(self) -> None:
        self.newest = ""
        self.sets: set[str] = set()
        self._traces: list[tuple[str, Sequence[Span]]] = []
        self._by_answer: dict[str, str] = {}
        """Text or tool call id of an answer → the newest home that gave it."""

    def add(self, home: str, calls: Sequence[Span], member_of: str) -> None:
        self.newest = home
        self.sets.add(member_of)
        self._traces.append((home, calls))
        self._by_answer.update(dict.fromkeys(_answers(calls), home))

    def agreeing(self, calls: Sequence[Span]) -> str:
        """The home whose answer the calls hold, else that they repeat, else of which they are a visible part."""
        written: set[tuple[str, ...]] = set()
        for call in calls[:_FIRST_CALLS]:
            for message in reversed([message for message in call.input if message.content not in written]):
                texts = (message.text.strip(), *(response.content.strip() for response in message.tool_responses))
                ids = (request.id for request in message.tool_calls)
                home = next((self._by_answer[key] for key in (*texts, *ids) if key and key in self._by_answer), "")
                if home:
                    return home
            written.update(message.content for message in call.output)
        newest_first = self._traces[: -_MOST_CANDIDATES - 1 : -1]
        for home, before in newest_first:
            if _begins_alike(before[0], calls[0]) or _is_quoted(before[-1], calls[:_FIRST_CALLS]):
                return home
        home, before = newest_first[0]
        return home if _is_part(before, calls[0]) else ""

    def repeated(self, calls: Sequence[Span]) -> str:
        """The newest home, near in time and of the same source, that the calls begin like."""
        for home, before in self._traces[: -_MOST_CANDIDATES - 1 : -1]:
            is_near = calls[0].start_ns - max(call.end_ns for call in before) < LONGEST_NS
            if is_near and source(before[0]) == source(calls[0]) and _begins_alike(before[0], calls[0]):
                return home
        return ""


def _answers(calls: Iterable[Span]) -> Iterator[str]:
    for call in calls:
        for message in call.output:
            yield message.text.strip()
            yield from (request.id for request in message.tool_calls)


def _begins_alike(first: Span, later: Span) -> bool:
    return continues(first, later).repeats_input


def _is_quoted(before: Span, calls: Iterable[Span]) -> bool:
    """Whether a message holds the last answer of an earlier trace among other words."""
    text = before.output[0].text.strip() if before.output else ""
    return len(text) >= _SHORTEST_QUOTE and any(text in message.text for call in calls for message in call.input)


def _is_part(before: Sequence[Span], later: Span) -> bool:
    """Whether the input of ``later`` is visibly not the whole prompt, so that it may follow an earlier trace."""
    last = max(before, key=lambda call: call.end_ns)
    if last.end_ns > later.start_ns or any(message.role == "assistant" for message in later.input):
        return False
    roles = {message.role for message in later.input}
    if "user" not in roles:
        return True
    if "system" not in roles and any(message.role == "system" for message in before[0].input):
        return True
    grown = last.input_tokens + last.output_tokens
    return 0 < last.input_tokens < grown <= later.input_tokens and _characters(later) < _characters(last)


def _characters(call: Span) -> int:
    return sum(len(message.json) for message in call.input)


def _until_it_starts_over(group_ids: Mapping[str, None], traces: Traces) -> Iterator[tuple[str, str]]:
    """Join the homes of one session, up to one that begins with exactly the input of the first one."""
    first, began = "", 0
    for home_id in group_ids:
        start = traces[home_id][0].history.number if home_id in traces else 0
        if not first or (began and start == began):
            first, began = home_id, start
        else:
            began = began or start
            yield first, home_id
