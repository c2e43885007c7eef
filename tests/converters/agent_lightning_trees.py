"""Span trees of Agent Lightning 0.3.0's own tests of its adapters, as plain data with texts of our own.

Names, parents, times, attributes and ids are theirs (``tests/adapter/*.py`` at its tag v0.3.0). Needs nothing but
Python, because Agent Lightning's environment imports it, too: ``record_agent_lightning.py`` asks its adapters.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

TRIPLETS: Final = "TracerTraceToTriplet"
MESSAGES: Final = "TraceToMessages"
PROXY: Final = "LlmProxyTraceToTriplet"


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
    options: Mapping[str, Any] = {}  # noqa: RUF012  a default of a NamedTuple


def agent(span_id: str, name: str, start_s: float = 1.0, end_s: float = 9.0) -> TreeSpan:
    """An agent below the root."""
    return TreeSpan(span_id, "root", "agent.node", start_s, end_s, {"agent.name": name})


def root(end_s: float = 10.0) -> TreeSpan:
    """The session above everything."""
    return TreeSpan("root", None, "session", 0.0, end_s, {})


def call(
    span_id: str, parent: str, start_s: float, end_s: float, prompt: Sequence[int], response: Sequence[int], reply: str
) -> TreeSpan:
    """A model call with token ids and no messages."""
    attributes = {"prompt_token_ids": list(prompt), "response_token_ids": list(response), "gen_ai.response.id": reply}
    return TreeSpan(span_id, parent, "openai.chat.completion", start_s, end_s, attributes)


def reward(value: float, start_s: float, end_s: float, parent: str = "agent") -> TreeSpan:
    """What a function returned that AgentOps traced."""
    returned = json.dumps({"type": "reward", "value": value})
    return TreeSpan("reward", parent, "agent.reward", start_s, end_s, {"agentops.task.output": returned})


def picture(
    span_id: str,
    parent: str,
    start_s: float,
    end_s: float,
    *,
    url: str,
    system: str,
    reply: str,
    more: Mapping[str, Any],
) -> TreeSpan:
    """A model call about an image, with numbered messages."""
    parts = [{"type": "text", "text": "What does the chart show?"}, {"type": "image_url", "image_url": {"url": url}}]
    attributes: dict[str, Any] = {
        "gen_ai.request.type": "chat",
        "gen_ai.system": "OpenAI",
        "gen_ai.request.model": system,
        "gen_ai.request.temperature": 0.0,
        "gen_ai.request.streaming": False,
        "gen_ai.request.headers": "{'X-Stainless-Raw-Response': 'true'}",
        "gen_ai.prompt.0.role": "user",
        "gen_ai.prompt.0.content": json.dumps(parts),
        "gen_ai.response.id": reply,
        "gen_ai.response.model": system,
        "gen_ai.usage.prompt_tokens": 10,
        "gen_ai.usage.completion_tokens": 2,
        "gen_ai.usage.total_tokens": 12,
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.content": f"{system} sees ten bars.",
        "gen_ai.completion.0.finish_reason": "stop",
    }
    return TreeSpan(span_id, parent, "openai.chat.completion", start_s, end_s, attributes | dict(more))


_IDS: Final = {"prompt_token_ids": [151644, 8948, 198, 2610], "response_token_ids": [785, 3619, 4771]}
_FILTERS: Final = {
    "gen_ai.openai.system_fingerprint": "fp_1",
    "gen_ai.prompt.prompt_filter_results": json.dumps([{"prompt_index": 0, "content_filter_result": {}}]),
    "gen_ai.completion.0.content_filter_results": json.dumps({"hate": {"filtered": False, "severity": "safe"}}),
}


def _qwen(span_id: str, parent: str, start_s: float, reply: str) -> TreeSpan:
    """One with token ids."""
    url = "file:///tmp/chart.png"
    return picture(span_id, parent, start_s, start_s + 1, url=url, system="qwen-vl", reply=reply, more=_IDS)


def _gpt(span_id: str, parent: str, start_s: float, reply: str) -> TreeSpan:
    """One without."""
    url = "data:image/jpeg;base64,AAA="
    return picture(span_id, parent, start_s, start_s + 1, url=url, system="gpt-mini", reply=reply, more=_FILTERS)


_TRIPLETS: Final = (
    Tree(
        "a call below a named root, told before it",
        TRIPLETS,
        (
            call("llm", "root", 1.0, 2.0, [1, 2], [3, 4], "resp-1"),
            TreeSpan("root", None, "agent.session", 0.0, 10.0, {"agent.name": "primary-agent"}),
        ),
    ),
    Tree(
        "two roots without a call",
        TRIPLETS,
        (
            TreeSpan("root-a", None, "agent.first", 0.0, 5.0, {}),
            TreeSpan("root-b", None, "agent.second", 5.0, 9.0, {}),
        ),
    ),
    Tree(
        "a parent that is missing",
        TRIPLETS,
        (
            call("grandchild", "child", 3.0, 3.5, [1], [2], "resp-nested"),
            TreeSpan("child", "ghost-parent", "agent.child", 2.0, 4.0, {"agent.name": "nested"}),
        ),
    ),
    Tree(
        "a call beside its agent",
        TRIPLETS,
        (root(), agent("agent", "planner"), call("llm", "root", 2.0, 3.0, [42], [7], "resp-planner")),
    ),
    Tree(
        "a repeated response id, and a call without token ids",
        TRIPLETS,
        (
            root(),
            agent("agent", "primary-agent"),
            call("llm-1", "agent", 2.0, 3.0, [1, 2], [3, 4], "resp-1"),
            call("llm-2", "agent", 3.2, 3.8, [9], [8], "resp-1"),
            call("llm-3", "agent", 4.0, 5.0, [], [], "resp-2"),
            reward(0.5, 6.0, 6.1),
        ),
        {"agent_match": "primary-agent", "_skip_empty_token_spans": True},
    ),
    Tree(
        "a call beside its agent, whose reward is below the agent",
        TRIPLETS,
        (
            root(),
            agent("agent", "planner"),
            call("llm", "root", 2.0, 3.0, [7], [8], "resp-planner"),
            reward(0.3, 4.0, 4.5),
        ),
        {"agent_match": "planner"},
    ),
    Tree(
        "the same without a repair of the tree",
        TRIPLETS,
        (
            root(),
            agent("agent", "planner"),
            call("llm", "root", 2.0, 3.0, [7], [8], "resp-planner"),
            reward(0.3, 4.0, 4.5),
        ),
        {"agent_match": "planner", "repair_hierarchy": False},
    ),
    Tree(
        "the same repeated id for any agent",
        TRIPLETS,
        (
            root(),
            agent("agent", "collector"),
            call("llm-1", "agent", 2.0, 3.0, [10], [20], "resp-shared"),
            call("llm-2", "agent", 3.5, 4.2, [99], [98], "resp-shared"),
            call("llm-3", "agent", 5.0, 5.5, [], [], "resp-3"),
            reward(0.25, 6.0, 6.5),
        ),
        {"_skip_empty_token_spans": True},
    ),
    Tree(
        "one response id in two agents, with different messages",
        TRIPLETS,
        (
            root(),
            agent("agent-a", "vision-a", 0.5, 5.0),
            agent("agent-b", "vision-b", 5.1, 9.5),
            _qwen("llm-a", "agent-a", 1.0, "chatcmpl-shared"),
            _gpt("llm-b", "agent-b", 6.0, "chatcmpl-shared"),
        ),
    ),
    Tree(
        "two calls with images, the second without token ids",
        TRIPLETS,
        (
            root(15.0),
            agent("agent", "vision-agent", 0.5, 14.5),
            _qwen("llm-qwen", "agent", 1.0, "chatcmpl-qwen"),
            _gpt("llm-gpt", "agent", 10.0, "chatcmpl-gpt"),
            reward(0.7, 12.0, 12.5),
        ),
        {"agent_match": "vision-agent"},
    ),
    Tree(
        "a reward beside one of two agents' calls",
        TRIPLETS,
        (
            root(),
            agent("agent", "sibling-agent"),
            agent("agent-2", "sibling-agent"),
            call("llm-1", "agent", 2.0, 3.0, [1], [2], "resp-1"),
            reward(0.8, 3.5, 3.6),
            call("llm-2", "agent-2", 3.1, 3.2, [3], [4], "resp-2"),
        ),
        {"agent_match": "sibling-agent", "reward_match": "first_sibling", "_skip_empty_token_spans": True},
    ),
)

_SCHEMA: Final = json.dumps({"type": "object", "properties": {"date": {"type": "string"}}, "required": ["date"]})
_ARGUMENTS: Final = json.dumps({"date": "2026-05-04"})
_REQUEST: Final = {
    "gen_ai.request.type": "chat",
    "gen_ai.system": "OpenAI",
    "gen_ai.request.model": "gpt-mini",
    "gen_ai.request.streaming": False,
}
_OFFER: Final = {
    **_REQUEST,
    "gen_ai.request.functions.0.name": "find_rooms",
    "gen_ai.request.functions.0.description": "List free rooms.",
    "gen_ai.request.functions.0.parameters": _SCHEMA,
}


def chat(
    span_id: str,
    start_s: float,
    prompt: Sequence[Mapping[str, Any]],
    completion: str | None,
    *,
    reply: str,
    request: Mapping[str, Any] = _REQUEST,
) -> TreeSpan:
    """A model call with numbered messages and no ids; a tool call of its answer is a child span of AgentOps."""
    attributes: dict[str, Any] = {
        **request,
        "gen_ai.response.id": reply,
        "gen_ai.response.model": "gpt-mini-1",
        "gen_ai.usage.prompt_tokens": 300,
        "gen_ai.usage.completion_tokens": 50,
        "gen_ai.usage.total_tokens": 350,
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.finish_reason": "tool_calls" if completion is None else "stop",
    }
    for number, message in enumerate(prompt):
        attributes |= {f"gen_ai.prompt.{number}.{key}": value for key, value in message.items()}
    if completion is not None:
        attributes["gen_ai.completion.0.content"] = completion
    return TreeSpan(span_id, None, "openai.chat.completion", start_s, start_s + 1, attributes)


def tool_call(span_id: str, parent: str, start_s: float, call_id: str) -> TreeSpan:
    """A tool call that AgentOps read from an answer."""
    attributes = {
        "tool.name": "find_rooms",
        "tool.parameters": _ARGUMENTS,
        "tool.call.id": call_id,
        "tool.call.type": "function",
    }
    return TreeSpan(span_id, parent, "tool_call.find_rooms", start_s, start_s + 0.1, attributes)


_OPENING: Final = (
    {"role": "system", "content": "You book meeting rooms."},
    {"role": "user", "content": "Book a room for 4 May."},
)
_ROOMS: Final = '{"rooms": [{"id": "Vega", "free": true}]}'


def _asked(*call_ids: str) -> dict[str, Any]:
    """The assistant's message with tool calls, in the next prompt."""
    message: dict[str, Any] = {"role": "assistant"}
    for number, call_id in enumerate(call_ids):
        of_call = {"id": call_id, "name": "find_rooms", "arguments": _ARGUMENTS}
        message |= {f"tool_calls.{number}.{key}": value for key, value in of_call.items()}
    return message


