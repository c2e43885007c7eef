"""One model call that two instrumentors recorded becomes one step.

Invariant: only spans of one trace collapse, and only when one lies under the other: a nested pair is one call when
the inner ran within the outer, and their response ids or else their inputs agree (or one captured neither). The
richer span stays (output, input, token counts, then the inner one); the other is rejected by name.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from .spans import Rejected, Span, SpanKind
from .stitch.homes import inherit


class Collapsed(NamedTuple):
    """Spans in their order, less the duplicates, and the duplicates."""

    spans: list[Span]
    rejected: list[Rejected]


def collapse(spans: Sequence[Span]) -> Collapsed:
    """Drop the model calls that repeat another one of the same trace."""
    by_trace: dict[str, list[Span]] = defaultdict(list)
    for span in spans:
        by_trace[span.trace_id].append(span)
    dropped: dict[tuple[str, str], Span] = {}
    for members in by_trace.values():
        if sum(span.kind is SpanKind.LLM for span in members) > 1:
            dropped.update(_nested(members))
    rejected = [
        Rejected(*key, "duplicate_model_call", f"the same call as span {kept.span_id}")
        for key, kept in sorted(dropped.items(), key=lambda item: item[0])
    ]
    heirs = {kept.key: gone for gone, kept in _pairs(spans, dropped)}
    kept_spans = [_inherit(span, heirs.get(span.key)) for span in spans if span.key not in dropped]
    return Collapsed(kept_spans, rejected)


def _pairs(spans: Sequence[Span], dropped: dict[tuple[str, str], Span]) -> list[tuple[Span, Span]]:
    return [(span, dropped[span.key]) for span in spans if span.key in dropped]


def _inherit(kept: Span, gone: Span | None) -> Span:
    """``kept``, in the place that its duplicate had in the span tree, and as new as the newer of the two."""
    if gone is None:
        return kept
    parent = gone.parent_span_id if kept.parent_span_id == gone.span_id else kept.parent_span_id
    return replace(
        kept,
        parent_span_id=parent,
        agent_name=kept.agent_name or gone.agent_name,
        ingested_us=max(kept.ingested_us, gone.ingested_us),
    )


def _nested(members: Iterable[Span]) -> dict[tuple[str, str], Span]:
    found = list(members)
    calls = {span.span_id: span for span in found if span.kind is SpanKind.LLM}
    parents = {span.span_id: span.parent_span_id for span in found}
    nearest = inherit(parents, {span.span_id: span.span_id if span.span_id in calls else "" for span in found})
    dropped: dict[tuple[str, str], Span] = {}
    for inner in calls.values():
        outer = calls.get(nearest.get(inner.parent_span_id, ""))
        if outer is None or outer is inner or inner.key in dropped or outer.key in dropped:
            continue
        if _is_same(outer, inner):
            kept, gone = (outer, inner) if _richness(outer) > _richness(inner) else (inner, outer)
            dropped[gone.key] = kept
    return dropped


def _is_same(outer: Span, inner: Span) -> bool:
    if inner.start_ns < outer.start_ns or inner.end_ns > outer.end_ns:
        return False
    if outer.response_id and inner.response_id:
        return outer.response_id == inner.response_id
    return not outer.input or not inner.input or outer.input_chain[-1] == inner.input_chain[-1]


def _richness(span: Span) -> tuple[bool, bool, bool]:
    return bool(span.output), bool(span.input), span.output_tokens > 0
