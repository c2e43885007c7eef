"""Span trees as plain data, and what is compared of them. Needs nothing but Python, as all of this package."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

TRIPLETS: Final = "TracerTraceToTriplet"
MESSAGES: Final = "TraceToMessages"
PROXY: Final = "LlmProxyTraceToTriplet"

TokenIds = tuple[list[int], list[int]]
"""Of the prompt and of the response."""


class TreeSpan(NamedTuple):
    """One span; times in seconds."""

    span_id: str
    parent: str | None
    name: str
    start_s: float
    end_s: float
    attributes: Mapping[str, Any]
    sequence: int = 0
    """Agent Lightning's order of arrival, which OTLP does not have."""


class Tree(NamedTuple):
    """One trace of a test, and what its adapter is told."""

    name: str
    adapter: str
    spans: Sequence[TreeSpan]
    options: Mapping[str, Any] = {}


class Call(NamedTuple):
    """What is compared of a model call; what an adapter does not tell is None."""

    response_id: str | None = None
    agent: str | None = None
    prompt: Sequence[int] | None = None
    response: Sequence[int] | None = None
    reward: float | None = None
    tool_calls: Sequence[Sequence[str]] = ()
    """Id, name and arguments of each."""
    answer: str = ""


_RESPONSE_IDS: Final = ("gen_ai.response.id", "llm.hosted_vllm.id")


def facts(tree: Tree, calls: Sequence[Call]) -> dict[str, Any]:
    """What was made of a tree, by fact; facts that the tree or its adapter does not have are left out.

    Of calls with one response id, the first counts but for ``duplicates``.
    """
    if tree.adapter == MESSAGES:
        return {
            "calls": len(calls),
            "order": [call.answer for call in calls],
            "tool calls": [[list(asked) for asked in call.tool_calls] for call in calls],
        }
    counts = {call.response_id: sum(call.response_id == other.response_id for other in calls) for call in calls}
    found: dict[str, Any] = {"calls": sorted(map(str, counts))}
    first = {call.response_id: call for call in reversed(calls)}
    kept = [first[response_id] for response_id in counts]
    ids = [str(span.attributes[key]) for span in tree.spans for key in _RESPONSE_IDS if key in span.attributes]
    if len(set(ids)) < len(ids):
        found["duplicates"] = list(counts.values())
    if kept:
        found["order"] = [call.response_id for call in kept]
        found["token ids"] = [[list(call.prompt or ()), list(call.response or ())] for call in kept]
        found["rewards"] = [call.reward for call in kept]
    if kept and tree.adapter == TRIPLETS:
        found["agents"] = [call.agent for call in kept]
    return found
