"""The results of the tool calls of each step: which span and which message belongs to which call.

Invariant: a span and an answer are the result of one call at most. Ids decide; where an id is missing, or several calls
of a step share it, arguments and then the order decide.
"""

from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from spanloop.messages import Message, ToolCall, parse_json
from spanloop.messages.hosted_tools import hosted_answers
from spanloop.messages.json_values import as_fields, as_list

from ..errors.error_texts import AnswerErrors
from ..linking.continuation import Continuation
from ..spans import Span
from .tool_results import ShownAnswer, ToolResult, tool_results
from .tool_spans import have_other_arguments, tool_span_calls

_MOST_CANDIDATES: Final = 8
"""So many spans that wait for their call are compared."""


class _ToolSpans(NamedTuple):
    """The spans of tools that are not yet taken as results, by start."""

    by_id: Mapping[str, deque[Span]]
    by_name: Mapping[str, deque[Span]]

    @property
    def remaining(self) -> list[Span]:
        """The spans with a tool's name that are the result of no call."""
        waiting = (*self.by_id.values(), *self.by_name.values())
        return [span for spans in waiting for span in spans if span.tool_name]

    def take(self, call: ToolCall, before_ns: int | None) -> Span | None:
        """The span of a call: of those in question the first with its arguments, else the first one.

        Args:
            call: The tool call.
            before_ns: When the model was called again; None where it was not.
        """
        waiting = self.by_id.get(call.id) or self.by_name.get(call.name)
        if not waiting:
            return None
        if len(waiting) > 1:
            for place, span in enumerate(islice(waiting, _MOST_CANDIDATES)):
                if place and before_ns is not None and span.start_ns >= before_ns:
                    break
                if span.tool_arguments and not have_other_arguments(span.tool_arguments, call.arguments):
                    del waiting[place]
                    return span
        return waiting.popleft()


class StepResults(NamedTuple):
    """Results of the tools of an episode, by model call."""

    results: list[tuple[ToolResult, ...]]
    """The results of each model call's tool calls."""
    uncalled: Mapping[int, tuple[Span, ...]]
    """Index of a model call → spans of tools that ran after it and that no model call asked for."""


def step_results(
    calls: Sequence[Span],
    next_calls: Sequence[tuple[Span, Continuation] | None],
    context: Sequence[Span],
    answer_errors: AnswerErrors,
    observed: Mapping[int, Sequence[ShownAnswer]],
) -> StepResults:
    """The results of each model call's tool calls, and the tools that ran without one.

    Args:
        calls: The episode's model calls, in their order.
        next_calls: For each call the one that comes next in its thread, and what the two have in common.
        context: The episode's other spans.
        answer_errors: Errors in the answers of the batch.
        observed: Index of a call → answers in the text of a user's message, one for each of its tool calls.
    """
    by_id: dict[str, deque[Span]] = defaultdict(deque)
    by_name: dict[str, deque[Span]] = defaultdict(deque)
    spans = tool_span_calls(calls, context)
    known = {tool_call.id for call in calls if spans and call.output for tool_call in call.output[0].tool_calls}
    for span in spans:
        # A framework may give a call an id of its own, which no model asked with: its name tells then.
        if span.tool_call_id and span.tool_call_id in known:
            by_id[span.tool_call_id].append(span)
        else:
            by_name[span.tool_name].append(span)
    tools = _ToolSpans(by_id, by_name)
    results: list[tuple[ToolResult, ...]] = []
    for index, call in enumerate(calls):
        requests = call.output[0].tool_calls if call.output else ()
        if not requests:
            results.append(())
            continue
        after = next_calls[index]
        before_ns = None if after is None else after[0].start_ns
        taken = [tools.take(request, before_ns) for request in requests]
        shown = _shown_answers(call, requests, *after) if after else _hosted_answers(call)
        in_text = observed.get(index, ()) if not shown else ()
        results.append(tool_results(requests, taken, shown, in_text, answer_errors))
    return StepResults(results, _by_call(calls, tools.remaining))


def _by_call(calls: Sequence[Span], tools: Sequence[Span]) -> Mapping[int, tuple[Span, ...]]:
    """Index of a call → the tools that ended behind its start and before that of the next one."""
    if not tools:
        return {}
    by_start = sorted(range(len(calls)), key=lambda index: calls[index].start_ns)
    starts = [calls[index].start_ns for index in by_start]
    by_call: dict[int, tuple[Span, ...]] = {}
    for tool in sorted(tools, key=lambda span: (span.start_ns, span.key)):
        index = by_start[max(0, bisect_right(starts, tool.end_ns) - 1)]
        by_call[index] = (*by_call.get(index, ()), tool)
    return by_call


def _hosted_answers(call: Span) -> list[ShownAnswer]:
    return [
        ShownAnswer(answer.response.id, answer.response.content, answer.is_error)
        for answer in hosted_answers(call.output[0])
    ]


def _shown_answers(
    call: Span, requests: Sequence[ToolCall], after: Span, continuation: Continuation
) -> list[ShownAnswer]:
    """The answers in the calling message itself and in the input of the next call, with the ids of their calls."""
    answers = _answers(continuation.new_messages)
    ids = {request.id for request in requests}
    if not answers and not continuation.repeats_input:
        # An API that keeps the history is sent the answers only.
        answers = [answer for answer in _answers(after.input) if answer.id and answer.id in ids]
    if len(answers) == len(requests) and ids.isdisjoint([answer.id for answer in answers]):
        # OpenLLMetry names a Responses API's calls by their items, and their answers by the calls: order tells.
        answers = [
            ShownAnswer(request.id, answer.content, answer.is_error)
            for answer, request in zip(answers, requests, strict=True)
        ]
    return _hosted_answers(call) + answers


def _answers(messages: Iterable[Message]) -> list[ShownAnswer]:
    answers: list[ShownAnswer] = []
    for message in messages:
        responses = message.tool_responses
        if responses and IS_ERROR in message.json:
            flags = _error_flags(message.json)
            marked = [flags[place] if place < len(flags) else False for place in range(len(responses))]
            answers += [
                ShownAnswer(response.id, response.content, flag)
                for response, flag in zip(responses, marked, strict=True)
            ]
        elif responses:
            answers += [ShownAnswer(response.id, response.content) for response in responses]
    return answers


IS_ERROR: Final = '"is_error":true'
"""In a message's JSON: an API that marks a tool's answer as an error (Anthropic, Bedrock), whatever its text says."""


def _error_flags(text: str) -> list[bool]:
    """For each tool answer of a message, whether it is marked as an error."""
    parts = [as_fields(part) for part in as_list(as_fields(parse_json(text)).get("parts"))]
    return [part.get("is_error") is True for part in parts if part.get("type") == "tool_call_response"]


__all__ = ["StepResults", "step_results"]
