"""Traces as Agent Lightning's tracer records them: 20 spans, told as plain values, for us and for the peer alike.

A session, an agent, eight model calls each with a tool's span behind it, an end, and the reward as an annotation. The
calls are spelled as OpenLLMetry spelled them before messages became one attribute, with token ids beside them and no
log-probabilities. Every prompt starts with the whole of the one before: 256 ids, 128 more a turn, and 64 are sampled.
In the profile ``messages`` the history grows by two messages of 400 characters a turn, and the answer has 300: it is a
history that somebody else wrote, not what the calls answered. Needs nothing but Python, because the peer imports it.
"""

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

PROFILES = ("tokens", "messages")
SPANS = 20
TURNS = 8

_ROLES = ("system", "user", "assistant", "tool")
_MODEL = "Qwen/Qwen2.5-7B-Instruct"
_VOCABULARY = range(150_000)

Value = str | int | float | tuple[int, ...]


class Row(NamedTuple):
    """One span; times in seconds since the epoch."""

    number: int
    parent: int | None
    name: str
    start_s: float
    end_s: float
    attributes: dict[str, Value]


def rows(trace: int, profile: str) -> Iterator[Row]:
    """The spans of one trace, by start."""
    base = 1_760_000_000.0 + trace
    yield Row(0, None, "agent.session", base, base + 1, {})
    yield Row(1, 0, "agent.run", base + 0.001, base + 0.95, {"agent.name": "planner"})
    for turn, call in enumerate(_calls(trace, profile)):
        at = base + 0.02 + 0.1 * turn
        yield Row(2 + 2 * turn, 1, "openai.chat.completion", at, at + 0.05, call)
        yield Row(3 + 2 * turn, 1, "tool.search", at + 0.06, at + 0.09, _tool(trace, turn))
    yield Row(SPANS - 2, 1, "final", base + 0.9, base + 0.91, {"answer": "42"})
    reward: dict[str, Value] = {"agentlightning.reward.0.name": "primary", "agentlightning.reward.0.value": 1.0}
    yield Row(SPANS - 1, 0, "agentlightning.annotation", base + 0.96, base + 0.97, reward)


def _calls(trace: int, profile: str) -> Iterator[dict[str, Value]]:
    random = Random(trace)
    prompt = tuple(random.choices(_VOCABULARY, k=256))
    for turn in range(TURNS):
        sampled = tuple(random.choices(_VOCABULARY, k=64))
        yield {
            "gen_ai.system": "OpenAI",
            "gen_ai.request.type": "chat",
            "gen_ai.request.model": _MODEL,
            "gen_ai.request.temperature": 1.0,
            "gen_ai.response.id": f"chatcmpl-{trace}-{turn}",
            "gen_ai.response.model": _MODEL,
            "gen_ai.usage.prompt_tokens": len(prompt),
            "gen_ai.usage.completion_tokens": len(sampled),
            "gen_ai.usage.total_tokens": len(prompt) + len(sampled),
            "prompt_token_ids": prompt,
            "response_token_ids": sampled,
            **(_messages(trace, turn) if profile == "messages" else {}),
        }
        prompt = (*prompt, *sampled, *random.choices(_VOCABULARY, k=64))


def _messages(trace: int, turn: int) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for number in range(2 + 2 * turn):
        role = _ROLES[number % len(_ROLES)]
        found[f"gen_ai.prompt.{number}.role"] = role
        found[f"gen_ai.prompt.{number}.content"] = f"{role} {number} of {trace}: ".ljust(400, "x")
        if role == "tool":
            found[f"gen_ai.prompt.{number}.tool_call_id"] = f"call-{number}"
    found["gen_ai.completion.0.role"] = "assistant"
    found["gen_ai.completion.0.content"] = f"answer {turn} of {trace}: ".ljust(300, "y")
    found["gen_ai.completion.0.finish_reason"] = "stop"
    return found


def _tool(trace: int, turn: int) -> dict[str, Value]:
    return {
        "gen_ai.tool.name": "search",
        "gen_ai.tool.call.id": f"call-{turn}",
        "tool.arguments": '{"query": "abc"}',
        "tool.result": f"page {turn} of {trace}: ".ljust(120, "r"),
    }
