"""Whether a step may be trained on, and why not.

Invariant: the first reason in the order below counts, and its detail names the span and, where one is to blame, the
attribute. A step without captured tokens may be trained on (offline, from its text).
"""

from typing import Final

from spanloop.semconv import attributes as names
from spanloop.semconv.enums import FaultOwner, UntrainableReason

from .attribution import Failure, is_incomplete
from .spans import Problem
from .steps import Step


def untrainable(
    step: Step, decided_by: Failure | None, after: Step | None = None, before: Step | None = None
) -> Problem | None:
    """Why ``step`` must not be trained on; None when it may.

    Args:
        step: The step.
        decided_by: The failure that decided its episode; an environment's or harness's fault masks all its steps.
        after: The one that continues it.
        before: The one before it in its thread.
    """
    span, capture = step.span, step.capture
    if span.has_failed:
        said = span.exception.type or span.error_type or span.status_message
        return Problem(UntrainableReason.REQUEST_FAILED, f"span {span.span_id}, attribute error.type: {said}")
    if is_incomplete(step):
        where = f"span {span.span_id}, attribute gen_ai.response.finish_reasons"
        detail = f"{where}: {span.finish_reason!r}, expected a finish reason"
        is_captured = capture.problem is not None and capture.problem.reason is UntrainableReason.INCOMPLETE_STREAM
        return capture.problem if is_captured else Problem(UntrainableReason.INCOMPLETE_STREAM, detail)
    problem = span.problem or _lost_calls(step, after) or _lost_history(step, before) or capture.problem
    if problem is not None:
        return problem
    if decided_by is not None and decided_by.finding.owner in {FaultOwner.ENVIRONMENT, FaultOwner.HARNESS}:
        fault = decided_by.finding
        detail = f"span {decided_by.span_id}: {fault.error_class} ({fault.owner}) decided the episode"
        return Problem(UntrainableReason.ENVIRONMENT_FAULT, detail)
    return None


def _lost_calls(step: Step, after: Step | None) -> Problem | None:
    """What is wrong with mere words that tools answered."""
    if after is None or not step.span.output or step.span.output[0].tool_calls:
        return None
    news = after.span.input[len(step.span.input) :]
    first = next((message for message in news if message.role != "assistant"), None)
    if first is None or not first.tool_responses or any(message.tool_calls for message in news):
        return None
    where = f"span {step.span.span_id}, attribute {names.GEN_AI_OUTPUT_MESSAGES}"
    detail = f"{where}: without the tool calls that span {after.span.span_id} has the answers to"
    return Problem(UntrainableReason.MISSING_CONTENT, detail)


def _lost_history(step: Step, before: Step | None) -> Problem | None:
    """What is wrong with a Responses API's call that seems to ask once more what tools have answered since."""
    if before is None or not before.results or not step.span.response_id.startswith(_RESPONSE):
        return None
    one, other = before.span, step.span
    if one.trace_id != other.trace_id or not other.input or one.input_chain[-1:] != other.input_chain[-1:]:
        return None
    where = f"span {other.span_id}, attribute {names.GEN_AI_INPUT_MESSAGES}"
    detail = f"{where}: the same as before the tools that span {one.span_id} asked for had answered"
    return Problem(UntrainableReason.MISSING_CONTENT, detail)


_RESPONSE: Final = "resp_"
"""How the ids of OpenAI's Responses API begin; its tracers may see the new items only."""
