"""The traces of ``agent_traces`` as the store holds them, tokens among the captures, and what must come of them."""

import json
from datetime import UTC, datetime
from typing import Final

import polars as pl
from converting.agent_traces import SPANS, TURNS, Turn, turns
from converting.stored_frames import Given, Row, frame, items

from spanloop.converters import Converted, frames

START_NS: Final = int(datetime(2026, 11, 20, tzinfo=UTC).timestamp()) * 1_000_000_000


def make(traces: int, characters: int) -> Given:
    """Spans, captures and scores (none: the reward is a span)."""
    spans: list[Row] = []
    generations: list[Row] = []
    for number in range(traces):
        _trace(number, characters, spans, generations)
    return Given(frame(spans, frames.SPANS), frame(generations, frames.GENERATIONS), frames.empty(frames.SCORES))


def _trace(number: int, characters: int, spans: list[Row], generations: list[Row]) -> None:
    trace, base = f"{number + 1:032x}", START_NS + number * 1_000_000_000
    root, agent = _id(trace, 0), _id(trace, 1)
    spans.append(_span(trace, 0, "", base, {}))
    spans.append(_span(trace, 1, root, base, {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "planner"}))
    for index, turn in enumerate(turns(number, characters)):
        at, own = base + (index + 1) * 100_000_000, 2 + 2 * index
        spans.append(_span(trace, own, agent, at, _call(number, index, turn)))
        if not turn.is_last:
            spans.append(_span(trace, own + 1, agent, at + 50_000_000, _tool(number, index, turn)))
        generations.append(_generation(trace, number, index, turn))
    end = base + 850_000_000
    spans.append(_span(trace, SPANS - 3, agent, end, {"gen_ai.operation.name": "execute_tool"}))
    spans.append(_span(trace, SPANS - 2, agent, end + 50_000_000, {"answer": "42"}))
    scored = {"gen_ai.evaluation.name": "reward", "gen_ai.evaluation.score.value": "1.0"}
    spans.append(_span(trace, SPANS - 1, root, end + 100_000_000, scored))


def _call(number: int, index: int, turn: Turn) -> dict[str, str]:
    said = _message(number, index, "assistant", turn.said, is_last=turn.is_last)
    reason = "stop" if turn.is_last else "tool_call"
    seen = [
        _message(number, (position - 2) // 2, role, text, is_last=False)
        for position, (role, text) in enumerate(turn.seen)
    ]
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.is_streaming": "false",
        "gen_ai.request.model": "tiny",
        "gen_ai.request.temperature": "1.0",
        "gen_ai.response.model": "tiny@v1",
        "gen_ai.response.id": f"chatcmpl-{number}-{index}",
        "gen_ai.response.finish_reasons": json.dumps([reason]),
        "gen_ai.usage.input_tokens": str(len(turn.prompt)),
        "gen_ai.usage.output_tokens": str(len(turn.response)),
        "gen_ai.input.messages": json.dumps(seen),
        "gen_ai.output.messages": json.dumps([{**said, "finish_reason": reason}]),
    }


def _message(number: int, index: int, role: str, text: str, *, is_last: bool) -> Row:
    identity = f"call-{number}-{index}"
    part: Row = {"type": "text", "content": text}
    if role == "assistant" and not is_last:
        part = {"type": "tool_call", "id": identity, "name": "search", "arguments": {"query": text}}
    if role == "tool":
        part = {"type": "tool_call_response", "id": identity, "response": text}
    return {"role": role, "parts": [part]}


def _tool(number: int, index: int, turn: Turn) -> dict[str, str]:
    return {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "search",
        "gen_ai.tool.call.id": f"call-{number}-{index}",
        "gen_ai.tool.call.arguments": json.dumps({"query": turn.said}),
        "gen_ai.tool.call.result": turn.result,
    }


def _id(trace: str, number: int) -> str:
    return f"{trace[-8:]}{number + 1:08x}"


def _span(trace: str, number: int, parent: str, start_ns: int, attributes: dict[str, str]) -> Row:
    return {
        "Timestamp": start_ns,
        "TraceId": trace,
        "SpanId": _id(trace, number),
        "ParentSpanId": parent,
        "SpanName": "span",
        "ServiceName": "bench",
        "SpanAttributes": items(attributes),
        "Duration": 40_000_000,
        "StatusCode": "Unset",
        "IngestedAt": start_ns // 1_000,
    }


def _generation(trace: str, number: int, index: int, turn: Turn) -> Row:
    return {
        "generation_id": f"chatcmpl-{number}-{index}/0",
        "response_id": f"chatcmpl-{number}-{index}",
        "choice_index": 0,
        "trace_id": trace,
        "parent_span_id": _id(trace, 2 + 2 * index),
        "policy_version": "tiny@v1",
        "prompt_token_ids": turn.prompt,
        "response_token_ids": turn.response,
        "logprobs": [-0.5] * len(turn.response),
        "is_complete": True,
        "sampling": items({"temperature": "1.0"}),
        "ingested_at": START_NS // 1_000,
    }


def check(traces: int, converted: Converted) -> None:
    """Insist on what must come out."""
    is_right = (pl.col("reward") == 1) & pl.col("is_trainable")
    rewarded: int = converted.transitions.select(is_right.sum()).item()
    if rewarded != TURNS * traces or converted.trajectories.height != traces:
        raise SystemExit(f"expected {TURNS * traces} rewarded transitions in {traces} rows, got {rewarded}")