def _result(call_id: str) -> dict[str, Any]:
    return {"role": "tool", "content": _ROOMS, "tool_call_id": call_id}


_MESSAGES: Final = (
    Tree(
        "a tool call as a child span, its result in the next prompt without the call, and a judge",
        MESSAGES,
        (
            tool_call("tool-1", "llm-1", 0.5, "call_a"),
            chat("llm-1", 0.0, _OPENING, None, reply="chatcmpl-1", request=_OFFER),
            chat("llm-2", 2.0, (*_OPENING, _result("call_a")), "room: none", reply="chatcmpl-2", request={}),
            chat(
                "llm-3",
                4.0,
                ({"role": "system", "content": "You grade."}, {"role": "user", "content": "The answer: room: none"}),
                '{"score": 1}',
                reply="chatcmpl-3",
                request={},
            ),
        ),
    ),
    Tree(
        "two tool calls as child spans, both in the next prompt",
        MESSAGES,
        (
            tool_call("tool-1", "llm-1", 0.5, "call_a"),
            tool_call("tool-2", "llm-1", 0.6, "call_b"),
            chat("llm-1", 0.0, _OPENING, None, reply="chatcmpl-1", request=_OFFER),
            chat(
                "llm-2",
                2.0,
                (*_OPENING, _asked("call_a", "call_b"), _result("call_a"), _result("call_b")),
                "Take Vega.",
                reply="chatcmpl-2",
            ),
        ),
    ),
)


