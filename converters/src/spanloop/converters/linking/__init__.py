"""Spans → episodes. Rules are small modules, one line each in the registry; ``stitch`` applies them.

Invariant: the same set of spans gives the same episodes in any order, in near-linear time, without recursion, and
no two episodes that the app named apart are ever joined. A session id joins nothing by itself: a session often
holds many attempts; ``Options.session_is_episode`` says that it does not.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from ..spans import Rejected, Span, SpanKind
from .base import Call
from .continuation import Evidence
from .conversation import conversations, identities
from .identity import contradicted_ids, is_unique
from .initial_grouping import inherit, initial_groups
from .inserted_results import inserted_results
from .message_prefix import MESSAGE_PREFIX
from .partial_history import PARTIAL_HISTORY
from .span_links import NO_LINKS, LinkedTraces, Links
from .sub_agent import sub_agents
from .sweep import Continuations, SpanKey, roots_first
from .tool_call import TOOL_CALL, TOOL_CALL_AND_PREFIX, UNRECORDED_TOOL_CALL
from .union import UnionFind

RULES: Final = (TOOL_CALL_AND_PREFIX, TOOL_CALL, MESSAGE_PREFIX, UNRECORDED_TOOL_CALL, PARTIAL_HISTORY)
"""In order of precedence: what an earlier rule has decided, a later one does not touch."""


class Group(NamedTuple):
    """The spans of one episode."""

    episode_id: str
    episode_key: str
    calls: list[Span]
    """Model calls, each after the one that it continues."""
    context: list[Span]
    """All other spans, by start."""

    @property
    def spans(self) -> list[Span]:
        """Every span of the episode."""
        return [*self.calls, *self.context]


class OpenJoin(NamedTuple):
    """Two traces that an id names both, and that stay two episodes for want of other evidence."""

    trace_id: str
    span_id: str
    """The call that answers the id; empty where the id is a conversation's."""
    other_trace_id: str
    detail: str


class Stitched(NamedTuple):
    """Episodes by id, who continues whom, and the spans of traces without a model call."""

    groups: list[Group]
    parents: dict[SpanKey, SpanKey]
    evidence: dict[SpanKey, Evidence]
    """Call → why it continues its parent."""
    rejected: list[Rejected]
    open_joins: list[OpenJoin]


def stitch(spans: Sequence[Span], links: Links = NO_LINKS, *, session_is_episode: bool = False) -> Stitched:
    """Group ``spans`` (in the order of start and id) into episodes.

    Args:
        spans: In the order of start and id.
        links: Span → the spans of other traces that it links to.
        session_is_episode: Whether ``session.id`` joins traces.
    """
    home = initial_groups(spans)
    calls = [span for span in spans if span.kind is SpanKind.LLM]
    contradicted = contradicted_ids(calls)

    def is_identity(identifier: str) -> bool:
        return identifier not in contradicted and is_unique(identifier)

    conversation_of = identities(spans, home, is_unique)
    linked = [Call(call, home[call.key], conversation_of.get(home[call.key], "")) for call in calls]
    continuations = Continuations(linked, is_identity, inserted_results(calls, spans, home))
    for rule in RULES:
        continuations.match(rule)
    sets = UnionFind(home.values())
    for child, parent in continuations.parents.items():
        if home[child] != home[parent]:
            sets.union(home[child], home[parent])
    traced = [call for call in linked if call.is_traced]
    for root, caller in list(sub_agents(traced, continuations.parents, lambda key: sets.find(home[key]))):
        sets.union(home[root.key], home[caller.key])
    named = conversations(spans, home, is_unique, sets, session_is_episode=session_is_episode)
    for one, other in named.joined:
        sets.union(one, other)
    for one, other in LinkedTraces(spans, home, conversation_of, sets).joins(links) if links else ():
        sets.union(one, other)
    open_joins = [
        OpenJoin(other[2:], "", one[2:], f"both have the conversation id {identifier!r}, which may not be unique")
        for (one, other), identifier in named.open.items()
        if sets.find(one) != sets.find(other)
    ]
    open_joins += _open_answers(traced, sets, continuations.parents)
    stitched = _groups(spans, home, sets, continuations.parents)
    return stitched._replace(evidence=continuations.evidence, open_joins=sorted(open_joins))


def _open_answers(calls: Sequence[Call], sets: UnionFind, parents: dict[SpanKey, SpanKey]) -> Iterator[OpenJoin]:
    """Calls that continue no other one though the id that they answer was asked for in another trace before."""
    emitted_by: dict[str, Call] = {}
    for call in calls:
        for identity in call.answered if call.key not in parents else ():
            other = emitted_by.get(identity)
            if other is not None and sets.find(other.home) != sets.find(call.home):
                detail = f"both have a tool call with the id {identity!r}, which may not be unique"
                yield OpenJoin(call.span.trace_id, call.span.span_id, other.span.trace_id, detail)
                break
        for request in call.emitted:
            emitted_by[request.id] = call


def _groups(
    spans: Sequence[Span], home: dict[SpanKey, str], sets: UnionFind, parents: dict[SpanKey, SpanKey]
) -> Stitched:
    first_of_set: dict[str, str] = {}
    names = sorted(set(home.values()))
    episode_of = {name: first_of_set.setdefault(sets.find(name), name) for name in names}
    calls: dict[str, list[Span]] = defaultdict(list)
    context: dict[str, list[Span]] = defaultdict(list)
    for span in spans:
        (calls if span.kind is SpanKind.LLM else context)[episode_of[home[span.key]]].append(span)
    groups = [
        Group(name[2:], name[2:] if name.startswith("e:") else "", roots_first(members, parents), context[name])
        for name, members in calls.items()
    ]
    rejected = [
        Rejected(span.trace_id, span.span_id, "no_model_call", "its trace holds no model call so far")
        for name, members in context.items()
        if name not in calls
        for span in members
    ]
    return Stitched(sorted(groups), parents, {}, rejected, [])


__all__ = ["RULES", "Group", "OpenJoin", "SpanKey", "Stitched", "inherit", "stitch"]
