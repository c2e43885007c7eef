"""A call whose newest message is an earlier call's with a tool's result written into it continues that call.

DSPy keeps no messages: each prompt is the one before with the newest step inserted. smolagents leaves out an answer
whose tool failed, and appends the error to the message before. A join needs a tool's span between the two calls, within
one trace or named episode, whose result or error is in what was inserted.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import islice, takewhile
from typing import Final

from spanloop.messages import Message

from ..spans import Span, SpanKind
from ..tokens.row_starts import common
from .sweep import SpanKey

_MOST_CANDIDATES: Final = 8
"""So many earlier calls are compared; agents that run at the same time have prompts of their own."""

_Place = tuple[str, int, bytes, str]


def inserted_results(spans: Sequence[Span], home: Mapping[SpanKey, str]) -> dict[SpanKey, SpanKey]:
    """Find the calls that continue another one in this way.

    Args:
        spans: In the order of start and id.
        home: Span key → home.

    Returns:
        Call → the call that it continues.
    """
    tools: dict[str, list[Span]] = defaultdict(list)
    for span in spans:
        if span.kind is SpanKind.TOOL:
            tools[home[span.key]].append(span)
    if not tools:
        return {}
    earlier: dict[_Place, list[Span]] = defaultdict(list)
    parents: dict[SpanKey, SpanKey] = {}
    for call in spans:
        own = home[call.key]
        newest = _closing_text(call) if call.kind is SpanKind.LLM and own in tools else None
        if newest is None:
            continue
        before = call.input_chain[-2] if len(call.input) > 1 else b""
        candidates = earlier[own, len(call.input), before, newest.role]
        newest_first = islice(reversed(candidates), _MOST_CANDIDATES)
        parent = next((other for other in newest_first if _continues(call, other, tools[own])), None)
        if parent is not None:
            parents[call.key] = parent.key
            candidates.remove(parent)
        candidates.append(call)
    return parents


def _closing_text(call: Span) -> Message | None:
    """Return the newest message, if it is text alone."""
    message = call.input[-1] if call.input else None
    is_text = message is not None and message.text and not message.tool_calls and not message.tool_responses
    return message if is_text else None


def _continues(call: Span, other: Span, tools: Sequence[Span]) -> bool:
    if other.end_ns > call.start_ns:
        return False
    inserted = _insertion(other.input[-1].text, call.input[-1].text)
    if not inserted:
        return False
    first = bisect_left(tools, other.end_ns, key=lambda tool: tool.start_ns)
    between = takewhile(lambda tool: tool.start_ns <= call.start_ns, islice(tools, first, None))
    texts = (text.strip() for tool in between for text in (tool.tool_result, tool.exception.message))
    return any(text and text in inserted for text in texts)


def _insertion(before: str, after: str) -> str:
    """Return what ``after`` has in one place more than ``before``; empty where they differ otherwise."""
    if len(after) <= len(before):
        return ""
    shared = common(before, after)
    rest = len(before) - shared
    return after[shared : len(after) - rest] if after.endswith(before[shared:]) else ""


__all__ = ["inserted_results"]
