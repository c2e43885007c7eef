"""One model call that two instrumentors recorded becomes one step.

Invariant: two spans are one call when one ran within the other's time and lies under it, or (the instrumentors know
nothing of each other: siblings, or one alone in a trace of its own) comes from another scope of the same service; and
their response ids, their inputs, or else their outputs with the ids of the tool calls agree, or (where one lies under
the other) with the ids of the tool results that they were sent. One of them may have captured nothing. Two whole traces
are one call only by a unique id: two programs may send the same. Of a nested pair the richer stays (output, input,
token counts, then the inner one), of the others the outer one, whose trace tells of agents and tools; what only the
other knows is taken over. The other is rejected by name.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from msgspec.structs import replace

from ..linking.identity import is_unique
from ..linking.initial_grouping import inherit
from ..spans import Rejected, Span, SpanKind
from .processes import Processes

SpanKey = tuple[str, str]


class Collapsed(NamedTuple):
    """Spans in their order, less the duplicates, and the duplicates."""

    spans: list[Span]
    rejected: list[Rejected]
    kept: dict[SpanKey, SpanKey]
    """Duplicate → the span that stays for it."""


class _Origins:
    """Which spans of different traces one program may have recorded."""

    def __init__(self, spans: Sequence[Span], processes: Processes | None) -> None:
        self._spans = spans
        self._processes = processes

    def may_be_one(self, outer: Span, inner: Span) -> bool:
        """Whether one process may have recorded both."""
        return outer.trace_id == inner.trace_id or self._are_of_one_process(outer, inner) is not False

    def may_be_across_traces(self, outer: Span, inner: Span) -> bool:
        """Whether one of them is part of a program's trace and the other a tracer's span that was not linked to it.

        Two whole traces are of two programs. So are two calls alone, unless they are known to be of one process.
        """
        if outer.trace_id == inner.trace_id or self._is_alone(outer) != self._is_alone(inner):
            return True
        return self._is_alone(outer) and self._are_of_one_process(outer, inner) is True

    def _are_of_one_process(self, outer: Span, inner: Span) -> bool | None:
        return None if self._processes is None else self._processes.are_one(outer.key, inner.key)

    def _is_alone(self, span: Span) -> bool:
        return self._sizes[span.trace_id] == 1

    @cached_property
    def _sizes(self) -> Counter[str]:
        return Counter(span.trace_id for span in self._spans)


def collapse(spans: Sequence[Span], processes: Processes | None = None) -> Collapsed:
    """Drop the model calls that repeat another one.

    Args:
        spans: In the order of start and id.
        processes: The processes of the spans, as far as they are known.
    """
    if not _may_repeat(spans):
        return Collapsed(list(spans), [], {})
    origins = _Origins(spans, processes)
    by_trace: dict[str, list[Span]] = defaultdict(list)
    for span in spans:
        by_trace[span.trace_id].append(span)
    dropped: dict[SpanKey, Span] = {}
    for members in by_trace.values():
        if sum(span.kind is SpanKind.LLM for span in members) > 1:
            dropped.update(_nested(members))
    for duplicates in (_duplicates_across_traces, _duplicates_without_content, _duplicates_without_response_id):
        calls = (span for span in spans if span.kind is SpanKind.LLM and span.key not in dropped)
        dropped.update(duplicates(calls, origins))
    if not dropped:
        return Collapsed(list(spans), [], {})
    rejected = [
        Rejected(*key, "duplicate_model_call", f"the same call as span {kept.span_id}")
        for key, kept in sorted(dropped.items(), key=lambda item: item[0])
    ]
    gone: dict[SpanKey, list[Span]] = defaultdict(list)
    for span in spans:
        if span.key in dropped:
            gone[_last(dropped, span.key)].append(span)
    return Collapsed(
        [_inherit(span, gone.get(span.key, ())) for span in spans if span.key not in dropped],
        rejected,
        {key: _last(dropped, key) for key in dropped},
    )


def _may_repeat(spans: Sequence[Span]) -> bool:
    """Whether a span lies below a model call, or two calls of a service have an id, content or two recorders in common.

    All rules below ask for one of these.
    """
    calls = [span for span in spans if span.kind is SpanKind.LLM]
    span_ids = {call.span_id for call in calls}
    below = [span for span in spans if span.parent_span_id in span_ids]
    if below and not {(span.trace_id, span.parent_span_id) for span in below}.isdisjoint(call.key for call in calls):
        return True
    recorders: dict[str, str] = {}
    if any(recorders.setdefault(call.service_name, call.recorder) != call.recorder for call in calls):
        return _share_content(calls)
    responses = [call.response_id for call in calls if call.response_id]
    return _repeat(responses)


def _share_content(calls: Sequence[Span]) -> bool:
    if any(not (call.output or call.history.length) for call in calls):
        return True
    responses = [call.response_id for call in calls if call.response_id]
    ids = [request.id for call in calls for message in call.output for request in message.tool_calls]
    evidence = (
        _by_input,
        *((_by_response_id,) if _repeat(responses) else ()),
        *((_by_output,) if _repeat(ids) else ()),
    )
    places = [[place for call in calls if (place := evidence_of(call))] for evidence_of in evidence]
    return any(map(_repeat, places))


def _repeat(values: Sequence[Hashable]) -> bool:
    return len(set(values)) < len(values)


def _last(dropped: Mapping[SpanKey, Span], key: SpanKey) -> SpanKey:
    """Who stays in the end, where a span that was kept was dropped for another."""
    while key in dropped:
        key = dropped[key].key
    return key


def _inherit(kept: Span, gone: Iterable[Span]) -> Span:
    """``kept``, where its duplicates were in the span tree, with what only they know, as new as the newest."""
    for other in gone:
        if other.has_failed and not kept.has_failed and not kept.output:
            kept = replace(kept, is_error=other.is_error, error_type=other.error_type, exception=other.exception)
        parent = other.parent_span_id if kept.parent_span_id == other.span_id else kept.parent_span_id
        if kept.has_failed and not kept.exception.type:
            kept = replace(kept, exception=other.exception if other.exception.type else kept.exception)
        kept = replace(
            kept,
            parent_span_id=parent,
            ingested_us=max(kept.ingested_us, other.ingested_us),
            agent_name=kept.agent_name or other.agent_name,
            conversation_id=kept.conversation_id or other.conversation_id,
            session_id=kept.session_id or other.session_id,
            episode_key=kept.episode_key or other.episode_key,
            task_id=kept.task_id or other.task_id,
            response_model=kept.response_model or other.response_model,
            response_id=kept.response_id or other.response_id,
            finish_reason=kept.finish_reason or other.finish_reason,
            sampling=kept.sampling or other.sampling,
            tools=other.tools if kept.tools == "[]" else kept.tools,
            input_tokens=kept.input_tokens or other.input_tokens,
            output_tokens=kept.output_tokens or other.output_tokens,
            cached_tokens=kept.cached_tokens or other.cached_tokens,
            first_token_ns=other.first_token_ns if kept.first_token_ns is None else kept.first_token_ns,
        )
    return kept


def _duplicates_across_traces(calls: Iterable[Span], origins: _Origins) -> dict[SpanKey, Span]:
    """The calls that another tracer recorded at the time of an equal one: dropped → kept.

    Equal are calls with one input, with one response id, or with one output whose tool calls have equal ids.
    """
    waiting = list(calls)
    dropped: dict[SpanKey, Span] = {}
    for evidence in (_by_input, _by_response_id, _by_output):
        buckets: dict[Evidence, list[Span]] = defaultdict(list)
        for call in waiting:
            if call.key not in dropped and (place := evidence(call)):
                buckets[place].append(call)
        for members in buckets.values():
            if len(members) > 1:
                dropped.update(_at_once(members, origins, evidence))
    return dropped


Evidence = tuple[object, ...]


def _by_input(call: Span) -> Evidence:
    return (call.service_name, call.history.number) if call.history.length else ()


def _by_response_id(call: Span) -> Evidence:
    if not call.response_id:
        return ()
    seen = 0 if is_unique(call.response_id) or not call.input else call.history.number
    return (call.service_name, call.response_id, seen)


def _by_output(call: Span) -> Evidence:
    ids = [request.id for message in call.output for request in message.tool_calls]
    if not ids or not all(ids):
        return ()
    trace_id = "" if all(map(is_unique, ids)) else call.trace_id
    return (call.service_name, trace_id, *(message.content for message in call.output), *ids)


def _by_results(call: Span) -> Evidence:
    """The ids of the tool results that a call was sent, in one message or several, and what it answered."""
    ids = [response.id for message in call.input for response in message.tool_responses]
    return (*ids, *(message.content for message in call.output)) if ids and all(ids) and call.output else ()


def _duplicates_without_content(calls: Iterable[Span], origins: _Origins) -> dict[SpanKey, Span]:
    """The calls without content that another span recorded with it, told by the response id: dropped → kept.

    An SDK that traces itself (Anthropic's does) is a sibling of the instrumentor's span, and may end after it.
    """
    answers: dict[tuple[str, str], list[Span]] = defaultdict(list)
    without_content: set[tuple[str, str]] = set()
    for call in calls:
        if call.response_id:
            answers[call.service_name, call.response_id].append(call)
            if not (call.input or call.output):
                without_content.add((call.service_name, call.response_id))
    dropped: dict[SpanKey, Span] = {}
    for members in (answers[place] for place in sorted(without_content) if len(answers[place]) > 1):
        full = sorted(
            (call for call in members if call.input and call.output), key=lambda call: (call.start_ns, call.key)
        )
        starts = [call.start_ns for call in full]
        for empty in members:
            before = bisect_left(starts, empty.end_ns)
            if before and not (empty.input or empty.output) and _is_of(full[before - 1], empty, origins):
                dropped[empty.key] = full[before - 1]
    return dropped


def _is_of(full: Span, empty: Span, origins: _Origins) -> bool:
    """Whether ``empty`` took place during ``full``; for a counted id in another trace, whether it lies right within."""
    if full.end_ns <= empty.start_ns or not origins.may_be_one(full, empty):
        return False
    if full.trace_id == empty.trace_id or is_unique(empty.response_id):
        return True
    is_within = full.start_ns <= empty.start_ns and empty.end_ns <= full.end_ns
    is_one_model = not empty.request_model or not full.request_model or empty.request_model == full.request_model
    return is_within and is_one_model and empty.recorder != full.recorder


def _duplicates_without_response_id(calls: Iterable[Span], origins: _Origins) -> dict[SpanKey, Span]:
    """The calls of which no word is known, right within one that another scope knows more of, but no response id.

    Mistral's SDK traces itself so, and Anthropic's what was refused or goes through a framework's stream; one for one,
    because calls may run side by side.
    """
    places: dict[tuple[str, str], list[Span]] = defaultdict(list)
    for call in calls:
        if call.request_model:
            places[call.service_name, call.request_model].append(call)
    dropped: dict[SpanKey, Span] = {}
    for members in places.values():
        if len({call.recorder for call in members}) < 2:
            continue
        waiting: list[Span] = []
        for call in sorted(members, key=lambda span: (span.start_ns, -span.end_ns, span.key)):
            waiting = [outer for outer in waiting if outer.end_ns > call.start_ns]
            around = (outer for outer in waiting if _may_know(outer, call) and origins.may_be_one(outer, call))
            if not (call.input or call.output) and (outer := next(around, None)) is not None:
                waiting.remove(outer)
                dropped[call.key] = outer
            elif call.input or call.output or call.response_id:
                waiting.append(call)
    return dropped


def _may_know(outer: Span, inner: Span) -> bool:
    agrees = all(
        not one or not other or one == other
        for one, other in (
            (outer.input_tokens, inner.input_tokens),
            (outer.output_tokens, inner.output_tokens),
        )
    )
    is_within = inner.end_ns <= outer.end_ns and outer.recorder != inner.recorder
    is_open = not (outer.response_id and inner.response_id)
    return is_within and is_open and agrees and outer.has_failed == inner.has_failed


def _at_once(members: Iterable[Span], origins: _Origins, evidence: Callable[[Span], Evidence]) -> dict[SpanKey, Span]:
    """Each call that ran during an earlier one of another tracer, and the one that it ran in; one for one a tracer."""
    waiting: list[tuple[Span, set[str]]] = []
    repeated: dict[SpanKey, Span] = {}
    for inner in sorted(members, key=lambda span: (span.start_ns, -span.end_ns, span.key)):
        waiting = [(outer, recorders) for outer, recorders in waiting if outer.end_ns > inner.start_ns]
        for outer, recorders in waiting:
            is_contained = inner.end_ns <= outer.end_ns or evidence is not _by_input
            if is_contained and _is_recorded_twice(outer, inner, recorders, origins, is_id=evidence is _by_output):
                repeated[inner.key] = outer
                recorders.add(inner.recorder)
                break
        else:
            waiting.append((inner, {inner.recorder}))
    return repeated


def _is_recorded_twice(outer: Span, inner: Span, recorders: Collection[str], origins: _Origins, *, is_id: bool) -> bool:
    """Whether ``inner`` is ``outer``, seen by a tracer that is none of ``recorders``.

    Args:
        outer: The call that began first.
        inner: One with an equal input, response id or output.
        recorders: Tracers that recorded ``outer``.
        origins: Of all spans.
        is_id: Whether the two agree in ids of tool calls; across traces those are unique.
    """
    if not (_may_be_equal(outer, inner) and origins.may_be_one(outer, inner)):
        return False
    if _is_one_response(outer, inner):
        return True
    return inner.recorder not in recorders and (is_id or origins.may_be_across_traces(outer, inner))


def _is_one_response(outer: Span, inner: Span) -> bool:
    return outer.response_id == inner.response_id and is_unique(outer.response_id)


def _may_be_equal(outer: Span, inner: Span) -> bool:
    if outer.response_id and inner.response_id and outer.response_id != inner.response_id:
        return False
    outputs = [tuple(message.content for message in span.output) for span in (outer, inner)]
    return not all(outputs) or outputs[0] == outputs[1]


def _nested(members: Iterable[Span]) -> dict[SpanKey, Span]:
    spans = list(members)
    calls = {span.span_id: span for span in spans if span.kind is SpanKind.LLM}
    parents = {span.span_id: span.parent_span_id for span in spans}
    if calls.keys().isdisjoint(parents.values()):
        return {}
    nearest = inherit(parents, {span.span_id: span.span_id if span.span_id in calls else "" for span in spans})
    dropped: dict[SpanKey, Span] = {}
    for inner in calls.values():
        outer = calls.get(nearest.get(inner.parent_span_id, ""))
        if outer is None or outer is inner or inner.key in dropped or outer.key in dropped:
            continue
        if _is_same(outer, inner):
            kept, gone = (outer, inner) if _richness(outer) > _richness(inner) else (inner, outer)
            dropped[gone.key] = kept
    return dropped


def _is_same(outer: Span, inner: Span) -> bool:
    if inner.start_ns < outer.start_ns or (inner.end_ns > outer.end_ns and not _is_inner_call(outer, inner)):
        return False
    if outer.response_id and inner.response_id:
        return outer.response_id == inner.response_id
    if not outer.input or not inner.input or outer.history.number == inner.history.number:
        return True
    evidence = ((_by_output(outer), _by_output(inner)), (_by_results(outer), _by_results(inner)))
    return any(one and one == other for one, other in evidence)


def _is_inner_call(outer: Span, inner: Span) -> bool:
    """Whether ``inner``, right below ``outer``, is its call, though it ended later.

    An SDK's own span may end a little later, that of a stream which ``outer``'s function only handed on much later.
    """
    is_empty = not (inner.input or inner.output)
    is_handed_on = not outer.output and outer.history.number == inner.history.number
    is_below = inner.parent_span_id == outer.span_id and inner.start_ns <= outer.end_ns
    return (is_empty or is_handed_on) and is_below and inner.request_model == outer.request_model


def _richness(span: Span) -> tuple[bool, bool, bool]:
    return bool(span.output), bool(span.input), span.output_tokens > 0
