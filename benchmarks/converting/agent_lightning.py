"""Agent Lightning's adapter; runs in the peers' environment (``peers.py``), a round whenever it is asked for one.

    cd benchmarks && echo tokens | ../.venv-peers/bin/python -m converting.agent_lightning TRACES

For every profile on its standard input it answers with spans per CPU-second, from lists of its own ``Span`` objects in
memory to triplets with rewards. ``tokens`` and ``messages`` are the traces of ``carried_traces``, value for value;
``captured_tokens`` and ``captured_messages`` those of ``agent_traces`` as its tracer would give them: token ids as
tuples of integers, and in the latter every message as ``gen_ai.prompt.N.*``. ``success``, ``failure`` and ``mix`` are
the episodes of ``mixed_episodes``, with messages, and token ids where they were captured (``mixed_traces``).
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import gc
import json
import os
import sys
import time
from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple

from converting import carried_traces, mixed_episodes, mixed_traces
from converting.agent_traces import PROFILES, SPANS, TURNS, Turn, turns

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

from agentlightning.adapter import TracerTraceToTriplet  # type: ignore[import-not-found]
from agentlightning.types import Span  # type: ignore[import-not-found]

MODEL = "tiny@v1"


def main() -> None:
    """Measure what is asked for."""
    traces = int(sys.argv[1])
    for line in sys.stdin:
        print(measure(line.strip(), traces), flush=True)


def measure(profile: str, traces: int) -> float:
    """Spans per CPU-second."""
    adapter = TracerTraceToTriplet()
    given = prepared(profile, traces)
    gc.collect()
    before = time.process_time()
    triplets = sum(len(adapter.adapt(trace)) for trace in given.traces)
    spent = time.process_time() - before
    if triplets != given.calls:
        raise SystemExit(f"expected {given.calls} triplets, got {triplets}")
    return given.spans / spent


class Given(NamedTuple):
    """What the adapter reads, and how much that is."""

    traces: list[list[Any]]
    calls: int
    spans: int
    """Of ours."""


@cache
def prepared(profile: str, traces: int) -> Given:
    """The spans of all traces."""
    if profile in mixed_episodes.PROFILES:
        episodes = mixed_episodes.of_profile(profile, traces)
        found = [spans(episode.number, mixed_traces.rows(episode)) for episode in episodes]
        calls, own = (sum(each) for each in zip(*((len(one.calls), one.spans) for one in episodes), strict=True))
        return Given(found, calls, own)
    if profile in carried_traces.PROFILES:
        found = [spans(number, carried_traces.rows(number, profile)) for number in range(traces)]
    else:
        found = [spans(number, captured(number, profile.removeprefix("captured_"))) for number in range(traces)]
    return Given(found, TURNS * traces, SPANS * traces)


def spans(number: int, rows: Iterable[carried_traces.Row]) -> list[Any]:
    """The spans of one trace."""
    return [
        Span.from_attributes(
            rollout_id=f"ro-{number}",
            attempt_id="at-0",
            sequence_id=position + 1,
            trace_id=f"{number + 1:032x}",
            span_id=f"{(number << 8 | row.number) + 1:016x}",
            parent_id=None if row.parent is None else f"{(number << 8 | row.parent) + 1:016x}",
            name=row.name,
            attributes=row.attributes,
            start_time=row.start_s,
            end_time=row.end_s,
        )
        for position, row in enumerate(rows)
    ]


def captured(number: int, profile: str) -> Iterable[carried_traces.Row]:
    """The spans of one trace of which the gateway captured the tokens."""
    row = carried_traces.Row
    base = 1_700_000_000.0 + number
    yield row(0, None, "agent.session", base, base + 0.99, {})
    yield row(1, 0, "agent.run", base, base + 0.95, {"agent.name": "planner"})
    for index, turn in enumerate(turns(number, PROFILES[profile])):
        at, own = base + 0.01 + index * 0.1, 2 + 2 * index
        yield row(own, 1, "openai.chat.completion", at, at + 0.04, call(number, index, turn, profile))
        if not turn.is_last:
            yield row(own + 1, 1, "tool.search", at + 0.05, at + 0.08, tool(index, turn))
    yield row(SPANS - 3, 1, "tool.search", base + 0.85, base + 0.86, {"gen_ai.tool.name": "finish"})
    yield row(SPANS - 2, 1, "final", base + 0.9, base + 0.91, {"answer": "42"})
    reward: dict[str, Any] = {"agentlightning.reward.0.name": "primary", "agentlightning.reward.0.value": 1.0}
    yield row(SPANS - 1, 0, "agentlightning.annotation", base + 0.96, base + 0.961, reward)


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
