"""How fast spans become transitions with rewards, as a ratio against Agent Lightning's adapter.

    python benchmarks/convert.py [--quick]

Both get the same traces, in memory in the form that each is fed with: we a frame with the columns of ``otel_traces``,
Agent Lightning 0.3.0 a list of its spans; ours are as many as the pipeline converts at a time. CPU-seconds are those of
the whole process, all threads counted; rounds of both take turns, and a ratio is the median of the rounds' own.
``ratio tokens=5`` says that we convert five times as many spans in a CPU-second.

``tokens`` and ``messages`` are Agent Lightning's own kind of traces, the very same spans with the very same attributes
for both (``converting.carried_traces``): token ids in the spans, without and with full messages. ``captured_tokens``
and ``captured_messages`` are our own kind (``converting.agent_traces``): messages of 40 and of 400 characters as JSON,
tool calls in them, and the token ids in what the gateway captured; the peer's spans carry the ids themselves, and
messages in the second only. ``long_trace`` is what a span of that kind costs in one trace of 10,000 model calls,
against traces of eight.

The peer needs an environment of its own, which ``python benchmarks/peers.py`` makes. Without it there is the other
baseline, the decoding of every list of ids and messages with ``json.loads`` and nothing else: ``tokens_json`` and so on
are ratios against that.
"""

from spanloop.pipeline.run import BATCH_SPANS  # first, as in the service: it sets what jemalloc keeps

# isort: split
import argparse
import json
import statistics
import subprocess
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import peers
import polars as pl
from converting import carried_traces
from converting.agent_traces import PROFILES, SPANS, TURNS, Turn, turns

from spanloop.converters import Converted, convert, frames

START_NS = int(datetime(2026, 11, 20, tzinfo=UTC).timestamp()) * 1_000_000_000
DECODED_KEYS = ("gen_ai.input.messages", "gen_ai.output.messages", "prompt_token_ids", "response_token_ids")

Given = tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]
"""Spans, captures and scores."""

Ask = Callable[[str], float]
"""Spans per CPU-second of the peer, in one round of a profile."""


