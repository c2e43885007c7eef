"""Trees of ``test_llm_proxy.py``: model calls of LiteLLM's proxy, rewards of the agent's process."""

import json
from typing import Final

from .tree import PROXY, TokenIds, Tree, TreeSpan


def proxied(span_id: str, sequence: int, start_s: float, ids: TokenIds, reply: str) -> TreeSpan:
    """A call as LiteLLM's proxy in front of vLLM writes it: ids as text."""
    attributes = {
        "llm.hosted_vllm.prompt_token_ids": str(ids[0]),
        "llm.hosted_vllm.response_token_ids": str([ids[1]]),
        "llm.hosted_vllm.choices": str([{"token_ids": ids[1]}]),
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


TREES: Final = (
    Tree(
        "a reward after two calls of the proxy",
        PROXY,
        (
            proxied("llm-1", 1, 10.0, ([151644, 8948, 198], [151657, 198, 4913]), "chatcmpl-A"),
            proxied("llm-2", 4, 20.0, ([151644, 872, 198, 151657, 198], [15, 13, 15, 22, 24, 3245]), "chatcmpl-B"),
            proxied_reward("reward-1", 6, 30.0, 0.0),
        ),
    ),
    Tree(
        "a response id of the proxy that is repeated",
        PROXY,
        (
            proxied("llm-1", 1, 10.0, ([1, 2, 3], [1, 2, 3]), "chatcmpl-A"),
            proxied("llm-2", 2, 11.0, ([1, 2, 3], [1, 2, 3]), "chatcmpl-A"),
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
        (proxied("llm-1", 1, 10.0, ([1, 2, 3], [4, 5, 6]), "chatcmpl-A"),),
    ),
    Tree(
        "rewards before, beside and after a call of the proxy",
        PROXY,
        (
            proxied_reward("reward-1", 1, 10.0, 1.0),
            proxied("llm-1", 2, 20.0, ([9, 9, 9], [8, 8, 8]), "chatcmpl-A"),
            proxied_reward("reward-2", 2, 22.0, 2.0),
            proxied_reward("reward-3", 3, 30.0, 3.5),
        ),
    ),
    Tree(
        "three calls of the proxy and three rewards",
        PROXY,
        (
            proxied("llm-1", 2, 10.0, ([1, 1], [2, 2]), "chatcmpl-A"),
            proxied("llm-2", 4, 12.0, ([3, 3], [4, 4]), "chatcmpl-B"),
            proxied("llm-3", 6, 14.0, ([5, 5], [6, 6]), "chatcmpl-C"),
            proxied_reward("reward-1", 5, 20.0, 0.1),
            proxied_reward("reward-2", 7, 21.0, 0.2),
            proxied_reward("reward-3", 8, 22.0, 0.3),
        ),
    ),
)
