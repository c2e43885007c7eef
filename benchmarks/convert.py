"""How fast spans become transitions, as a ratio against the least that any converter must do.

    python benchmarks/convert.py [--quick]

Named baseline, in the same run and process: ``json.loads`` of every message attribute of the same spans, and nothing
else. Both are CPU seconds of this process (one thread), the median of several rounds. The data are agents of eight
turns with a tool call each, whose inputs repeat their history, in two profiles: ``tokens`` (short messages, token
ids captured) and ``messages`` (400 characters a message, captured as well). ``ratio tokens=0.5`` says that the whole
conversion takes twice as long as the baseline.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import polars as pl

from spanloop.converters import Converted, convert, frames

TURNS = 8
START_NS = int(datetime(2026, 11, 20, tzinfo=UTC).timestamp()) * 1_000_000_000
MESSAGE_KEYS = ("gen_ai.input.messages", "gen_ai.output.messages")


def main() -> None:
    """Measure each profile and print the ratios."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer traces; under a minute")
    arguments = parser.parse_args()
    traces, rounds = (300, 3) if arguments.quick else (2_000, 5)
    ratios: dict[str, float] = {}
    for profile, characters in (("tokens", 40), ("messages", 400)):
        spans, generations, scores = make(traces, characters)
        converted_s = cpu_s(partial(check, spans, generations, scores, traces), rounds)
        baseline_s = cpu_s(partial(decode, spans), rounds)
        ratios[profile] = baseline_s / converted_s
        print(
            f"{profile}: {spans.height} spans, {spans.height / converted_s:,.0f} spans per CPU-second converted, "
            f"{spans.height / baseline_s:,.0f} with json.loads alone"
        )
    ratios["long_trace"] = long_trace(2_000 if arguments.quick else 10_000, rounds)
    print("ratio " + " ".join(f"{name}={value:.3f}" for name, value in ratios.items()))


