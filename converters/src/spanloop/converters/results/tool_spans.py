"""The spans of tools as calls: one span for each call of a tool, however many instrumentors recorded it.

Invariant: a span within another one of the same tool is the same call only where nothing contradicts it. Tracers nest
parallel calls as well, where the context of one leaks into the next.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from spanloop.messages import dump, parse_json_or_none
from spanloop.messages.json_values import as_fields, scalar_texts

from ..linking import SpanKey, inherit
from ..spans import Span, SpanKind

_MOST_ABOVE: Final = 8
"""So many spans of one tool are looked at above a span; parallel calls may form a long chain."""


class _ModelToolCalls(NamedTuple):
    """The tool calls in the answers of an episode's model calls."""

    ids: frozenset[str]
    repeated_ids: frozenset[str]
    """Ids that several calls of one answer share: an adapter may take the tool's name for a missing id."""
    arguments: frozenset[tuple[str, str]]
    """Name and arguments."""


def _model_tool_calls(calls: Iterable[Span]) -> _ModelToolCalls:
    """The tool calls in the first choice of each model call."""
    answers = [call.output[0].tool_calls for call in calls if call.output and call.output[0].tool_calls]
    repeated = (
        identity
        for tool_calls in answers
        if len(tool_calls) > 1
        for identity, count in Counter(tool_call.id for tool_call in tool_calls).items()
        if count > 1
    )
    return _ModelToolCalls(
        frozenset(tool_call.id for tool_calls in answers for tool_call in tool_calls),
        frozenset(repeated),
        frozenset(
            (tool_call.name, tool_call.arguments)
            for tool_calls in answers
            if len(tool_calls) > 1
            for tool_call in tool_calls
        ),
    )


def tool_span_calls(calls: Sequence[Span], context: Sequence[Span]) -> list[Span]:
    """One span for each call of a tool, by start.

    Args:
        calls: The episode's model calls.
        context: Its other spans.
    """
    tools = [span for span in context if span.kind is SpanKind.TOOL]
    if len(tools) <= 1:
        return tools
    tools.sort(key=lambda span: (span.start_ns, span.key))
    parents = {(span.trace_id, span.parent_span_id) for span in tools}
    inner = (SpanKind.TOOL, SpanKind.OTHER)
    if not any(span.key in parents and span.kind in inner for span in context):
        return tools
    requested = _model_tool_calls(calls)
    roots = _outermost_tools(tools, (*calls, *context), requested)
    groups: dict[SpanKey, list[Span]] = defaultdict(list)
    for span in tools:
        groups[roots[span.key]].append(span)
    return [_one_call(group, requested) for group in groups.values()]


def _one_call(group: Sequence[Span], requested: _ModelToolCalls) -> Span:
    """The span with the id that the model gave the call, with any one's answer, failed when any of them did."""
    kept = next((span for span in group if span.tool_call_id and span.tool_call_id in requested.ids), group[0])
    kept = replace(kept, tool_result=next((span.tool_result for span in (kept, *group) if span.tool_result), ""))
    failed = next((span for span in group if span.has_failed), None)
    if failed is None or kept.has_failed:
        return kept
    return replace(
        kept,
        is_error=failed.is_error,
        error_type=failed.error_type,
        exception=failed.exception,
        status_message=failed.status_message,
    )


def _outermost_tools(
    tools: Sequence[Span], spans: Iterable[Span], requested: _ModelToolCalls
) -> dict[SpanKey, SpanKey]:
    """Tool span → the span of its tool or call that it lies in, with neither a model call nor an agent in between."""
    by_trace: dict[str, list[Span]] = defaultdict(list)
    for span in spans:
        by_trace[span.trace_id].append(span)
    outermost: dict[SpanKey, SpanKey] = {}
    for trace_id in {span.trace_id for span in tools}:
        members = by_trace[trace_id]
        call_or_agent = {span.span_id: span.span_id if span.kind is not SpanKind.OTHER else "" for span in members}
        nearest = inherit({span.span_id: span.parent_span_id for span in members}, call_or_agent)
        of_tools = {span.span_id: span for span in members if span.kind is SpanKind.TOOL}
        inner = {span_id: _same_call_above(span, of_tools, nearest, requested) for span_id, span in of_tools.items()}
        roots = inherit(inner, {span_id: "" if above in inner else span_id for span_id, above in inner.items()})
        outermost.update(((trace_id, span_id), (trace_id, root or span_id)) for span_id, root in roots.items())
    return outermost


