"""A conversation that a tool call started belongs to the episode of that tool call.

An agent used as a tool leaves no id behind when every call is a trace of its own. What it does leave: its first
user message is the text of an argument of the tool call, and its last answer is the text of the tool's response.
Both must agree, and the conversation must lie within the tool call's time.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from spanloop.messages import parse_json

from ..spans import Span
from .base import last_assistant

SpanKey = tuple[str, str]


def sub_agents(calls: Sequence[Span], parents: Mapping[SpanKey, SpanKey]) -> Iterator[tuple[Span, Span]]:
    """Pairs of (first call of a conversation, the call whose tool call started it).

    Args:
        calls: Model calls in the order of start and id.
        parents: Call → the call that it continues.
    """
    known = {call.key: call for call in calls}
    continued = set(parents.values())
    leaves = [call for call in calls if call.key not in continued and call.output and call.output[0].text]
    askers = _askers(calls, parents, known, {leaf.output[0].text.strip() for leaf in leaves})
    if not askers:
        return
    roots = _roots(calls, parents, known)
    for leaf in leaves:
        root = roots[leaf.key]
        question = next((message.text for message in root.input if message.role == "user"), "")
        candidates = askers.get((question.strip(), leaf.output[0].text.strip()), ())
        within = [
            asker
            for asker, until_ns in candidates
            if asker.service_name == root.service_name and asker.end_ns <= root.start_ns and leaf.end_ns <= until_ns
        ]
        if within:
            yield root, within[-1]


def _roots(
    calls: Sequence[Span], parents: Mapping[SpanKey, SpanKey], known: Mapping[SpanKey, Span]
) -> dict[SpanKey, Span]:
    """The first call of each call's conversation; each call is looked at once, cycles end where they began."""
    found: dict[SpanKey, Span] = {}
    for call in calls:
        path: dict[SpanKey, None] = {}
        current = call
        while current.key not in found and current.key not in path:
            path[current.key] = None
            above = known.get(parents.get(current.key, ("", "")))
            if above is None:
                break
            current = above
        root = found.get(current.key, current)
        found.update(dict.fromkeys(path, root))
    return found


def _askers(
    calls: Sequence[Span], parents: Mapping[SpanKey, SpanKey], known: Mapping[SpanKey, Span], answers: set[str]
) -> dict[tuple[str, str], list[tuple[Span, int]]]:
    """(argument text, response text) → the calls that asked and the time at which they had the response.

    Only responses among ``answers`` count.
    """
    found: dict[tuple[str, str], list[tuple[Span, int]]] = defaultdict(list)
    for call in calls:
        asker = known.get(parents.get(call.key, ("", "")))
        position = last_assistant(call)
        if asker is None or position is None:
            continue
        responses = {
            response.id: response.content.strip()
            for message in call.input[position + 1 :]
            for response in message.tool_responses
        }
        for tool_call in call.input[position].tool_calls:
            if tool_call.is_valid and responses.get(tool_call.id) in answers:
                for text in _argument_texts(tool_call.arguments):
                    found[text, responses[tool_call.id]].append((asker, call.start_ns))
    return found


def _argument_texts(arguments: str) -> list[str]:
    values = cast("dict[str, object]", parse_json(arguments)).values()
    return list(dict.fromkeys(value.strip() for value in values if isinstance(value, str) and value.strip()))
