"""Trees of ``test_triplet_trace_tree.py``: agents, model calls with token ids, rewards."""

import json
from collections.abc import Mapping
from typing import Any, Final

from .tree import TRIPLETS, TokenIds, Tree, TreeSpan


def agent(span_id: str, name: str, start_s: float = 1.0, end_s: float = 9.0) -> TreeSpan:
    """An agent below the root."""
    return TreeSpan(span_id, "root", "agent.node", start_s, end_s, {"agent.name": name})


def root(end_s: float = 10.0) -> TreeSpan:
    """The session above everything."""
    return TreeSpan("root", None, "session", 0.0, end_s, {})


def call(span_id: str, parent: str, times_s: tuple[float, float], ids: TokenIds, reply: str) -> TreeSpan:
    """A model call with token ids and no messages."""
    attributes = {"prompt_token_ids": ids[0], "response_token_ids": ids[1], "gen_ai.response.id": reply}
    return TreeSpan(span_id, parent, "openai.chat.completion", *times_s, attributes)


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


TREES: Final = (
    Tree(
        "a call below a named root, told before it",
        TRIPLETS,
        (
            call("llm", "root", (1.0, 2.0), ([1, 2], [3, 4]), "resp-1"),
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
            call("grandchild", "child", (3.0, 3.5), ([1], [2]), "resp-nested"),
            TreeSpan("child", "ghost-parent", "agent.child", 2.0, 4.0, {"agent.name": "nested"}),
        ),
    ),
    Tree(
        "a call beside its agent",
        TRIPLETS,
        (root(), agent("agent", "planner"), call("llm", "root", (2.0, 3.0), ([42], [7]), "resp-planner")),
    ),
    Tree(
        "a repeated response id, and a call without token ids",
        TRIPLETS,
        (
            root(),
            agent("agent", "primary-agent"),
            call("llm-1", "agent", (2.0, 3.0), ([1, 2], [3, 4]), "resp-1"),
            call("llm-2", "agent", (3.2, 3.8), ([9], [8]), "resp-1"),
            call("llm-3", "agent", (4.0, 5.0), ([], []), "resp-2"),
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
            call("llm", "root", (2.0, 3.0), ([7], [8]), "resp-planner"),
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
            call("llm", "root", (2.0, 3.0), ([7], [8]), "resp-planner"),
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
            call("llm-1", "agent", (2.0, 3.0), ([10], [20]), "resp-shared"),
            call("llm-2", "agent", (3.5, 4.2), ([99], [98]), "resp-shared"),
            call("llm-3", "agent", (5.0, 5.5), ([], []), "resp-3"),
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
            call("llm-1", "agent", (2.0, 3.0), ([1], [2]), "resp-1"),
            reward(0.8, 3.5, 3.6),
            call("llm-2", "agent-2", (3.1, 3.2), ([3], [4]), "resp-2"),
        ),
        {"agent_match": "sibling-agent", "reward_match": "first_sibling", "_skip_empty_token_spans": True},
    ),
)