def proxied(
    span_id: str, sequence: int, start_s: float, prompt: Sequence[int], response: Sequence[int], reply: str
) -> TreeSpan:
    """A call as LiteLLM's proxy in front of vLLM writes it: ids as text."""
    attributes = {
        "llm.hosted_vllm.prompt_token_ids": str(list(prompt)),
        "llm.hosted_vllm.response_token_ids": str([list(response)]),
        "llm.hosted_vllm.choices": str([{"token_ids": list(response)}]),
        "llm.hosted_vllm.id": reply,
        "llm.hosted_vllm.model": "my/own-model",
    }
    return TreeSpan(span_id, None, "raw_gen_ai_request", start_s, start_s + 1, attributes, sequence)


def proxied_reward(span_id: str, sequence: int, start_s: float, value: float) -> TreeSpan:
    """A reward that the agent's process sent."""
    attributes = {
        "agentops.task.output": json.dumps({"type": "reward", "value": value}),
        "agentops.span.kind": "task",
        "operation.name": "agentops_reward_operation",
    }
    return TreeSpan(span_id, None, "agentops_reward_operation.task", start_s, start_s + 1, attributes, sequence)


_PROXY: Final = (
    Tree(
        "a reward after two calls of the proxy",
        PROXY,
        (
            proxied("llm-1", 1, 10.0, [151644, 8948, 198], [151657, 198, 4913], "chatcmpl-A"),
            proxied("llm-2", 4, 20.0, [151644, 872, 198, 151657, 198], [15, 13, 15, 22, 24, 3245], "chatcmpl-B"),
            proxied_reward("reward-1", 6, 30.0, 0.0),
        ),
    ),
    Tree(
        "a response id of the proxy that is repeated",
        PROXY,
        (
            proxied("llm-1", 1, 10.0, [1, 2, 3], [1, 2, 3], "chatcmpl-A"),
            proxied("llm-2", 2, 11.0, [1, 2, 3], [1, 2, 3], "chatcmpl-A"),
            proxied_reward("reward-1", 3, 20.0, 1.0),
        ),
    ),
    Tree(
        "a request of the proxy without token ids",
        PROXY,
        (
            TreeSpan("llm-1", None, "litellm_request", 10.0, 20.0, {"gen_ai.response.id": "chatcmpl-A"}, 1),
            proxied_reward("reward-1", 2, 30.0, 0.5),
        ),
    ),
    Tree(
        "a call of the proxy without a reward",
        PROXY,
        (proxied("llm-1", 1, 10.0, [1, 2, 3], [4, 5, 6], "chatcmpl-A"),),
    ),
    Tree(
        "rewards before, beside and after a call of the proxy",
        PROXY,
        (
            proxied_reward("reward-1", 1, 10.0, 1.0),
            proxied("llm-1", 2, 20.0, [9, 9, 9], [8, 8, 8], "chatcmpl-A"),
            proxied_reward("reward-2", 2, 22.0, 2.0),
            proxied_reward("reward-3", 3, 30.0, 3.5),
        ),
    ),
    Tree(
        "three calls of the proxy and three rewards",
        PROXY,
        (
            proxied("llm-1", 2, 10.0, [1, 1], [2, 2], "chatcmpl-A"),
            proxied("llm-2", 4, 12.0, [3, 3], [4, 4], "chatcmpl-B"),
            proxied("llm-3", 6, 14.0, [5, 5], [6, 6], "chatcmpl-C"),
            proxied_reward("reward-1", 5, 20.0, 0.1),
            proxied_reward("reward-2", 7, 21.0, 0.2),
            proxied_reward("reward-3", 8, 22.0, 0.3),
        ),
    ),
)

TREES: Final = (*_TRIPLETS, *_MESSAGES, *_PROXY)


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
    ids = [span.attributes.get("gen_ai.response.id", span.attributes.get("llm.hosted_vllm.id")) for span in tree.spans]
    if len(set(filter(None, ids))) < len(list(filter(None, ids))):
        found["duplicates"] = list(counts.values())
    if kept:
        found["order"] = [call.response_id for call in kept]
        found["token ids"] = [[list(call.prompt or ()), list(call.response or ())] for call in kept]
        found["rewards"] = [call.reward for call in kept]
    if kept and tree.adapter == TRIPLETS:
        found["agents"] = [call.agent for call in kept]
    return found
