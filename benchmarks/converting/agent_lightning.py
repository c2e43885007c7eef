"""Agent Lightning's adapter on the traces of ``agent_traces``; runs in the peers' environment (``peers.py``).

    cd benchmarks && ../.venv-peers/bin/python -m converting.agent_lightning TRACES ROUNDS

Prints one JSON object: profile → spans per CPU-second, the median of the rounds, from lists of its own ``Span`` objects
in memory to triplets with rewards. Its spans have what its tracer would give them: token ids as tuples of integers, and
in the profile ``messages`` every message as ``gen_ai.prompt.N.*``.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import gc
import json
import os
import statistics
import sys
import time
from typing import Any

from converting.agent_traces import PROFILES, SPANS, TURNS, Turn, turns

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

from agentlightning.adapter import TracerTraceToTriplet  # type: ignore[import-not-found]
from agentlightning.types import Span  # type: ignore[import-not-found]

MODEL = "tiny@v1"


def main() -> None:
    """Measure every profile."""
    traces, rounds = int(sys.argv[1]), int(sys.argv[2])
    print(json.dumps({profile: measure(profile, traces, rounds) for profile in PROFILES}))


def measure(profile: str, traces: int, rounds: int) -> float:
    """Spans per CPU-second."""
    adapter = TracerTraceToTriplet()
    given = [spans(number, profile) for number in range(traces)]
    found: list[float] = []
    for _ in range(rounds + 1):
        gc.collect()
        before = time.process_time()
        triplets = sum(len(adapter.adapt(trace)) for trace in given)
        found.append(time.process_time() - before)
        if triplets != TURNS * traces:
            raise SystemExit(f"expected {TURNS * traces} triplets, got {triplets}")
    return SPANS * traces / statistics.median(found[1:])


def spans(number: int, profile: str) -> list[Any]:
    """The spans of one trace."""
    base = 1_700_000_000.0 + number
    rows: list[tuple[int, int | None, str, float, float, dict[str, Any]]] = [
        (0, None, "agent.session", base, base + 0.99, {}),
        (1, 0, "agent.run", base, base + 0.95, {"agent.name": "planner"}),
    ]
    for index, turn in enumerate(turns(number, PROFILES[profile])):
        at, own = base + 0.01 + index * 0.1, 2 + 2 * index
        rows.append((own, 1, "openai.chat.completion", at, at + 0.04, call(number, index, turn, profile)))
        if not turn.is_last:
            rows.append((own + 1, 1, "tool.search", at + 0.05, at + 0.08, tool(index, turn)))
    rows.append((SPANS - 3, 1, "tool.search", base + 0.85, base + 0.86, {"gen_ai.tool.name": "finish"}))
    rows.append((SPANS - 2, 1, "final", base + 0.9, base + 0.91, {"answer": "42"}))
    reward = {"agentlightning.reward.0.name": "primary", "agentlightning.reward.0.value": 1.0}
    rows.append((SPANS - 1, 0, "agentlightning.annotation", base + 0.96, base + 0.961, reward))
    return [
        Span.from_attributes(
            rollout_id=f"ro-{number}",
            attempt_id="at-0",
            sequence_id=position + 1,
            trace_id=f"{number + 1:032x}",
            span_id=f"{(number << 8 | own) + 1:016x}",
            parent_id=None if parent is None else f"{(number << 8 | parent) + 1:016x}",
            name=name,
            attributes=attributes,
            start_time=start,
            end_time=end,
        )
        for position, (own, parent, name, start, end, attributes) in enumerate(rows)
    ]


def call(number: int, index: int, turn: Turn, profile: str) -> dict[str, Any]:
    """Attributes of a model call."""
    found: dict[str, Any] = {
        "gen_ai.system": "OpenAI",
        "gen_ai.request.model": MODEL,
        "gen_ai.request.type": "chat",
        "gen_ai.request.temperature": 1.0,
        "gen_ai.response.id": f"chatcmpl-{number}-{index}",
        "gen_ai.response.model": MODEL,
        "gen_ai.usage.prompt_tokens": len(turn.prompt),
        "gen_ai.usage.completion_tokens": len(turn.response),
        "prompt_token_ids": turn.prompt,
        "response_token_ids": turn.response,
    }
    if profile == "messages":
        for position, (role, text) in enumerate(turn.seen):
            found[f"gen_ai.prompt.{position}.role"] = role
            found[f"gen_ai.prompt.{position}.content"] = text
        found["gen_ai.completion.0.role"] = "assistant"
        found["gen_ai.completion.0.content"] = turn.said
        found["gen_ai.completion.0.finish_reason"] = "stop" if turn.is_last else "tool_calls"
    return found


def tool(index: int, turn: Turn) -> dict[str, Any]:
    """Attributes of a tool's span."""
    return {
        "gen_ai.tool.name": "search",
        "gen_ai.tool.call.id": f"call-{index}",
        "tool.arguments": json.dumps({"query": turn.said}),
        "tool.result": turn.result,
    }


if __name__ == "__main__":
    main()
