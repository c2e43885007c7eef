"""Whether a step may be trained on, and why not.

Invariant: the first reason in the order below counts, and its detail names the span and, where one is to blame, the
attribute. A step without captured tokens may be trained on (offline, from its text).
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from spanloop.converters.enums import FaultOwner, UntrainableReason
from spanloop.messages import Message, ToolCall
from spanloop.semconv import attributes as names

from .attribution import Failure, is_incomplete
from .linking.continuation import continues, is_recorded
from .linking.unrecorded_outputs import unrecorded_output
from .reading.finish_reasons import LENGTH, TOOL_CALL
from .spans import Problem, Span
from .steps import Step, Thread


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
        error = span.exception.type or span.error_type or span.status_message
        return Problem(UntrainableReason.REQUEST_FAILED, f"span {span.span_id}, attribute error.type: {error}")
    if is_incomplete(step):
        where = f"span {span.span_id}, attribute gen_ai.response.finish_reasons"
        detail = f"{where}: {span.finish_reason!r}, expected a finish reason"
        is_captured = capture.problem is not None and capture.problem.reason is UntrainableReason.INCOMPLETE_STREAM
        return capture.problem if is_captured else Problem(UntrainableReason.INCOMPLETE_STREAM, detail)
    problem = span.problem or (unrecorded_output(span) if _is_empty(span) else None)
    problem = problem or _lost_calls(step, after) or _lost_history(step, before)
    if problem is None and not _is_trainable_text(capture.problem):
        problem = capture.problem
    if problem is not None:
        return problem
    reason = _MASKED_BY.get(decided_by.finding.owner) if decided_by is not None else None
    if decided_by is None or reason is None:
        return capture.problem
    fault = decided_by.finding
    return Problem(reason, f"span {decided_by.span_id}: {fault.error_class} ({fault.owner}) decided the episode")


def _is_trainable_text(problem: Problem | None) -> bool:
    """Whether it concerns token ids only: other reasons count before it."""
    return problem is not None and problem.reason in TRAINABLE_TEXT


TRAINABLE_TEXT: Final = frozenset({UntrainableReason.MISSING_LOGPROBS})
"""Reasons of steps whose text may be trained on."""

_MASKED_BY: Final = {
    FaultOwner.ENVIRONMENT: UntrainableReason.ENVIRONMENT_FAULT,
    FaultOwner.HARNESS: UntrainableReason.ENVIRONMENT_FAULT,
    FaultOwner.UNKNOWN: UntrainableReason.UNATTRIBUTED_FAILURE,
}


def _is_empty(span: Span) -> bool:
    """Whether the answer is an object without any part: the tracer did not write down what the model said."""
    return bool(span.output) and not is_recorded(span) and '"parts":[]' in span.output[0].json


def _lacks(span: Span, attribute: str, what: str) -> Problem:
    return Problem(UntrainableReason.MISSING_CONTENT, f"span {span.span_id}, attribute {attribute}: {what}")


def abandoned(steps: Sequence[Step]) -> dict[int, Problem]:
    """Steps (by index) whose answer was thrown away: the same was asked again later, and that answer was used.

    Calls that overlap in time are samples, no retries; so are equal answers, and answers that tools or later calls saw.
    """
    if len({step.span.history.number for step in steps}) == len(steps):
        return {}
    attempts: dict[tuple[Thread, int], list[Step]] = defaultdict(list)
    for step in steps:
        if step.span.history.number and step.span.output and not step.span.has_failed:
            attempts[step.thread, step.span.history.number].append(step)
    continued = {step.continues for step in steps}
    problems: dict[int, Problem] = {}
    for same in attempts.values():
        for place, step in enumerate(same):
            if step.index in continued or step.results:
                continue
            used = next((other for other in same[place + 1 :] if _replaces(other, step, continued, steps)), None)
            if used is not None and not _is_shown_later(step, steps):
                detail = f"span {step.span.span_id}: span {used.span.span_id} was asked the same again, and was used"
                problems[step.index] = Problem(UntrainableReason.ABANDONED_ATTEMPT, detail)
    return problems


def _replaces(later: Step, step: Step, continued: Collection[int | None], steps: Sequence[Step]) -> bool:
    """Whether the program asked again, one call after the other in one place, and ``later`` is what it used."""
    one, other = step.span, later.span
    is_one_place = not one.parent_span_id and not other.parent_span_id
    is_one_place |= (one.trace_id, one.parent_span_id) == (other.trace_id, other.parent_span_id)
    if not is_one_place or other.start_ns < one.end_ns or one.output[0].content == other.output[0].content:
        return False
    if later.index in continued:
        return True
    if later is not steps[-1] or (other.output[0].tool_calls and not later.results):
        return False
    # Nothing shows that the last of several answers is the one that counts, unless this one could not be used. An
    # equal count of tokens tells a repeated prompt from a history that was not recorded.
    is_repeated_request = bool(one.output[0].tool_calls) and 0 < one.input_tokens == other.input_tokens
    return is_repeated_request or one.finish_reason == LENGTH != other.finish_reason


def _is_shown_later(step: Step, steps: Sequence[Step]) -> bool:
    """Whether a later call was shown the answer, as a tool's or within a question: a sub-agent's, or one of several."""
    output = step.span.output[0]
    text = output.text.strip()
    if output.tool_calls or not text:
        return False
    return any(
        text in message.text or any(text in response.content for response in message.tool_responses)
        for later in steps[step.index + 1 :]
        for message in later.span.input
        if message.role != "assistant"
    )


def _lost_calls(step: Step, after: Step | None) -> Problem | None:
    """Return the problem of an output without the tool calls or arguments that the next history shows."""
    if after is None or not step.span.output:
        return None
    requests = step.span.output[0].tool_calls
    continuation = step.continuation
    if continuation is None or after.index != step.following:
        continuation = continues(step.span, after.span)
    news = continuation.new_messages
    what = ""
    if not requests:
        first = next((message for message in news if message.role != "assistant"), None)
        what = "tool calls" if first is not None and first.tool_responses else ""
    elif continuation.choice != 0 or _has_more(requests, news[1:]):
        by_id = {call.id: call for call in requests}
        repeated = [call for message in news for call in message.tool_calls if call.id and call.id in by_id]
        if any(by_id[call.id].arguments == _NOTHING != call.arguments for call in repeated):
            what = "arguments"
        elif continuation.repeats_input and _is_part(by_id, step.span.input, news):
            what = "other tool calls"
    if not what:
        return None
    lacking = f"without the {what} that the history of span {after.span.span_id} tells of"
    return _lacks(step.span, names.GEN_AI_OUTPUT_MESSAGES, lacking)


def _has_more(requests: Sequence[ToolCall], later: Sequence[Message]) -> bool:
    """Whether the messages behind an answer have tool calls, or more answers than the answer has ``requests``."""
    answers = 0
    for message in later:
        if message.tool_calls:
            return True
        answers += len(message.tool_responses)
    return answers > len(requests)


def _is_part(requests: Collection[str], seen: Iterable[Message], news: Iterable[Message]) -> bool:
    """Whether the turn that made the calls ``requests`` made more: Claude Code tells of an answer block by block."""
    calls: set[str] = set()
    answers: set[str] = set()
    for message in news:
        if (answers and message.role == "assistant") or (message.role == "user" and not message.tool_responses):
            break
        calls.update(call.id for call in message.tool_calls)
        answers.update(answer.id for answer in message.tool_responses)
    # Some tracers give the answers other ids than the calls: those of the requests must be among them.
    complete = (ids for ids in (calls, answers) if ids.issuperset(requests))
    further = set[str]().union(*complete).difference(requests, ("",))
    return bool(further) and not further <= {call.id for message in seen for call in message.tool_calls}


def _lost_history(step: Step, before: Step | None) -> Problem | None:
    """Return the problem of a history that repeats the call before without its tool calls or results.

    A Responses API's call may seem to ask once more what tools have answered since.
    """
    if before is None:
        return None
    one, other = before.span, step.span
    if one.finish_reason == TOOL_CALL and step.continues == before.index and _lacks_tool_calls(one):
        news = continues(one, other).new_messages
        if not any(message.tool_calls for message in news):
            lacking = f"without the tool calls that span {one.span_id} ended for"
            return _lacks(other, names.GEN_AI_INPUT_MESSAGES, lacking)
    if not before.results or not other.response_id.startswith(_RESPONSE):
        return None
    if one.trace_id != other.trace_id or not continues(one, other).is_same_input:
        return None
    lacking = f"the same as before the tools that span {one.span_id} asked for had answered"
    return _lacks(other, names.GEN_AI_INPUT_MESSAGES, lacking)


_RESPONSE: Final = "resp_"
"""Beginning of the ids of OpenAI's Responses API, whose tracers may see the new items only."""

_NOTHING: Final = "{}"


def _lacks_tool_calls(span: Span) -> bool:
    return not (span.output and span.output[0].tool_calls) and not any(message.tool_calls for message in span.output)
