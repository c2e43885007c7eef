"""A call whose newest message is an earlier call's with a tool's result written into it continues that call.

DSPy keeps no messages: each prompt is the one before with the newest step inserted. smolagents leaves out an answer
whose tool failed, and appends the error to the message before. A join needs a tool's span between the two calls, within
one trace or named episode, whose result or error is in what was inserted.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Final, cast

from ..spans import Span, SpanKind
from ..tokens.row_starts import common
from .sweep import SpanKey

if TYPE_CHECKING:
    from spanloop.messages import History

_MOST_CANDIDATES: Final = 8
"""So many earlier calls are compared; agents that run at the same time have prompts of their own."""

_Place = tuple[str, int, int, str]


def inserted_results(
    calls: Sequence[Span], spans: Sequence[Span], home: Mapping[SpanKey, str]
) -> dict[SpanKey, SpanKey]:
    """Find the calls that continue another one in this way.

    Args:
        calls: Model calls, in the order of start and id.
        spans: All spans, in the same order.
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
    for call in calls:
        place = home[call.key]
        newest = call.history.message
        if place not in tools or newest is None or not newest.text or newest.tool_calls or newest.tool_responses:
            continue
        history = cast("History", call.history.before)
        candidates = earlier[place, history.length, history.number, newest.role]
        newest_first = islice(reversed(candidates), _MOST_CANDIDATES)
        parent = next((other for other in newest_first if _continues(call, other, tools[place])), None)
        if parent is not None:
            parents[call.key] = parent.key
            candidates.remove(parent)
        candidates.append(call)
    return parents


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
