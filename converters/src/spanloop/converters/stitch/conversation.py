"""Traces that carry one conversation id are one episode, unless the conversation starts over.

Invariant: episodes that the app named itself are left alone. A conversation starts over, and the next episode begins,
where a trace's first call has exactly the input with which the conversation began (a thread id that a program reuses).
An id that is not unique by construction, and one that the store contradicts (two runs of one agent under the same id at
the same time: the id of a process), joins traces only where the service and scope are the same, the time between them
is short and the later trace repeats how the earlier one began.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from ..spans import Span, SpanKind
from .base import LONGEST_NS, IsUnique, last_assistant, source
from .sweep import SpanKey


class Conversations(NamedTuple):
    """What conversation ids say about homes."""

    joined: list[tuple[str, str]]
    """Pairs that belong to one episode."""
    open: dict[tuple[str, str], str]
    """Pairs that one id names, without evidence that they belong to one episode → the id."""


class _Trace(NamedTuple):
    """The model calls of one home, as far as they tell of a conversation."""

    first: Span
    end_ns: int

    @property
    def opening(self) -> bytes:
        return self.first.input_chain[-1] if self.first.input_chain else b""


def conversations(
    spans: Sequence[Span], home: Mapping[SpanKey, str], is_unique: IsUnique, *, session_is_episode: bool
) -> Conversations:
    """Find the homes that conversation ids join.

    Args:
        spans: In the order of start and id.
        home: Span key → home.
        is_unique: Whether an id names one thing in the whole store.
        session_is_episode: Whether ``session.id`` joins traces, whatever the id looks like.
    """
    joins = Conversations([], {})
    in_traces = [span for span in spans if home[span.key].startswith("t:")]
    named = _homes_by((span.service_name, span.conversation_id, home[span.key]) for span in in_traces)
    sessions = _homes_by(
        (span.service_name, span.session_id, home[span.key]) for span in in_traces if session_is_episode
    )
    if not named and not sessions:
        return joins
    traces = _traces(in_traces, home)
    for (_, identifier), homes in named.items():
        if is_unique(identifier) and not _run_at_once([traces[own] for own in homes if own in traces]):
            joins.joined.extend(_until_it_starts_over(homes, traces))
            continue
        for one, other in pairwise(homes):
            if one in traces and other in traces and _agree(traces[one], traces[other]):
                joins.joined.append((one, other))
            else:
                joins.open[one, other] = identifier
    for homes in sessions.values():
        joins.joined.extend(_until_it_starts_over(homes, traces))
    return joins


def _homes_by(named: Iterable[tuple[str, str, str]]) -> dict[tuple[str, str], dict[str, None]]:
    """(service, id) → homes, in the order of their first spans."""
    homes: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)
    for service, identifier, own in named:
        if identifier:
            homes[service, identifier][own] = None
    return homes


def _traces(spans: Iterable[Span], home: Mapping[SpanKey, str]) -> dict[str, _Trace]:
    traces: dict[str, _Trace] = {}
    for span in spans:
        if span.kind is SpanKind.LLM:
            known = traces.get(home[span.key], _Trace(span, span.end_ns))
            traces[home[span.key]] = known._replace(end_ns=max(known.end_ns, span.end_ns))
    return traces


def _until_it_starts_over(homes: Mapping[str, None], traces: Mapping[str, _Trace]) -> Iterator[tuple[str, str]]:
    first, began = "", b""
    for own in homes:
        start = traces[own].opening if own in traces else b""
        if not first or (began and start == began):
            first, began = own, start
        else:
            began = began or start
            yield first, own


def _run_at_once(traces: Sequence[_Trace]) -> bool:
    """Whether two traces that begin a conversation of the same agent run at the same time."""
    ends: dict[tuple[str, ...], int] = {}
    for trace in traces:
        if not trace.first.input or last_assistant(trace.first) is not None:
            continue
        agent = tuple(message.text for message in trace.first.input if message.role == "system")
        if ends.get(agent, trace.first.start_ns) > trace.first.start_ns:
            return True
        ends[agent] = max(ends.get(agent, 0), trace.end_ns)
    return False


def _agree(earlier: _Trace, later: _Trace) -> bool:
    return (
        source(earlier.first) == source(later.first)
        and later.first.start_ns - earlier.end_ns < LONGEST_NS
        and len(later.first.input) > len(earlier.first.input)
        and earlier.opening in later.first.input_chain
    )
