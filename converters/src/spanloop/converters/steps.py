"""An episode as steps: which agent acted, what its tools answered, what came next.

Invariant: every model call of the group is exactly one step, each after the one that it continues; ``following`` of
a step is the step that continues it, else the next one of its thread. A thread is one agent's conversation: steps
that continue one another, or that share agent, system prompt and first user message.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from spanloop.messages import parse_json
from spanloop.messages.chat_forms import as_fields, as_list
from spanloop.messages.hosted_tools import own_answers

from .captures import NO_CAPTURE, Capture
from .choices import CapturedTokens, next_calls, with_used_choices
from .continuation import Evidence, continues
from .error_texts import Verdicts
from .side_calls import side_calls, with_agent_last
from .spans import Span, SpanKind
from .stitch import Group, SpanKey, Stitched, inherit
from .tool_results import ToolResult, tool_results
from .untold_answers import with_told_answers
from .written_calls import with_written_calls

Thread = tuple[str, bytes, bytes]


@dataclass(frozen=True, slots=True)
class Step:
    """One action of the policy."""

    index: int
    span: Span
    agent_name: str
    thread: Thread
    continues: int | None
    """Index of the step whose input and output this step's input starts with."""
    previous: int | None
    """``continues``, else the step before in the same thread; None for the first."""
    following: int | None
    results: tuple[ToolResult, ...]
    capture: Capture
    evidence: Evidence | None = None
    """Why it continues the step ``continues``; None for the first step of a conversation."""
    is_continued: bool = False
    """Whether the next step was sent the answer of this one, a stream without a finish reason."""

    @property
    def policy_version(self) -> str:
        """``name@version`` of the weights that answered; empty when nobody said."""
        if self.capture.generation is not None and self.capture.generation.policy_version:
            return self.capture.generation.policy_version
        return self.span.response_model if "@" in self.span.response_model else ""

    @property
    def tokenizer(self) -> str:
        """Fingerprint of the tokenizer and chat template of its capture; empty when nobody said."""
        return "" if self.capture.generation is None else self.capture.generation.tokenizer

    @property
    def model(self) -> str:
        """The model that answered, else the one asked for."""
        return self.span.response_model or self.span.request_model


@dataclass(frozen=True)
class Episode:
    """One task attempt."""

    episode_id: str
    episode_key: str
    steps: tuple[Step, ...]
    context: tuple[Span, ...]
    side_steps: frozenset[int] = frozenset()
    """Indices of the steps that are side calls; never the last one."""

    @cached_property
    def first_step(self) -> Step:
        """The agent's first step."""
        return next(step for step in self.steps if step.index not in self.side_steps)

    @cached_property
    def spans(self) -> list[Span]:
        """Every span of the episode."""
        return [*(step.span for step in self.steps), *self.context]

    @cached_property
    def task_id(self) -> str:
        """The smallest task id that a span carries; empty without one."""
        return min((span.task_id for span in self.spans if span.task_id), default="")

    @cached_property
    def session_id(self) -> str:
        """The smallest session id, else conversation id, that a span carries."""
        found = [span.session_id for span in self.spans if span.session_id]
        return min(found or [span.conversation_id for span in self.spans if span.conversation_id], default="")


def build_episode(
    group: Group,
    stitched: Stitched,
    captures: Mapping[SpanKey, Capture],
    tokens: CapturedTokens,
    verdicts: Verdicts,
) -> Episode:
    """Order the group's model calls into steps and attach what belongs to each."""
    side = side_calls(group, stitched.parents)
    calls = with_told_answers(with_agent_last(group.calls, side) if side else group.calls)
    index_of = {call.key: index for index, call in enumerate(calls)}
    agents = _agents(calls, group.context)
    parents = (index_of.get(stitched.parents.get(call.key, ("", ""))) for call in calls)
    above = [_earlier(parent, index) for index, parent in enumerate(parents)]
    threads = _threads(calls, above, agents)
    previous = _previous(above, threads)
    following = _following(above, previous)
    calls, captures = with_used_choices(calls, captures, next_calls(above, following), group.context, tokens)
    calls = with_written_calls(calls, group.context)
    results = _results(calls, following, group.context, verdicts)
    steps = tuple(
        Step(
            index=index,
            span=call,
            agent_name=agents[call.key],
            thread=threads[index],
            continues=above[index],
            previous=previous[index],
            following=following.get(index),
            results=results[index],
            capture=captures.get(call.key, NO_CAPTURE),
            evidence=None if above[index] is None else stitched.evidence.get(call.key),
            is_continued=_is_continued(call, _next_input(calls, following.get(index))),
        )
        for index, call in enumerate(calls)
    )
    side_steps = frozenset(index_of[key] for key in side)
    return Episode(group.episode_id, group.episode_key, steps, tuple(group.context), side_steps)


