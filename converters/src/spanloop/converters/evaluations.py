"""Model calls of judges, guardrails and moderation: they look at an agent and are none of its actions.

Invariant: a trace that holds nothing but an agent's calls loses none, however its spans are scored.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import numpy as np
import polars as pl
from msgspec.structs import replace

from spanloop.semconv import attributes as names

from .linking import SpanKey, inherit
from .reading.attributes import Attributes
from .side_calls import conversation_of, uses_tools
from .spans import Span, SpanKind

_OPERATIONS: Final = ("evaluate", "evaluation", "guardrail", "guardrails", "execute_guardrail", "moderation")
_KINDS: Final = ("evaluator", "evaluation", "guardrail", "scorer", "scorer_run", "scorer_step", "score")
KINDS_OF_EVALUATIONS: Final[Mapping[str, Collection[str]]] = {
    names.GEN_AI_OPERATION_NAME: _OPERATIONS,
    **dict.fromkeys(
        (
            *("openinference.span.kind", "fi.span.kind", "langfuse.observation.type", "langwatch.span.type"),
            *("langsmith.span.kind", "mlflow.spanType", "traceloop.span.kind", "mastra.span.type"),
        ),
        _KINDS,
    ),
}
"""Attribute → its values on spans of evaluations, in lower case."""
_RESULT: Final = "gen_ai.evaluation."


class Evaluations:
    """The spans that stand for evaluations.

    Args:
        spans: The columns of ``frames.SPANS``.
        attributes: Attributes of ``spans``.
    """

    def __init__(self, spans: pl.DataFrame, attributes: Attributes) -> None:
        is_named = np.zeros(attributes.height, dtype=np.bool_)
        for key, kinds in KINDS_OF_EVALUATIONS.items():
            places = attributes.places(key)
            if len(places):
                is_kind = [value.strip('"').lower() in kinds for value in attributes.texts_at(places)]
                is_named[attributes.rows[places[is_kind]]] = True
        has_result = attributes.rows_with(attributes.matching(lambda key: key.startswith(_RESULT)))
        self.named: frozenset[SpanKey] = _keys(spans, is_named)
        """Spans whose operation or kind is an evaluation."""
        self.scored: frozenset[SpanKey] = _keys(spans, has_result)
        """Spans that carry the result of an evaluation, their own or that of another span."""

    def without_judges(self, spans: list[Span]) -> list[Span]:
        """Return ``spans``, the model calls of evaluations as spans of another kind."""
        if not (self.named or self.scored):
            return spans
        by_trace: dict[str, list[Span]] = defaultdict(list)
        traces = {trace_id for trace_id, _ in self.named | self.scored}
        for span in spans:
            if span.trace_id in traces:
                by_trace[span.trace_id].append(span)
        judges = {key for members in by_trace.values() for key in self._judges(members)}
        return (
            [replace(span, kind=SpanKind.OTHER) if span.key in judges else span for span in spans] if judges else spans
        )

    def _judges(self, spans: Sequence[Span]) -> set[SpanKey]:
        """Model calls of one trace that an evaluation makes."""
        results = {span.key for span in spans if span.kind is SpanKind.OTHER and span.key in self.scored}
        above = {span.span_id: span.span_id if span.key in self.named | results else "" for span in spans}
        nearest = inherit({span.span_id: span.parent_span_id for span in spans}, above)
        calls = [span for span in spans if span.kind is SpanKind.LLM]
        below = [call for call in calls if nearest.get(call.parent_span_id)]
        if len(below) == len(calls):
            is_judge = not any(uses_tools(call) for call in calls)
            evaluation_ids = {nearest[call.parent_span_id] for call in below}
            named = {span_id for _, span_id in self.named & self.scored}
            return {call.key for call in below} if is_judge and evaluation_ids <= named else set()
        keys = {call.key for call in below}
        agents = {conversation_of(call) for call in calls if call.key not in keys}
        return {call.key for call in below if conversation_of(call) not in agents}


def _keys(spans: pl.DataFrame, mask: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> frozenset[SpanKey]:
    if not mask.any():
        return frozenset()
    return frozenset(spans.select("TraceId", "SpanId")[pl.Series(np.flatnonzero(mask))].rows())
