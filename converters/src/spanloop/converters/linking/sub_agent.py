"""A conversation that a tool call started belongs to the episode of that tool call.

An agent used as a tool leaves no id behind when every call is a trace of its own. What it does leave: its first
user message is the text of an argument of the tool call, and its last answer is the text of the tool's response.
Both must agree, and the conversation must lie within the tool call's time. A conversation whose own trace holds its
caller belongs there; of several callers, one that no other conversation answered comes first. Invariant: an episode
joins one calling episode at most, so that parallel attempts at one task stay apart.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, cast

from spanloop.messages import ToolCall, ToolResponse, parse_json

from ..spans import Span
from .base import Call

SpanKey = tuple[str, str]


class _Asker(NamedTuple):
    """A tool call with the answer that the model was given."""

    call: Span
    position: int
    """Position of the tool call in the answer of ``call``."""
    until_ns: int
    """Start of the call that was sent the answer."""


def sub_agents(
    linked: Sequence[Call], parents: Mapping[SpanKey, SpanKey], episode_of: Callable[[SpanKey], str]
) -> Iterator[tuple[Span, Span]]:
    """Pairs of (first call of a conversation, the call of another episode whose tool call started it).

    Args:
        linked: Model calls in the order of start and id, of traces that no episode id names.
        parents: Call → the call that it continues.
        episode_of: Call → the set of homes that continuations have joined.
    """
    calls = [call.span for call in linked]
    known = {call.key: call for call in calls}
    continued = set(parents.values())
    leaves = [call for call in calls if call.key not in continued and call.output and call.output[0].text.strip()]
    askers = _askers(linked, parents, known, {leaf.output[0].text.strip() for leaf in leaves})
    if not askers:
        return
    roots = _roots(calls, parents, known)
    by_trace: dict[str, list[Span]] = defaultdict(list)
    for call in calls:
        by_trace[call.trace_id].append(call)
    answered: set[tuple[SpanKey, int]] = set()
    caller_of: dict[str, str] = {}
    for leaf in leaves:
        root = roots[leaf.key]
        question = next((message.text.strip() for message in root.input if message.role == "user"), "")
        within = [
            asker
            for asker in askers.get((question, leaf.output[0].text.strip()), ())
            if asker.call.service_name == root.service_name
            and asker.call.end_ns <= root.start_ns
            and leaf.end_ns <= asker.until_ns
        ]
        episode = episode_of(root.key)
        callers = [asker for asker in within if caller_of.get(episode) in {None, episode_of(asker.call.key)}]
        if not callers or _is_called_by(by_trace[root.trace_id], root, question):
            continue
        free = [asker for asker in callers if (asker.call.key, asker.position) not in answered]
        caller = (free or callers)[-1]
        answered.add((caller.call.key, caller.position))
        caller_of[episode] = episode_of(caller.call.key)
        if caller_of[episode] != episode:
            yield root, caller.call


def _is_called_by(calls: Sequence[Span], root: Span, question: str) -> bool:
    """Whether an earlier call of the same trace asked a tool the question."""
    return any(
        question in _argument_texts(request.arguments)
        for call in calls
        if call.key != root.key and call.end_ns <= root.start_ns
        for message in call.output
        for request in message.tool_calls
        if request.is_valid
    )


def _roots(
    calls: Sequence[Span], parents: Mapping[SpanKey, SpanKey], known: Mapping[SpanKey, Span]
) -> dict[SpanKey, Span]:
    """The first call of each call's conversation; each call is looked at once, cycles end where they began."""
    root_of: dict[SpanKey, Span] = {}
    for call in calls:
        path: dict[SpanKey, None] = {}
        current = call
        while current.key not in root_of and current.key not in path:
            path[current.key] = None
            above = known.get(parents.get(current.key, ("", "")))
            if above is None:
                break
            current = above
        root = root_of.get(current.key, current)
        root_of.update(dict.fromkeys(path, root))
    return root_of


def _askers(
    linked: Sequence[Call], parents: Mapping[SpanKey, SpanKey], known: Mapping[SpanKey, Span], answers: set[str]
) -> dict[tuple[str, str], list[_Asker]]:
    """(argument text, response text) → the tool calls with both; only responses among ``answers`` count."""
    askers: dict[tuple[str, str], list[_Asker]] = defaultdict(list)
    for call in linked:
        responses = [response for message in call.newest_messages for response in message.tool_responses]
        if answers.isdisjoint([response.content.strip() for response in responses]):
            continue
        asker = known.get(parents.get(call.key, ("", "")))
        if asker is None or call.newest_assistant is None:
            continue
        tool_calls = call.newest_assistant.tool_calls
        for place, (tool_call, content) in enumerate(zip(tool_calls, _contents(tool_calls, responses), strict=True)):
            if content in answers and tool_call.is_valid:
                for text in _argument_texts(tool_call.arguments):
                    askers[text, content].append(_Asker(asker, place, call.span.start_ns))
    return askers


def _contents(tool_calls: Sequence[ToolCall], responses: Sequence[ToolResponse]) -> list[str]:
    """The text of the response to each tool call, by id; by order where the responses have no ids."""
    if len(responses) == len(tool_calls) and not any(response.id for response in responses):
        return [response.content.strip() for response in responses]
    by_id = {response.id: response.content.strip() for response in responses if response.id}
    return [by_id.get(tool_call.id, "") for tool_call in tool_calls]


def _argument_texts(arguments: str) -> list[str]:
    values = cast("dict[str, object]", parse_json(arguments)).values()
    return list(dict.fromkeys(value.strip() for value in values if isinstance(value, str) and value.strip()))
