"""Spans → episodes. Rules are small modules, one line each in the registry; ``stitch`` applies them.

Invariant: the same set of spans gives the same episodes in any order, in near-linear time, without recursion, and
no two episodes that the app named apart are ever joined. A session id joins nothing by itself: a session often
holds many attempts; ``Options.session_is_episode`` says that it does not.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Final, NamedTuple

from ..spans import Rejected, Span, SpanKind
from .conversation import conversations
from .homes import homes, inherit
from .message_prefix import MESSAGE_PREFIX
from .sub_agent import sub_agents
from .sweep import Continuations, SpanKey, roots_first
from .tool_call import TOOL_CALL, TOOL_CALL_AND_PREFIX
from .union import UnionFind
from .untold import UNTOLD

RULES: Final = (TOOL_CALL_AND_PREFIX, TOOL_CALL, MESSAGE_PREFIX, UNTOLD)
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


class Stitched(NamedTuple):
    """Episodes by id, who continues whom, and the spans of traces without a model call."""

    groups: list[Group]
    parents: dict[SpanKey, SpanKey]
    rejected: list[Rejected]


def stitch(spans: Sequence[Span], *, session_is_episode: bool = False) -> Stitched:
    """Group ``spans`` (in the order of start and id) into episodes."""
    home = homes(spans)
    calls = [span for span in spans if span.kind is SpanKind.LLM]
    found = Continuations()

    def within_a_home(span: Span) -> str:
        return home[span.key]

    def across_traces(span: Span) -> str:
        return "*" if home[span.key].startswith("t:") else ""

    for rule in RULES:
        found.match(rule, calls, (within_a_home, across_traces))
    sets = UnionFind(home.values())
    for child, parent in found.parents.items():
        if home[child] != home[parent]:
            sets.union(home[child], home[parent])
    for root, asker in sub_agents([call for call in calls if home[call.key].startswith("t:")], found.parents):
        sets.union(home[root.key], home[asker.key])
    for one, other in conversations(spans, home, session_is_episode=session_is_episode):
        sets.union(one, other)
    return _groups(spans, home, sets, found.parents)


def _groups(
    spans: Sequence[Span], home: dict[SpanKey, str], sets: UnionFind, parents: dict[SpanKey, SpanKey]
) -> Stitched:
    root_of = {own: sets.find(own) for own in set(home.values())}
    members: dict[str, list[Span]] = defaultdict(list)
    for span in spans:
        members[root_of[home[span.key]]].append(span)
    groups: list[Group] = []
    rejected: list[Rejected] = []
    for found in members.values():
        calls = [span for span in found if span.kind is SpanKind.LLM]
        if not calls:
            rejected += [
                Rejected(span.trace_id, span.span_id, "no_model_call", "its trace holds no model call so far")
                for span in found
            ]
            continue
        smallest = min({home[span.key] for span in found})
        kind, _, name = smallest.partition(":")
        groups.append(
            Group(
                episode_id=name,
                episode_key=name if kind == "e" else "",
                calls=roots_first(calls, parents),
                context=[span for span in found if span.kind is not SpanKind.LLM],
            )
        )
    return Stitched(sorted(groups), parents, rejected)


__all__ = ["RULES", "Group", "SpanKey", "Stitched", "inherit", "stitch"]
