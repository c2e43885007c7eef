"""Correct the times of spans whose process has another clock than the process of their parent.

Invariant: a span starts within its parent, and ends within it where it may have been waited for: where it is no longer
than the parent. So the tree orders the calls of several processes. What fits its parent keeps its time. Siblings of one
service keep their order and distances. This is Jaeger's adjustment of clock skew, without the address of the host.
Within one service, where spans may be detached, only a start before the parent's, or behind the end of a tool's call
that can have been waited for, shows two clocks.
"""

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from ..linking.span_links import Links
from ..spans import Span, SpanKind

SpanKey = tuple[str, str]

_TOLERANCE_NS: Final = 1_000_000
"""Most time by which a span of another service may lie outside of its parent."""

_SERVICE_TOLERANCE_NS: Final = 1_000_000_000
"""Most time by which a span of the same service may; some SDKs round the times of their own."""


def without_clock_skew(spans: Sequence[Span], links: Links) -> Sequence[Span]:
    """Return the spans, in the order of start and id, with corrected start times.

    Args:
        spans: In the order of start and id.
        links: Span → spans of other traces that it links to; a root that links to one tool's call lies within it.
    """
    known = {span.key: span for span in spans}
    pairs = [(span, known.get((span.trace_id, span.parent_span_id))) for span in spans]
    if links:
        linked = (_linked_tool_call(links.get(span.key, frozenset()), known) for span in spans)
        pairs = [(span, parent or other) for (span, parent), other in zip(pairs, linked, strict=True)]
    if not any(parent is not None and _is_outside(span, parent) for span, parent in pairs):
        return spans
    parents = {span.key: parent for span, parent in pairs if parent is not None}
    shifts = {key: shift for key, shift in _shifts(spans, parents).items() if shift}
    if not shifts:
        return spans
    shifted = [
        replace(span, start_ns=span.start_ns + shifts[span.key]) if span.key in shifts else span for span in spans
    ]
    return sorted(shifted, key=lambda span: (span.start_ns, span.key))


def _linked_tool_call(targets: frozenset[SpanKey], known: Mapping[SpanKey, Span]) -> Span | None:
    calls = [known[target] for target in targets if target in known]
    return calls[0] if len(targets) == len(calls) == 1 and calls[0].kind is SpanKind.TOOL else None


def _is_outside(span: Span, parent: Span) -> bool:
    offset_ns = span.start_ns - parent.start_ns
    if span.service_name == parent.service_name:
        return not -_SERVICE_TOLERANCE_NS <= offset_ns <= parent.duration_ns + _SERVICE_TOLERANCE_NS
    return not -_TOLERANCE_NS <= offset_ns <= parent.duration_ns - span.duration_ns + _TOLERANCE_NS


def _shifts(spans: Sequence[Span], parents: Mapping[SpanKey, Span]) -> dict[SpanKey, int]:
    """Span → what is added to its start; parents first, so that what lies below a shifted span is shifted with it."""
    children: dict[SpanKey, list[Span]] = defaultdict(list)
    for span in spans:
        if span.key in parents:
            children[parents[span.key].key].append(span)
    waiting = deque((span, False) for span in spans if span.key in children and span.key not in parents)
    shifts: dict[SpanKey, int] = {}
    while waiting:
        parent, is_in_tool = waiting.popleft()
        is_in_tool = is_in_tool or parent.kind is SpanKind.TOOL
        shift = shifts.get(parent.key, 0)
        groups: dict[str, list[Span]] = defaultdict(list)
        for child in children[parent.key]:
            groups[child.service_name].append(child)
            if child.key in children:
                waiting.append((child, is_in_tool))
        for service, members in groups.items():
            if service != parent.service_name:
                group_shift = _shift(members, parent, shift)
                shifts.update((member.key, group_shift) for member in members)
                continue
            outside = [member for member in members if _is_outside(member, parent)]
            late = [member for member in outside if member.start_ns > parent.end_ns]
            early = [member for member in outside if member.start_ns < parent.start_ns]
            shifts.update((member.key, shift) for member in members if shift)
            for group in (early, late if is_in_tool else []):
                group_shift = shift + _shift(group, parent, 0)
                shifts.update((member.key, group_shift) for member in group)
    return shifts


def _shift(members: Sequence[Span], parent: Span, shift: int) -> int:
    """Return the shift of ``members`` into ``parent``, which is shifted itself; 0 where they fit or are detached."""
    if not members:
        return 0
    start_ns = min(member.start_ns for member in members)
    duration_ns = max(member.end_ns for member in members) - start_ns
    offset_ns = start_ns - (parent.start_ns + shift)
    rest_ns = parent.duration_ns - duration_ns
    if -_TOLERANCE_NS <= offset_ns <= rest_ns + _TOLERANCE_NS:
        return 0
    if rest_ns >= 0:
        return rest_ns // 2 - offset_ns
    return -offset_ns if offset_ns < 0 else 0