def _same_call_above(
    span: Span, tools: Mapping[str, Span], nearest: Mapping[str, str], requested: _ModelToolCalls
) -> str:
    """Id of the nearest span above that records the same call; calls of the same tool in between are passed over."""
    above = tools.get(nearest.get(span.parent_span_id, ""))
    for _ in range(_MOST_ABOVE):
        if above is None or not _may_be_one_call(span, above):
            return ""
        if not _contradicts(span, above, requested):
            return above.span_id
        above = tools.get(nearest.get(above.parent_span_id, ""))
    return ""


def _may_be_one_call(inner: Span, outer: Span) -> bool:
    has_one_id = bool(inner.tool_call_id) and inner.tool_call_id == outer.tool_call_id
    return has_one_id or _is_one_tool(inner.tool_name, outer.tool_name)


def _is_one_tool(one: str, other: str) -> bool:
    """Whether two names are of one tool, one of them perhaps behind its agent's or server's."""
    shorter, longer = sorted((one, other), key=len)
    return bool(shorter) and (shorter == longer or (longer.endswith(shorter) and longer[-len(shorter) - 1] in "./-_:"))


def _contradicts(inner: Span, outer: Span, requested: _ModelToolCalls) -> bool:
    """Whether two nested spans of one tool record two calls: by the model's ids, by arguments, by time, by results."""
    ids = {inner.tool_call_id, outer.tool_call_id}
    if ids <= requested.ids and "" not in ids and ids.isdisjoint(requested.repeated_ids):
        return len(ids) > 1
    if have_other_arguments(inner.tool_arguments, outer.tool_arguments):
        return True
    pair = {(span.tool_name, _canonical(span.tool_arguments)) for span in (inner, outer)}
    if len(pair) > 1 and pair <= requested.arguments:
        return True
    if inner.recorder != outer.recorder or not requested.arguments:
        return False
    is_behind = 0 < outer.end_ns <= inner.start_ns and outer.service_name == inner.service_name
    has_other_result = bool(inner.tool_result and outer.tool_result) and not _contains(inner, outer)
    return is_behind or has_other_result


def _contains(inner: Span, outer: Span) -> bool:
    one, other = inner.tool_result.strip(), outer.tool_result.strip()
    return one in other or other in one or dump(one)[1:-1] in other or dump(other)[1:-1] in one


def _canonical(arguments: str) -> str:
    fields = as_fields(parse_json_or_none(arguments)) if arguments else {}
    return dump(fields) if fields else arguments


def have_other_arguments(one: str, other: str) -> bool:
    """Whether two recorded texts of arguments cannot be those of one call; one may hold more than the other."""
    if one == other or not one or not other:
        return False
    values, other_values = (_argument_values(parse_json_or_none(text)) for text in (one, other))
    if values is None or other_values is None:
        # Text as it came: what the other one holds may be a part of it.
        return not (_all_in(values, one, other) or _all_in(other_values, other, one))
    return not (values <= other_values or other_values <= values)


def _all_in(values: frozenset[str] | None, text: str, other: str) -> bool:
    return all(value in other for value in ((text.strip(),) if values is None else values))


def _argument_values(arguments: object) -> frozenset[str] | None:
    """The texts and numbers in decoded arguments, at any depth; None where they are neither object nor list."""
    values = frozenset(scalar_texts(arguments))
    return values if isinstance(arguments, (dict, list)) else None


__all__ = ["have_other_arguments", "tool_span_calls"]
