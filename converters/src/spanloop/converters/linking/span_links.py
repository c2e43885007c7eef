"""Span links join the trace that carries them with the trace that they name.

Invariant: a link joins two traces when it names a stored span and no identity contradicts it: two episodes that the app
named, two task ids, two conversation ids (unless the link names a tool call, behind which another agent may have a
conversation of its own), or two beginnings of one conversation. A trace that links to several others is a consumer of
their messages and joins none of them. A trace without a model call joins no two traces with one, and links of equal
attempts to one span join none of them.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import polars as pl

from .. import frames
from ..spans import Span, SpanKind
from .sweep import SpanKey
from .union import UnionFind

Links = Mapping[SpanKey, frozenset[SpanKey]]
"""Span → the spans that it links to."""

NO_LINKS: Final[Links] = {}

MAX_LINKED_TRACES: Final = 8
"""Most traces that a trace may link to; one with more is a consumer of messages. The pipeline loads no more."""


def span_links(spans: pl.DataFrame) -> Links:
    """Read the links of ``spans``, rows of ``otel_traces``, less those of evaluations, which name what they judge."""
    if not {"Links.TraceId", "Links.SpanId"} <= set(spans.columns):
        return NO_LINKS
    linked = spans.filter(pl.col("Links.TraceId").list.len() > 0)
    if linked.is_empty():
        return NO_LINKS
    key = pl.element().struct.field("key")
    judges = pl.col("SpanAttributes").list.eval(key.str.starts_with("gen_ai.evaluation.")).list.any()
    rows = frames.conform(linked, frames.LINKS).filter(~judges.fill_null(value=False)).drop("SpanAttributes")
    links: dict[SpanKey, frozenset[SpanKey]] = {}
    for trace_id, span_id, trace_ids, span_ids in rows.iter_rows():
        targets = zip(trace_ids or (), span_ids or (), strict=False)
        links[trace_id, span_id] = links.get((trace_id, span_id), frozenset()) | {
            (trace, span) for trace, span in targets if trace and span and trace != trace_id
        }
    return links


def kept_links(links: Links, kept: Mapping[SpanKey, SpanKey]) -> Links:
    """Return ``links`` with each duplicate replaced by the span that is kept for it."""
    if not links or not kept:
        return links
    kept_targets: dict[SpanKey, frozenset[SpanKey]] = defaultdict(frozenset)
    for key, targets in links.items():
        kept_targets[kept.get(key, key)] |= {kept.get(target, target) for target in targets}
    return kept_targets


class _Link(NamedTuple):
    """A link between two sets of homes."""

    source: str
    target: str
    span: Span
    """The span that the link names."""


class LinkedTraces:
    """Decides which links join.

    Args:
        spans: All spans, in the order of start and id.
        home: Span key → home.
        conversation_of: Home → unique conversation id.
        sets: The homes that other evidence has joined.
    """

    def __init__(
        self,
        spans: Sequence[Span],
        home: Mapping[SpanKey, str],
        conversation_of: Mapping[str, str],
        sets: UnionFind,
    ) -> None:
        self._home, self._sets = home, sets
        self._known = {span.key: span for span in spans}
        self._first_calls: dict[str, Span] = {}
        self._identities: dict[str, set[str]] = defaultdict(set)
        """Set of homes → its named episodes and task ids, each as one text."""
        self._conversations: dict[str, set[str]] = defaultdict(set)
        for span in spans:
            members = sets.find(home[span.key])
            if span.kind is SpanKind.LLM:
                self._first_calls.setdefault(members, span)
            if span.task_id:
                self._identities[members].add(f"task {span.task_id}")
        for home_id in dict.fromkeys(home.values()):
            members = sets.find(home_id)
            if home_id.startswith("e:"):
                self._identities[members].add(f"episode {home_id}")
            if home_id in conversation_of:
                self._conversations[members].add(conversation_of[home_id])

    def joins(self, links: Links) -> Iterator[tuple[str, str]]:
        """Yield pairs of homes that belong to one episode; the caller joins each before it asks for the next."""
        for link in self._single(links):
            source, target = self._sets.find(link.source), self._sets.find(link.target)
            if source == target or self._contradict(source, target, link.span):
                continue
            yield source, target
            joined = self._sets.find(source)
            for facts in (self._identities, self._conversations):
                facts[joined] = facts[source] | facts[target]

    def _single(self, links: Links) -> list[_Link]:
        """The links of sets that link to one other set, where equal attempts do not share the span."""
        by_target: dict[str, dict[str, _Link | None]] = defaultdict(dict)
        traces: dict[str, set[str]] = defaultdict(set)
        for key in sorted(links.keys() & self._known.keys()):
            source = self._sets.find(self._home[key])
            for other in sorted(links[key]):
                traces[source].add(other[0])
                # A trace that is not stored here is one of several all the same.
                named = self._known.get(other)
                target = self._sets.find(self._home[other]) if named else f"t:{other[0]}"
                if source != target:
                    by_target[source].setdefault(target, _Link(source, target, named) if named else None)
        single = [
            link
            for source, targets in by_target.items()
            if len(targets) == 1 and len(traces[source]) <= MAX_LINKED_TRACES
            for link in targets.values()
            if link is not None
        ]
        alike: dict[tuple[SpanKey | str, object], list[_Link]] = defaultdict(list)
        for link in single:
            alike[self._shared_place(link), self._begins(link)].append(link)
        return [same[0] for same in alike.values() if len(same) == 1]

    def _shared_place(self, link: _Link) -> SpanKey | str:
        """Return the place to which only one of several equal sets may link."""
        return link.span.key if link.target in self._first_calls else link.target

    def _begins(self, link: _Link) -> object:
        """The input that a set begins with; sets without a call, and those that link to one, do not differ in it."""
        first = self._first_calls.get(link.source)
        if first is None:
            return link.span.span_id, link.source
        return first.history.number if link.target in self._first_calls else 0

    def _contradict(self, source: str, target: str, named: Span) -> bool:
        one, other = self._identities[source], self._identities[target]
        if any(_differ(one, other, kind) for kind in ("episode ", "task ")):
            return True
        conversations = self._conversations[source], self._conversations[target]
        if named.kind is not SpanKind.TOOL and all(conversations) and conversations[0].isdisjoint(conversations[1]):
            return True
        calls = self._first_calls.get(source), self._first_calls.get(target)
        return bool(calls[0] and calls[1] and calls[0].input and calls[0].history.number == calls[1].history.number)


def _differ(one: Iterable[str], other: Iterable[str], kind: str) -> bool:
    ids = [{text for text in side if text.startswith(kind)} for side in (one, other)]
    return all(ids) and ids[0] != ids[1]