def long_trace(calls: int, rounds: int) -> float:
    """Cost of a span in one trace of ``calls`` short model calls, relative to traces of eight."""
    spans, generations, scores = make(calls // TURNS, 40)
    one = spans.with_columns(
        TraceId=pl.lit("f" * 32),
        SpanId=pl.format("{}{}", pl.col("TraceId").str.slice(24), pl.col("SpanId").str.slice(8)),
    )
    captured = generations.with_columns(trace_id=pl.lit("f" * 32))
    short_s = cpu_s(lambda: convert(spans, scores=scores, generations=generations), rounds)
    long_s = cpu_s(lambda: convert(one, scores=frames.empty(frames.SCORES), generations=captured), rounds)
    print(f"long_trace: {calls} model calls in one trace cost {long_s:.2f} CPU-seconds, in short traces {short_s:.2f}")
    return long_s / short_s


def cpu_s(work: Callable[[], object], rounds: int) -> float:
    """Median CPU seconds of one round, after a warm-up."""
    work()
    found: list[float] = []
    for _ in range(rounds):
        before = time.process_time()
        work()
        found.append(time.process_time() - before)
    return statistics.median(found)


def check(spans: pl.DataFrame, generations: pl.DataFrame, scores: pl.DataFrame, traces: int) -> Converted:
    """Convert, and insist on what must come out."""
    converted = convert(spans, scores=scores, generations=generations)
    if converted.transitions.height != TURNS * traces or converted.trajectories.height != traces:
        raise SystemExit(f"expected {TURNS * traces} transitions in {traces} rows, got {converted.transitions.height}")
    return converted


def decode(spans: pl.DataFrame) -> int:
    """The baseline: decode the JSON of every message attribute."""
    items = spans.select(pl.col("SpanAttributes").explode()).unnest("SpanAttributes")
    texts = items.filter(pl.col("key").is_in(MESSAGE_KEYS))["value"].to_list()
    return sum(len(json.loads(value)) for value in texts)


def make(traces: int, characters: int) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Spans, captures and one score a trace; 2 + 2·TURNS spans each: session, agent, calls and tools."""
    spans: list[dict[str, Any]] = []
    generations: list[dict[str, Any]] = []
    scores: list[dict[str, Any]] = []
    for number in range(traces):
        _trace(number, characters, spans, generations)
        scores.append(_score(number))
    return _frame(spans, frames.SPANS), _frame(generations, frames.GENERATIONS), _frame(scores, frames.SCORES)


def _trace(number: int, characters: int, spans: list[dict[str, Any]], generations: list[dict[str, Any]]) -> None:
    trace, base = f"{number + 1:032x}", START_NS + number * 1_000_000_000
    spans.append(_span(trace, 0, "", base, {}))
    spans.append(
        _span(trace, 1, _id(trace, 0), base, {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "planner"})
    )
    seen: list[dict[str, Any]] = [
        _text("system", "s" * characters),
        _text("user", f"question {number} " + "u" * characters),
    ]
    prompt = list(range(256))
    for turn in range(TURNS):
        identity = f"call-{number}-{turn}"
        said = _asks(identity) if turn < TURNS - 1 else _text("assistant", "a" * characters)
        response = [(number + turn + token) % 50_000 for token in range(64)]
        at = base + (turn + 1) * 100_000_000
        spans.append(_span(trace, 2 + 2 * turn, _id(trace, 1), at, _call(number, turn, seen, said, len(prompt))))
        spans.append(_span(trace, 3 + 2 * turn, _id(trace, 1), at + 50_000_000, _tool(identity, characters)))
        generations.append(_generation(trace, number, turn, prompt, response))
        prompt = [*prompt, *response, *range(64)]
        seen = [*seen, said, _answer(identity, characters)]


def _call(
    number: int, turn: int, seen: list[dict[str, Any]], said: dict[str, Any], prompt_tokens: int
) -> dict[str, str]:
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.is_streaming": "false",
        "gen_ai.request.model": "tiny",
        "gen_ai.request.temperature": "1.0",
        "gen_ai.response.model": "tiny@v1",
        "gen_ai.response.id": f"chatcmpl-{number}-{turn}",
        "gen_ai.response.finish_reasons": '["tool_call"]' if turn < TURNS - 1 else '["stop"]',
        "gen_ai.usage.input_tokens": str(prompt_tokens),
        "gen_ai.usage.output_tokens": "64",
        "gen_ai.input.messages": json.dumps(seen),
        "gen_ai.output.messages": json.dumps([said]),
    }


def _tool(identity: str, characters: int) -> dict[str, str]:
    return {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "search",
        "gen_ai.tool.call.id": identity,
        "gen_ai.tool.call.result": "r" * characters,
    }


def _text(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": content}]}


def _asks(identity: str) -> dict[str, Any]:
    call = {"type": "tool_call", "id": identity, "name": "search", "arguments": {"query": "abc"}}
    return {"role": "assistant", "parts": [call]}


def _answer(identity: str, characters: int) -> dict[str, Any]:
    return {"role": "tool", "parts": [{"type": "tool_call_response", "id": identity, "response": "r" * characters}]}


def _id(trace: str, number: int) -> str:
    return f"{trace[-8:]}{number + 1:08x}"


def _span(trace: str, number: int, parent: str, start_ns: int, attributes: dict[str, str]) -> dict[str, Any]:
    return {
        "Timestamp": start_ns,
        "TraceId": trace,
        "SpanId": _id(trace, number),
        "ParentSpanId": parent,
        "SpanName": "span",
        "ServiceName": "bench",
        "SpanAttributes": [{"key": key, "value": value} for key, value in attributes.items()],
        "Duration": 40_000_000,
        "StatusCode": "Unset",
        "IngestedAt": start_ns // 1_000,
    }


def _generation(trace: str, number: int, turn: int, prompt: list[int], response: list[int]) -> dict[str, Any]:
    return {
        "generation_id": f"chatcmpl-{number}-{turn}/0",
        "response_id": f"chatcmpl-{number}-{turn}",
        "choice_index": 0,
        "trace_id": trace,
        "parent_span_id": _id(trace, 2 + 2 * turn),
        "policy_version": "tiny@v1",
        "prompt_token_ids": prompt,
        "response_token_ids": response,
        "logprobs": [-0.5] * len(response),
        "is_complete": True,
        "ingested_at": START_NS // 1_000,
    }


def _score(number: int) -> dict[str, Any]:
    return {
        "score_id": str(number),
        "name": "reward",
        "value": float(number % 2),
        "trace_id": f"{number + 1:032x}",
        "scored_at": START_NS,
        "ingested_at": START_NS // 1_000,
    }


def _frame(rows: list[dict[str, Any]], schema: pl.Schema) -> pl.DataFrame:
    times = {name: dtype for name, dtype in schema.items() if dtype in {frames.TIME_NS, frames.TIME_US}}
    raw = {name: pl.Int64() if name in times else dtype for name, dtype in schema.items()}
    return pl.DataFrame(rows, schema=raw).with_columns(pl.col(name).cast(dtype) for name, dtype in times.items())


if __name__ == "__main__":
    main()
