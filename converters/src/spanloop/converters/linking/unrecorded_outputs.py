"""Answers that a tracer left out, out of what the next call was sent.

Pipecat and some streams record what a model was asked and not what it said; a call that goes on from there repeats it.
Invariant: only an answer that can be no other call's counts, and the step stays untrainable: words beside it may be
missing. Which tools were called and how they fared is told so.
"""

from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from spanloop.converters.enums import UntrainableReason
from spanloop.messages import Message
from spanloop.semconv import attributes as names

from ..spans import Problem, Span
from .continuation import continues, is_recorded


def recover_unrecorded_outputs(calls: Sequence[Span]) -> Sequence[Span]:
    """The calls of an episode, those without an answer with the one that a later call was sent as theirs."""
    unrecorded = [call for call in calls if not is_recorded(call) and call.history.length and not call.has_failed]
    if not unrecorded:
        return calls
    input_counts = Counter(call.history.number for call in calls if call.input)
    recovered = {
        call.key: answer
        for call in unrecorded
        if input_counts[call.history.number] == 1 and (answer := _answer(call, calls)) is not None
    }
    return [_with_answer(call, recovered[call.key]) if call.key in recovered else call for call in calls]


def _with_answer(call: Span, answer: Message) -> Span:
    return replace(call, output=(answer,), problem=call.problem or unrecorded_output(call))


def unrecorded_output(call: Span) -> Problem:
    """Why a call whose answer a tracer left out cannot be trained on."""
    where = f"span {call.span_id}, attribute {names.GEN_AI_OUTPUT_MESSAGES}"
    return Problem(UntrainableReason.MISSING_CONTENT, f"{where}: an answer without any part")


def _answer(call: Span, calls: Sequence[Span]) -> Message | None:
    """Return the answer to ``call`` that all calls which continue it repeat; None where they differ."""
    continuations = (continues(call, other) for other in calls)
    nexts = [continuation.new_messages for continuation in continuations if continuation.repeats_input]
    if not nexts or len({news[0].content for news in nexts}) > 1:
        return None
    answer, *others = min(nexts, key=len)
    # Where the model speaks again in it, a call was not recorded, or one answer was taken apart.
    is_alone = all(message.role != "assistant" for message in others)
    return answer if is_alone and answer.role == "assistant" and (answer.tool_calls or answer.text) else None