def _earlier(parent: int | None, index: int) -> int | None:
    """A predecessor must come before; one that does not (a cycle of skewed clocks) is none."""
    return parent if parent is not None and parent < index else None


def _agents(calls: Sequence[Span], context: Sequence[Span]) -> dict[SpanKey, str]:
    """The agent name of each call at least: its own, else that of the nearest ancestor in its trace."""
    if not any(span.agent_name for span in context):
        named = {call.agent_name for call in calls}
        if len(named) == 1:
            return dict.fromkeys((call.key for call in calls), named.pop())
    by_trace: dict[str, list[Span]] = defaultdict(list)
    for span in (*calls, *context):
        by_trace[span.trace_id].append(span)
    found: dict[SpanKey, str] = {}
    for trace_id, members in by_trace.items():
        own = {span.span_id: span.agent_name for span in members}
        nearest = inherit({span.span_id: span.parent_span_id for span in members}, own)
        found.update(((trace_id, span_id), name) for span_id, name in nearest.items())
    return found


def _thread(call: Span, agent_name: str) -> Thread:
    history = call.history
    return agent_name, history.system_digest, b"" if history.user is None else history.user.digest


def _threads(calls: Sequence[Span], continues: Sequence[int | None], agents: Mapping[SpanKey, str]) -> list[Thread]:
    threads: list[Thread] = []
    rewritten: dict[Thread, Thread] = {}
    for index, call in enumerate(calls):
        above = continues[index]
        if above is None:
            own = _thread(call, agents[call.key])
            threads.append(rewritten.get(own, own))
            continue
        threads.append(threads[above])
        if call.history.length == calls[above].history.length:
            # what came since was written into a message, which may be the one that names the thread
            rewritten[_thread(call, agents[call.key])] = threads[above]
    return threads


def _previous(continues: Sequence[int | None], threads: Sequence[Thread]) -> list[int | None]:
    newest: dict[Thread, int] = {}
    found: list[int | None] = []
    for index, thread in enumerate(threads):
        above = continues[index]
        found.append(newest.get(thread) if above is None else above)
        newest[thread] = index
    return found


def _following(continues: Sequence[int | None], previous: Sequence[int | None]) -> dict[int, int]:
    found: dict[int, int] = {}
    for links in (continues, previous):
        for index, above in enumerate(links):
            if above is not None:
                found.setdefault(above, index)
    return found


def _is_continued(call: Span, after: Span | None) -> bool:
    """Whether ``after`` was sent the input and the whole output of ``call``; asked for streams without an end only."""
    if after is None or not call.is_streaming or call.finish_reason or not call.output:
        return False
    return continues(call, after).choice == 0


class _ToolSpans(NamedTuple):
    """The spans of tools that are not yet taken as results, by start."""

    by_id: Mapping[str, deque[Span]]
    by_name: Mapping[str, deque[Span]]


def _results(
    calls: Sequence[Span], following: Mapping[int, int], context: Sequence[Span], verdicts: Verdicts
) -> list[tuple[ToolResult, ...]]:
    by_id: dict[str, deque[Span]] = defaultdict(deque)
    by_name: dict[str, deque[Span]] = defaultdict(deque)
    asked = {tool_call.id for call in calls for message in call.output[:1] for tool_call in message.tool_calls}
    for span in _tool_calls(calls, context, asked):
        # A framework may give a call an id of its own, which no model asked with: its name tells then.
        if span.tool_call_id and span.tool_call_id in asked:
            by_id[span.tool_call_id].append(span)
        else:
            by_name[span.tool_name].append(span)
    return [
        _results_of(call, _next_input(calls, following.get(index)), _ToolSpans(by_id, by_name), verdicts)
        for index, call in enumerate(calls)
    ]


def _tool_calls(calls: Sequence[Span], context: Sequence[Span], asked: AbstractSet[str]) -> list[Span]:
    """One span for each call of a tool, by start; those right within another are the same call, seen again."""
    tools = sorted((span for span in context if span.kind is SpanKind.TOOL), key=lambda span: (span.start_ns, span.key))
    kinds = {span.key: span.kind for span in context}
    inner = (SpanKind.TOOL, SpanKind.OTHER)
    if len(tools) <= 1 or not any(kinds.get((span.trace_id, span.parent_span_id)) in inner for span in tools):
        return tools
    roots = _outermost_tools(tools, (*calls, *context))
    groups: dict[SpanKey, list[Span]] = defaultdict(list)
    for span in tools:
        groups[roots[span.key]].append(span)
    return [_one_call(group, asked) for group in groups.values()]


