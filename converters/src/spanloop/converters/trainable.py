"""Whether a step may be trained on, and why not.

Invariant: the first reason in the order below counts, and its detail names the span and, where one is to blame, the
attribute. A step without captured tokens may be trained on (offline, from its text).
"""

from collections.abc import Collection, Iterable
from typing import Final

from spanloop.semconv import attributes as names
from spanloop.semconv.enums import FaultOwner, UntrainableReason

from .attribution import Failure, is_incomplete
from .finish_reasons import TOOL_CALL
from .messages import Message
from .spans import Problem, Span
from .steps import Step, repeats


def untrainable(
    step: Step, decided_by: Failure | None, after: Step | None = None, before: Step | None = None
) -> Problem | None:
    """Why ``step`` must not be trained on; None when it may.

    Args:
        step: The step.
        decided_by: The failure that decided its episode; a fault of the environment, of the harness or of nobody known
            masks all its steps.
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
    if decided_by is not None and decided_by.finding.owner is FaultOwner.UNKNOWN:
        fault = decided_by.finding
        detail = (
            f"span {decided_by.span_id}: {fault.error_class} decided the episode, and nothing shows whose fault it is"
        )
        return Problem(UntrainableReason.UNATTRIBUTED_FAILURE, detail)
    return None


def _lost_calls(step: Step, after: Step | None) -> Problem | None:
    """What is wrong with words that tools answered, or with calls of which others or the arguments come later only."""
    if after is None or not step.span.output:
        return None
    asked = {call.id: call for call in step.span.output[0].tool_calls}
    news = after.span.input[len(step.span.input) :]
    if not asked:
        first = next((message for message in news if message.role != "assistant"), None)
        what = "tool calls" if first is not None and first.tool_responses else ""
    else:
        told = [call for message in news for call in message.tool_calls if call.id and call.id in asked]
        lacks = any(asked[call.id].arguments == _NOTHING != call.arguments for call in told)
        what = "arguments" if lacks else ""
        if not what and repeats(step.span, after.span) and _is_part(asked, step.span.input, news):
            what = "other tool calls"
    if not what:
        return None
    where = f"span {step.span.span_id}, attribute {names.GEN_AI_OUTPUT_MESSAGES}"
    detail = f"{where}: without the {what} that the history of span {after.span.span_id} tells of"
    return Problem(UntrainableReason.MISSING_CONTENT, detail)


def _is_part(asked: Collection[str], seen: Iterable[Message], news: Iterable[Message]) -> bool:
    """Whether the turn that made the calls ``asked`` made more: Claude Code tells of an answer block by block."""
    calls: set[str] = set()
    answers: set[str] = set()
    for message in news:
        if (answers and message.role == "assistant") or (message.role == "user" and not message.tool_responses):
            break
        calls.update(call.id for call in message.tool_calls)
        answers.update(answer.id for answer in message.tool_responses)
    # Some tracers give the answers other ids than the calls: those that are asked for must be among them.
    further = set[str]().union(*(told for told in (calls, answers) if told.issuperset(asked))).difference(asked, ("",))
    return bool(further) and not further <= {call.id for message in seen for call in message.tool_calls}


def _lost_history(step: Step, before: Step | None) -> Problem | None:
    """What is wrong with a history that repeats the call before without what that did.

    A Responses API's call may seem to ask once more what tools have answered since.
    """
    if before is None:
        return None
    one, other = before.span, step.span
    if step.continues == before.index and _lacks_calls(one):
        news = other.input[len(one.input) :]
        if not any(message.tool_calls for message in news):
            where = f"span {other.span_id}, attribute {names.GEN_AI_INPUT_MESSAGES}"
            return Problem(
                UntrainableReason.MISSING_CONTENT, f"{where}: without the tool calls that span {one.span_id} ended for"
            )
    if not before.results or not other.response_id.startswith(_RESPONSE):
        return None
    if one.trace_id != other.trace_id or not other.input or one.input_chain[-1:] != other.input_chain[-1:]:
        return None
    where = f"span {other.span_id}, attribute {names.GEN_AI_INPUT_MESSAGES}"
    detail = f"{where}: the same as before the tools that span {one.span_id} asked for had answered"
    return Problem(UntrainableReason.MISSING_CONTENT, detail)


_RESPONSE: Final = "resp_"
"""How the ids of OpenAI's Responses API begin; its tracers may see the new items only."""


_NOTHING: Final = "{}"


def _lacks_calls(span: Span) -> bool:
    return span.finish_reason == TOOL_CALL and not any(message.tool_calls for message in span.output)
