"""Crashes around the model calls: of the program, of a tool that no action called, or by somebody who stopped it.

An exception on its way up marks the spans that it passes; the innermost one is where it was raised. Seen here is
one that was raised in no model call and in no tool call of an action: those have rules of their own.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from spanloop.converters.enums import FaultOwner

from ..errors.failure_patterns import failure_pattern
from ..linking import SpanKey, inherit
from ..spans import Span, SpanKind
from ..steps import Episode, Step
from .base import EpisodeRule, ErrorClass, Finding, LocatedFinding
from .broken_output import has_unrecorded_end
from .environment import environment_fault, was_stopped
from .failure_dedup import is_last_call, is_same_error, nearest_above, span_error
from .tool_calls.tool_kinds import is_hand_over

CRASH: Final = "crash"
"""Name of the rule."""
_LIMIT: Final = failure_pattern("limit")
_UNREADABLE: Final = failure_pattern("unreadable")


class Crash(EpisodeRule):
    """The program around the model calls raised, or somebody stopped it."""

    def find(self, episode: Episode) -> Iterator[LocatedFinding]:
        """Yield the findings."""
        failed = [span for span in episode.context if span.has_failed]
        if not failed:
            return
        tool_call_spans = {(result.trace_id, result.span_id) for step in episode.steps for result in step.results}
        spans = episode.spans
        within = _within_calls(spans)
        inner = {
            span.key for span in failed if within.get(f"{span.trace_id}/{span.parent_span_id}", "")
        } - tool_call_spans
        came_from_below = _came_from_below(spans, inner)
        # HoneyHive tells of a failure once more, in a span beside the one that failed.
        repeated = {(span.trace_id, span.parent_span_id, f"{span.name}_error") for span in spans if span.has_failed}
        begun = sorted(episode.steps, key=_start)
        for span in failed:
            place = (span.trace_id, span.parent_span_id, span.name)
            if not (
                span.key in tool_call_spans or span.key in inner or place in repeated or span.key in came_from_below
            ):
                yield _located(span, _step_of(span, begun))


def _within_calls(spans: Sequence[Span]) -> dict[str, str]:
    """Spans that are, or lie below, a model call or a tool, which tells of them: an HTTP request, say."""
    parents = {f"{span.trace_id}/{span.span_id}": f"{span.trace_id}/{span.parent_span_id}" for span in spans}
    is_call = {SpanKind.LLM: "call", SpanKind.TOOL: "call"}
    return inherit(parents, {f"{span.trace_id}/{span.span_id}": is_call.get(span.kind, "") for span in spans})


def _came_from_below(spans: Sequence[Span], inner: Collection[SpanKey]) -> set[SpanKey]:
    """Spans whose failure one below them explains that is not among the ``inner`` ones, which others tell of.

    It is the same in words; where one says none, it is directly below, or a model call after which nothing was called.
    A span around one call that says it in other words, without an exception of another class, only repeats it.
    """
    failed = {span.key: span for span in spans if span.has_failed and span.key not in inner}
    repeating: set[SpanKey] = set()
    for key, above in nearest_above(spans, failed).items():
        if key in failed:
            one, other = span_error(failed[key]), span_error(failed[above])
            is_near = failed[key].parent_span_id == above[1] or is_last_call(failed[key], failed[above], spans)
            is_same = is_same_error(one, other) if one and other else is_near
            if is_same or _wraps(failed[above], failed[key], spans):
                repeating.add(above)
    return repeating


def _wraps(outer: Span, inner: Span, spans: Sequence[Span]) -> bool:
    """Whether ``outer`` stands around the call ``inner`` and nothing else, and raised no exception of another class."""
    is_call = inner.kind in {SpanKind.TOOL, SpanKind.LLM}
    if not is_call or outer.kind is SpanKind.AGENT or inner.parent_span_id != outer.span_id:
        return False
    parent = (outer.trace_id, outer.span_id)
    if any((span.trace_id, span.parent_span_id) == parent and span.key != inner.key for span in spans):
        return False
    classes = {(span.exception.type or span.error_type).rpartition(".")[2] for span in (outer, inner)} - {"", "_OTHER"}
    return len(classes) <= 1


def is_after_answer(span: Span, episode: Episode) -> bool:
    """Whether ``span`` began after the agent's answer and its failure passed to no span above it."""
    step = episode.steps[-1]
    last = step.span
    has_answered = bool(last.output) and not last.output[0].tool_calls and not last.has_failed
    if not (has_answered or has_unrecorded_end(step)) or span.start_ns < last.end_ns:
        return False
    parent = (span.trace_id, span.parent_span_id)
    return any(other.key == parent and not other.has_failed for other in episode.spans)


def _step_of(span: Span, by_start: Sequence[Step]) -> Step:
    """The newest step that had begun when the span ended; the first if none had."""
    return by_start[max(0, bisect_right(by_start, span.end_ns, key=_start) - 1)]


def _start(step: Step) -> int:
    return step.span.start_ns


def _located(span: Span, step: Step) -> LocatedFinding:
    message = span_error(span) or span.error_type or f"span {span.name!r} failed"
    attributes = {"span": span.name, "error.type": span.error_type, "exception.type": span.exception.type}
    evidence: dict[str, object] = {key: value for key, value in attributes.items() if value}
    text = f"{span.error_type} {span.exception.type} {message}"
    error_class, owner, confidence = _classify(text, is_tool=span.kind is SpanKind.TOOL)
    if span.kind is SpanKind.TOOL and is_hand_over(span.tool_name or span.name):
        error_class, owner, confidence = _classify_hand_over(step)
    culprit = step.span if owner is FaultOwner.POLICY else span
    return LocatedFinding(step, Finding(error_class, owner, confidence, message, evidence), culprit, span.tool_name)


def _classify_hand_over(step: Step) -> tuple[ErrorClass, FaultOwner, float]:
    """A hand-over is no tool that breaks: the policy asked for several at once, or the program did not carry it out."""
    calls = step.span.output[0].tool_calls if step.span.output else ()
    if sum(is_hand_over(call.name) for call in calls) > 1:
        return ErrorClass.REFUSED_ACTION, FaultOwner.POLICY, 0.6
    return ErrorClass.HARNESS_CRASH, FaultOwner.HARNESS, 0.6


def _classify(text: str, *, is_tool: bool) -> tuple[ErrorClass, FaultOwner, float]:
    if was_stopped(text):
        return ErrorClass.CANCELLED, FaultOwner.USER, 0.7
    if _LIMIT.search(text):
        return ErrorClass.STEP_LIMIT, FaultOwner.POLICY, 0.6
    if not is_tool and _UNREADABLE.search(text):
        return ErrorClass.MALFORMED_OUTPUT, FaultOwner.POLICY, 0.6
    fault = environment_fault(text)
    if fault is not None:
        return fault, FaultOwner.ENVIRONMENT, 0.8
    return (
        (ErrorClass.TOOL_ERROR, FaultOwner.TOOL, 0.7)
        if is_tool
        else (ErrorClass.HARNESS_CRASH, FaultOwner.HARNESS, 0.8)
    )