def _one_call(group: Sequence[Span], asked: AbstractSet[str]) -> Span:
    """The span with the id that the model gave the call, with any one's answer, failed when any of them did."""
    kept = next((span for span in group if span.tool_call_id and span.tool_call_id in asked), group[0])
    kept = kept._replace(tool_result=next((span.tool_result for span in (kept, *group) if span.tool_result), ""))
    failed = next((span for span in group if span.has_failed), None)
    if failed is None or kept.has_failed:
        return kept
    return kept._replace(
        is_error=failed.is_error,
        error_type=failed.error_type,
        exception=failed.exception,
        status_message=failed.status_message,
    )


def _outermost_tools(tools: Sequence[Span], spans: Iterable[Span]) -> dict[SpanKey, SpanKey]:
    """Tool span → the span of its tool or call that it lies in, with neither a model call nor an agent in between."""
    by_trace: dict[str, list[Span]] = defaultdict(list)
    for span in spans:
        by_trace[span.trace_id].append(span)
    found: dict[SpanKey, SpanKey] = {}
    for trace_id in {span.trace_id for span in tools}:
        members = by_trace[trace_id]
        own = {span.span_id: span.span_id if span.kind is not SpanKind.OTHER else "" for span in members}
        nearest = inherit({span.span_id: span.parent_span_id for span in members}, own)
        of_tools = {span.span_id: span for span in members if span.kind is SpanKind.TOOL}
        inner = {span_id: nearest.get(span.parent_span_id, "") for span_id, span in of_tools.items()}
        inner = {
            key: above if above in of_tools and _is_one_call(of_tools[key], of_tools[above]) else ""
            for key, above in inner.items()
        }
        roots = inherit(inner, {span_id: "" if above in inner else span_id for span_id, above in inner.items()})
        found.update(((trace_id, span_id), (trace_id, root or span_id)) for span_id, root in roots.items())
    return found


def _is_one_call(inner: Span, outer: Span) -> bool:
    is_named_alike = bool(inner.tool_call_id) and inner.tool_call_id == outer.tool_call_id
    return is_named_alike or _is_one_tool(inner.tool_name, outer.tool_name)


def _is_one_tool(one: str, other: str) -> bool:
    """Whether two names are of one tool, one of them perhaps behind its agent's or server's."""
    shorter, longer = sorted((one, other), key=len)
    return bool(shorter) and (shorter == longer or (longer.endswith(shorter) and longer[-len(shorter) - 1] in "./-_:"))


def _next_input(calls: Sequence[Span], index: int | None) -> Span | None:
    return None if index is None else calls[index]


def _results_of(call: Span, after: Span | None, tools: _ToolSpans, verdicts: Verdicts) -> tuple[ToolResult, ...]:
    asked = call.output[0].tool_calls if call.output else ()
    if not asked:
        return ()
    queues = [tools.by_id.get(tool_call.id) or tools.by_name.get(tool_call.name) for tool_call in asked]
    spans = [waiting.popleft() if waiting else None for waiting in queues]
    continuation = continues(call, after) if after else None
    news = continuation.new_messages if continuation else ()
    responses = [response for message in news for response in message.tool_responses]
    own = {tool_call.id for tool_call in asked}
    if after and continuation and not responses and not continuation.repeats_input:
        # An API that keeps the history is sent the answers only.
        told = (response for message in after.input for response in message.tool_responses)
        responses = [response for response in told if response.id and response.id in own]
    if len(responses) == len(asked) and not any(response.id in own for response in responses):
        # OpenLLMetry names a Responses API's calls by their items, and their answers by the calls: order tells.
        responses = [response._replace(id=call.id) for response, call in zip(responses, asked, strict=True)]
    hosted = own_answers(call.output[0])
    responses = [*(answer.response for answer in hosted), *responses]
    shown = {response.id: response.content for response in responses if response.id}
    unnamed = [response.content for response in responses if not response.id]
    found = tool_results(asked, spans, shown, unnamed, verdicts)
    failed = {identity for message in news if IS_ERROR in message.json for identity in _failed(message.json)}
    failed.update(answer.response.id for answer in hosted if answer.is_error)
    return tuple(result.marked_failed() if result.tool_call_id in failed else result for result in found)


IS_ERROR: Final = '"is_error":true'
"""In a message's JSON: an API that marks a tool's answer as an error (Anthropic, Bedrock), whatever its text says."""


def _failed(text: str) -> list[str]:
    """Ids of the tool answers that a message marks as errors."""
    parts = [as_fields(part) for part in as_list(as_fields(parse_json(text)).get("parts"))]
    return [str(part.get("id")) for part in parts if part.get("is_error") is True and part.get("id")]
