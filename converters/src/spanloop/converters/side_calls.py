"""Model calls beside an agent: a title, tags, moderation, a rating. They are no part of its conversation.

Such a call makes one request without tools under no agent of its own, is given no tool's result, and no later call is
sent its answer. It counts as a side call where it began after the agent's answer, ran at the same time as a call of the
agent, or failed while no tool was running.

Invariant: a side call never decides, scores or ends an episode. The agent's last call is the episode's last step.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from spanloop.messages import dump

from .linking import Group, SpanKey, inherit
from .spans import Span, SpanKind


def side_calls(group: Group, parents: Mapping[SpanKey, SpanKey]) -> frozenset[SpanKey]:
    """Return the side calls of ``group``.

    Args:
        group: Spans of one episode.
        parents: Call → the call that it continues.
    """
    calls = group.calls
    if len(calls) == 1:
        return frozenset()
    links = [(call.key, parents[call.key]) for call in calls if call.key in parents]
    linked = {key for link in links for key in link}
    agent_keys = {call.key for call in calls if call.key in linked or uses_tools(call)} or _within_agents(group)
    single = [call for call in calls if call.key not in agent_keys and call.history.length]
    if not single or not agent_keys:
        return frozenset()
    agent_calls = sorted((call for call in calls if call.key in agent_keys), key=lambda call: call.start_ns)
    conversations = {conversation_of(call) for call in agent_calls}
    single = [call for call in single if conversation_of(call) not in conversations and _is_apart(call, agent_calls)]
    if not single:
        return frozenset()
    is_part = _is_part_of_team(group, agent_calls)
    results = _tool_results(group, agent_calls)
    keys = {call.key for call in single}
    return frozenset(
        call.key for call in single if not (is_part(call) or _is_given(call, results) or _is_sent_on(call, calls, keys))
    )


def with_agent_last(calls: Sequence[Span], side: Collection[SpanKey]) -> list[Span]:
    """Return ``calls`` with the side calls that stand behind the agent's last call right before it."""
    last = max(place for place, call in enumerate(calls) if call.key not in side)
    return [*calls[:last], *calls[last + 1 :], calls[last]]


def uses_tools(call: Span) -> bool:
    """Whether a call offers tools, or its answer calls some."""
    return call.tools != "[]" or any(message.tool_calls for message in call.output)


def _within_agents(group: Group) -> set[SpanKey]:
    """Calls that run within the time of an agent's span above them."""
    agents = {_place(span): span for span in group.context if span.kind is SpanKind.AGENT}
    if not agents:
        return set()
    spans = group.spans
    parents = {_place(span): f"{span.trace_id}/{span.parent_span_id}" for span in spans}
    nearest = inherit(parents, {place: place if place in agents else "" for place in parents})
    above = ((call, agents.get(nearest[_place(call)])) for call in group.calls)
    return {call.key for call, agent in above if agent is not None and call.start_ns < agent.end_ns}


def conversation_of(call: Span) -> tuple[int, tuple[str, ...]]:
    """Return the number of the system prompt and the first user message: what one agent's conversation keeps."""
    return call.history.system_number, () if call.history.user is None else call.history.user.content


def _is_apart(call: Span, agent_calls: Sequence[Span]) -> bool:
    """Whether ``call`` stands beside ``agent_calls``, in the order of start; a tool that runs may have made it."""
    if any(call.start_ns < other.end_ns and other.start_ns < call.end_ns for other in agent_calls):
        return True
    place = bisect_left(agent_calls, call.start_ns, key=lambda other: other.start_ns)
    if place == 0:
        return call.has_failed
    before = agent_calls[place - 1]
    if not before.has_failed and before.output and before.output[0].tool_calls:
        return False
    return call.has_failed or place == len(agent_calls)


def _is_part_of_team(group: Group, agent_calls: Sequence[Span]) -> Callable[[Span], bool]:
    """Whether a call stands under a tool, or under an agent whose name no call of ``agent_calls`` has."""
    spans = group.spans
    parents = {_place(span): f"{span.trace_id}/{span.parent_span_id}" for span in spans}
    tools = inherit(parents, {_place(span): "tool" if span.kind is SpanKind.TOOL else "" for span in spans})
    names = inherit(parents, {_place(span): span.agent_name for span in spans})
    known = {names[_place(call)] for call in agent_calls}
    return lambda call: bool(tools[_place(call)]) or (bool(names[_place(call)]) and names[_place(call)] not in known)


def _tool_results(group: Group, agent_calls: Sequence[Span]) -> list[str]:
    """Beginnings of what tools answered and the agent did not say: who is given them works on the task."""
    texts = [span.tool_result for span in group.context if span.kind is SpanKind.TOOL]
    texts += [response.content for call in agent_calls for message in call.input for response in message.tool_responses]
    beginnings = {text.strip()[:_BEGINNING] for text in texts}
    answers = "\n".join(call.output[0].text for call in agent_calls if call.output)
    task = "\n".join(message.text for message in agent_calls[0].input)
    return [text for text in beginnings if len(text) >= _SHORTEST and text not in answers and text not in task]


_BEGINNING: Final = 40
_SHORTEST: Final = 4
"""Characters of a result: fewer are found in any text."""


def _is_given(call: Span, results: Sequence[str]) -> bool:
    text = "\n".join(message.text for message in call.input)
    return any(result in text or dump(result)[1:-1] in text for result in results)


def _place(span: Span) -> str:
    return f"{span.trace_id}/{span.span_id}"


def _is_sent_on(call: Span, calls: Sequence[Span], single: Collection[SpanKey]) -> bool:
    """Whether a later call of the agent is sent the answer, or a part of the answer is."""
    text = call.output[0].text.strip() if call.output else ""
    if not text:
        return False
    return any(
        text in message.text or any(text in response.content for response in message.tool_responses)
        for later in calls
        if later.start_ns >= call.end_ns and later.key not in single
        for message in later.input
    )