def main() -> None:
    """Measure each profile and print the ratios."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds; under a minute")
    arguments = parser.parse_args()
    traces, rounds = BATCH_SPANS // SPANS, 3 if arguments.quick else 7
    with peer(200 if arguments.quick else 1_000) as ask:
        measured = {
            profile: compare(profile, carried(traces, profile), partial(check_carried, traces, profile), ask, rounds)
            for profile in carried_traces.PROFILES
        }
        measured |= {
            f"captured_{profile}": compare(
                f"captured_{profile}", make(traces, characters), partial(check, traces), ask, rounds
            )
            for profile, characters in PROFILES.items()
        }
    failing = make(traces // 5, PROFILES["tokens"], reward=0.0)
    took_s = cpu_s(lambda: convert(failing[0], scores=failing[2], generations=failing[1]), rounds)
    print(f"captured_tokens, where every episode fails: {failing[0].height / took_s:,.0f} spans per CPU-second")
    long = long_trace(2_000 if arguments.quick else 10_000, rounds)
    # Last, because what they leave of the memory makes everything behind them slower.
    alone = {profile: one.spans.height / cpu_s(partial(decode, one.spans), 1) for profile, one in measured.items()}
    print("json.loads alone: " + ", ".join(f"{profile} {rate:,.0f}" for profile, rate in alone.items()))
    ratios = {
        f"{profile}_json" if one.ratio is None else profile: one.ratio or one.rate / alone[profile]
        for profile, one in measured.items()
    }
    print("ratio " + " ".join(f"{name}={value:.3f}" for name, value in {**ratios, "long_trace": long}.items()))


_AT_A_TIME: Final = 3
"""So many conversions are a round: the first behind the peer's finds nothing of ours in the processor's caches."""


class Measured(NamedTuple):
    """How fast one profile was."""

    spans: pl.DataFrame
    rate: float
    """Spans per CPU-second."""
    ratio: float | None
    """To the peer; None without one."""


def compare(name: str, given: Given, insist: Callable[[Converted], None], ask: Ask | None, rounds: int) -> Measured:
    """Measure one profile; ``insist`` looks at the outcome of every round."""
    frame, generations, scores = given
    insist(convert(frame, scores=scores, generations=generations))
    ours: list[float] = []
    theirs = [] if ask is None else [ask(name)]
    for _ in range(rounds):
        theirs += [] if ask is None else [ask(name)]
        took_s = 0.0
        for _ in range(_AT_A_TIME):
            before = time.process_time()
            converted = convert(frame, scores=scores, generations=generations)
            took_s += time.process_time() - before
            insist(converted)
            del converted  # as it would be once it is stored
        ours.append(_AT_A_TIME * frame.height / took_s)
    rate = statistics.median(ours)
    print(f"{name}: {rate:,.0f} spans per CPU-second", end="; ")
    print(f"Agent Lightning's adapter {statistics.median(theirs[1:]):,.0f}" if theirs else peers.HOW_TO, flush=True)
    ratio = statistics.median(own / its for own, its in zip(ours, theirs[1:], strict=True)) if theirs else None
    return Measured(frame, rate, ratio)


@contextmanager
def peer(traces: int) -> Generator[Ask | None]:
    """Asks the peer, in its own environment, for a round of a profile; None where there is no such environment."""
    python = peers.python()
    if python is None:
        yield None
        return
    command = [str(python), "-m", "converting.agent_lightning", str(traces)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        cwd=Path(__file__).parent,
    ) as process:  # fmt: skip
        asked, answers = process.stdin, process.stdout
        if asked is None or answers is None:
            raise SystemExit("expected pipes to the peer, got none")

        def ask(profile: str) -> float:
            print(profile, file=asked, flush=True)
            for line in answers:
                if line[:1].isdigit():
                    return float(line)
            raise SystemExit(f"expected the peer to measure {profile}, got nothing; run it by hand: {command}")

        yield ask
        asked.close()


def long_trace(calls: int, rounds: int) -> float:
    """Cost of a span in one trace of ``calls`` short model calls, relative to traces of eight."""
    spans, generations, scores = make(calls // TURNS, PROFILES["tokens"])
    one = spans.with_columns(
        TraceId=pl.lit("f" * 32),
        SpanId=pl.format("{}{}", pl.col("TraceId").str.slice(24), pl.col("SpanId").str.slice(8)),
    )
    captured = generations.with_columns(trace_id=pl.lit("f" * 32))
    short_s = cpu_s(lambda: convert(spans, scores=scores, generations=generations), rounds)
    long_s = cpu_s(lambda: convert(one, scores=scores, generations=captured), rounds)
    print(f"long_trace: {calls} model calls in one trace cost {long_s:.2f} CPU-seconds, in short traces {short_s:.2f}")
    return long_s / short_s


def cpu_s(work: Callable[[], object], rounds: int) -> float:
    """Median CPU-seconds of one round, all threads counted, after a warm-up."""
    work()
    found: list[float] = []
    for _ in range(rounds):
        before = time.process_time()
        work()
        found.append(time.process_time() - before)
    return statistics.median(found)


def check(traces: int, converted: Converted) -> None:
    """Insist on what must come out."""
    is_right = (pl.col("reward") == 1) & pl.col("is_trainable")
    rewarded: int = converted.transitions.select(is_right.sum()).item()
    if rewarded != TURNS * traces or converted.trajectories.height != traces:
        raise SystemExit(f"expected {TURNS * traces} rewarded transitions in {traces} rows, got {rewarded}")


def check_carried(traces: int, profile: str, converted: Converted) -> None:
    """Insist on what must come out: all ids, messages and rewards, and why no step is trained on."""
    found = converted.transitions
    ids = found.select((pl.col("prompt_token_ids").list.len() + pl.col("response_token_ids").list.len()).sum()).item()
    # The messages of later calls hold answers of tools, and not the calls that asked for them.
    expected = "missing_logprobs" if profile == "messages" else "missing_content"
    reason = pl.when(pl.col("step") == 0).then(pl.lit(expected)).otherwise(pl.lit("missing_content"))
    is_right = (pl.col("reward") == 1) & (pl.col("untrainable_reason") == reason)
    says = pl.col("state").str.len_bytes() > (400 if profile == "messages" else 0)
    whole: int = found.select((is_right & says).sum()).item()
    if whole != TURNS * traces or ids != traces * sum(256 + 128 * turn + 64 for turn in range(TURNS)):
        raise SystemExit(f"expected {TURNS * traces} rewarded transitions with all their ids, got {whole} with {ids}")


def carried(traces: int, profile: str) -> Given:
    """The spans of ``carried_traces``, as the collector stores them: lists as JSON, numbers as text."""
    spans = [
        {
            "Timestamp": round(row.start_s * 1e9),
            "TraceId": f"{number + 1:032x}",
            "SpanId": f"{(number << 8 | row.number) + 1:016x}",
            "ParentSpanId": "" if row.parent is None else f"{(number << 8 | row.parent) + 1:016x}",
            "SpanName": row.name,
            "ServiceName": "bench",
            "SpanAttributes": [
                {"key": key, "value": json.dumps(value) if isinstance(value, tuple) else str(value)}
                for key, value in row.attributes.items()
            ],
            "Duration": round((row.end_s - row.start_s) * 1e9),
            "StatusCode": "Unset",
            "IngestedAt": round(row.end_s * 1e6),
        }
        for number in range(traces)
        for row in carried_traces.rows(number, profile)
    ]
    return _frame(spans, frames.SPANS), frames.empty(frames.GENERATIONS), frames.empty(frames.SCORES)


def decode(spans: pl.DataFrame) -> int:
    """The baseline: decode the JSON of every list of messages and of token ids."""
    items = spans.select(pl.col("SpanAttributes").explode()).unnest("SpanAttributes")
    texts = items.filter(pl.col("key").is_in(DECODED_KEYS))["value"].to_list()
    return sum(len(json.loads(value)) for value in texts)


def make(traces: int, characters: int, reward: float = 1.0) -> Given:
    """Spans, captures and scores (none: the reward is a span)."""
    spans: list[dict[str, Any]] = []
    generations: list[dict[str, Any]] = []
    for number in range(traces):
        _trace(number, characters, reward, spans, generations)
    return _frame(spans, frames.SPANS), _frame(generations, frames.GENERATIONS), frames.empty(frames.SCORES)


def _trace(
    number: int, characters: int, reward: float, spans: list[dict[str, Any]], generations: list[dict[str, Any]]
) -> None:
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
    scored = {"gen_ai.evaluation.name": "reward", "gen_ai.evaluation.score.value": str(reward)}
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


def _message(number: int, index: int, role: str, text: str, *, is_last: bool) -> dict[str, Any]:
    identity = f"call-{number}-{index}"
    part: dict[str, Any] = {"type": "text", "content": text}
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


def _generation(trace: str, number: int, index: int, turn: Turn) -> dict[str, Any]:
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
        "sampling": [{"key": "temperature", "value": "1.0"}],
        "ingested_at": START_NS // 1_000,
    }


def _frame(rows: list[dict[str, Any]], schema: pl.Schema) -> pl.DataFrame:
    times = {name: dtype for name, dtype in schema.items() if dtype in {frames.TIME_NS, frames.TIME_US}}
    raw = {name: pl.Int64() if name in times else dtype for name, dtype in schema.items()}
    return pl.DataFrame(rows, schema=raw).with_columns(pl.col(name).cast(dtype) for name, dtype in times.items())


if __name__ == "__main__":
    main()
