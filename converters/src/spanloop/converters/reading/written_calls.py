"""Tool calls that a model writes into its text, because its framework offers no tools to the API (DSPy, ReAct prompts).

The tools' own spans tell of them. Invariant: a call of a tool goes to the newest model call before it, and only if that
one's text names the tool and every value of the arguments. What the model said stays the text that it is. An episode
with calls or answers in an API's own form has no written calls: there, they are missing from the recording.
"""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from spanloop.messages import ToolCall, dump, parse_json_or_none
from spanloop.messages.json_values import scalar_texts

from ..spans import Span, SpanKind
from .finish_reasons import TOOL_CALL

_MOST_CANDIDATES: Final = 8
"""So many earlier calls are compared; agents that run at the same time ask for tools in turn."""

_NEWEST: Final = 2
"""So many messages at the end of a history tell whether a tool has just answered in an API's form."""

_NO_TOOLS: Final = "[]"


def with_written_calls(calls: Sequence[Span], context: Sequence[Span]) -> Sequence[Span]:
    """The calls of an episode, each with the tool calls that its text holds.

    Args:
        calls: The episode's model calls.
        context: Its other spans.
    """
    tools = [span for span in context if span.kind is SpanKind.TOOL and span.tool_name]
    if not tools or any(map(_has_api_form, calls)):
        return calls
    ended: dict[str, list[Span]] = defaultdict(list)
    for call in sorted(calls, key=_end):
        ended[call.trace_id].append(call)
    written: dict[tuple[str, str], list[ToolCall]] = defaultdict(list)
    for tool in sorted(tools, key=lambda span: (span.start_ns, span.key)):
        before = ended[tool.trace_id]
        newest = bisect_right(before, tool.start_ns, key=_end)
        candidates = reversed(before[max(0, newest - _MOST_CANDIDATES) : newest])
        writer = next((candidate for candidate in candidates if _asks_for(candidate, tool)), None)
        if writer is not None:
            tool_call = ToolCall(tool.tool_call_id, tool.tool_name, tool.tool_arguments or "{}", is_valid=True)
            written[writer.key].append(tool_call)
    return [_with_calls(call, written[call.key]) if call.key in written else call for call in calls]


def _end(span: Span) -> int:
    return span.end_ns


def _has_api_form(call: Span) -> bool:
    """Whether the call offers tools, asks for some, or was sent what one answered."""
    messages = (*call.input[-_NEWEST:], *call.output)
    has_parts = any(message.tool_calls or message.tool_responses for message in messages)
    return has_parts or call.tools != _NO_TOOLS or call.finish_reason == TOOL_CALL


def _asks_for(call: Span, tool: Span) -> bool:
    text = call.output[0].text if call.output else ""
    if not re.search(rf"(?<!\w){re.escape(tool.tool_name)}(?!\w)", text):
        return False
    values = scalar_texts(parse_json_or_none(tool.tool_arguments))
    return all(value in text or dump(value)[1:-1] in text for value in values)


def _with_calls(call: Span, tool_calls: Sequence[ToolCall]) -> Span:
    first, *others = call.output
    return replace(call, output=(replace(first, tool_calls=tuple(tool_calls)), *others))


__all__ = ["with_written_calls"]
