"""How fast spans become transitions with rewards, as a ratio against Agent Lightning's adapter.

    python benchmarks/convert.py [--quick] [--only PROFILE ...]

Both get the same episodes, in memory in the form that each is fed with: we a frame with the columns of ``otel_traces``,
Agent Lightning 0.3.0 a list of its spans. CPU-seconds are those of the whole process, all threads counted; rounds of
both take turns, and a ratio is the median of the rounds' own. ``ratio tokens=5`` says that we convert five times as
many spans in a CPU-second. What is timed is ``convert`` alone; whatever comes out is compared with what must, outside
of the time.

``mix`` is what production looks like (``converting.mixed_episodes``): three dialects, a third of the episodes failed,
rewards and a user's reward function, bare loops that must be stitched, captures, edited histories. ``success`` and
``failure`` are its episodes that succeeded and those that failed, by themselves. A span is one of ours on both sides:
the spans that our store holds of an episode count for the peer, too, which gets the same calls, tools and rewards in
its tracer's form. Each batch holds about as much text as the pipeline converts at a time.

``tokens`` and ``messages`` are Agent Lightning's own kind of traces, the very same spans with the very same attributes
for both (``converting.carried_traces``): token ids in the spans, without and with full messages. ``captured_tokens``
and ``captured_messages`` are our own kind (``converting.agent_traces``): messages of 40 and of 400 characters as JSON,
tool calls in them, and the token ids in what the gateway captured; the peer's spans carry the ids themselves, and
messages in the second only. ``long_trace`` is what a span of that kind costs in one trace of 10,000 model calls,
against traces of eight.

The peer needs an environment of its own, which ``python benchmarks/peers.py`` makes. Without it there is the other
baseline, the decoding of lists of ids and messages with ``json.loads`` and nothing else: ``tokens_json`` and so on are
ratios against that.
"""

from spanloop.pipeline.run import BATCH_SPANS  # first, as in the service: it sets what jemalloc keeps

# isort: split
import argparse
import json
import statistics
import subprocess
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import peers
import polars as pl
from converting import agent_traces, captured_spans, carried_spans, carried_traces, mixed_episodes, mixed_facts
from converting.mixed_spans import given as mixed
from converting.stored_frames import Given

from spanloop.converters import Converted, Options, convert

MIXED_EPISODES: Final = 2_000
"""Of the mix: 150 MB of text, which is what the pipeline converts at a time with its default memory."""

_DECODED_KEYS: Final = (
    *("gen_ai.input.messages", "gen_ai.output.messages", "input.value"),
    *("prompt_token_ids", "response_token_ids"),
)

Ask = Callable[[str], float]
"""Spans per CPU-second of the peer, in one round of a profile."""


class Size(NamedTuple):
    """How much is measured."""

    traces: int
    """Of the four kinds that have twenty spans each."""
    episodes: int
    """Of the mix."""
    peer_traces: int
    calls: int
    """In the long trace."""
    rounds: int
    at_a_time: int
    """Conversions a round: the first behind the peer's finds nothing of ours in the processor's caches."""


FULL: Final = Size(BATCH_SPANS // agent_traces.SPANS, MIXED_EPISODES, 1_000, 10_000, rounds=7, at_a_time=3)
QUICK: Final = Size(BATCH_SPANS // agent_traces.SPANS // 10, 300, 100, 2_000, rounds=3, at_a_time=1)


class Profile(NamedTuple):
    """One kind of traces."""

    name: str
    given: Given
    insist: Callable[[Converted], None]
    """Raises when something else came out than must."""
    options: Options


def main() -> None:
    """Measure each profile and print the ratios."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="smaller batches, fewer rounds; under a minute")
    parser.add_argument("--only", nargs="+", choices=sorted(_NAMES), default=sorted(_NAMES), help="these profiles")
    arguments = parser.parse_args()
    size = QUICK if arguments.quick else FULL
    with peer(size.peer_traces) as ask:
        measured = {one.name: compare(one, ask, size) for one in profiles(size, frozenset(arguments.only))}
    long = {"long_trace": long_trace(size)} if "long_trace" in arguments.only else {}
    # Last, because what they leave of the memory makes everything behind them slower.
    alone = {name: one.spans.height / cpu_s(partial(decode, one.spans), 1) for name, one in measured.items()}
    print("json.loads alone: " + ", ".join(f"{name} {rate:,.0f}" for name, rate in alone.items()))
    ratios = {
        f"{name}_json" if one.ratio is None else name: one.ratio or one.rate / alone[name]
        for name, one in measured.items()
    }
    print("ratio " + " ".join(f"{name}={value:.3f}" for name, value in {**ratios, **long}.items()))


_NAMES: Final = frozenset(
    (
        *mixed_episodes.PROFILES,
        *carried_traces.PROFILES,
        *(f"captured_{name}" for name in agent_traces.PROFILES),
        "long_trace",
    )
)


def profiles(size: Size, wanted: frozenset[str]) -> Iterator[Profile]:
    """Each profile's input; made when it is asked for, because it takes memory."""
    plain = Options()
    for name in mixed_episodes.PROFILES:
        if name in wanted:
            episodes = mixed_episodes.of_profile(name, size.episodes)
            facts = mixed_facts.expected(episodes)
            yield Profile(name, mixed(episodes), partial(mixed_facts.check, facts), mixed_facts.OPTIONS)
    for name in carried_traces.PROFILES:
        if name in wanted:
            insist = partial(carried_spans.check_carried, size.traces, name)
            yield Profile(name, carried_spans.carried(size.traces, name), insist, plain)
    for name, characters in agent_traces.PROFILES.items():
        if f"captured_{name}" in wanted:
            given = captured_spans.make(size.traces, characters)
            yield Profile(f"captured_{name}", given, partial(captured_spans.check, size.traces), plain)


class Measured(NamedTuple):
    """How fast one profile was."""

    spans: pl.DataFrame
    rate: float
    """Spans per CPU-second."""
    ratio: float | None
    """To the peer; None without one."""


def compare(profile: Profile, ask: Ask | None, size: Size) -> Measured:
    """Measure one profile."""
    name, spans = profile.name, profile.given.spans
    profile.insist(_convert(profile.given, profile.options))
    ours: list[float] = []
    theirs = [] if ask is None else [ask(name)]
    for _ in range(size.rounds):
        theirs += [] if ask is None else [ask(name)]
        took_s = 0.0
        for _ in range(size.at_a_time):
            before = time.process_time()
            converted = _convert(profile.given, profile.options)
            took_s += time.process_time() - before
            if converted.episodes.height == 0:
                raise SystemExit(f"{name}: expected episodes, got none")
            del converted  # as it would be once it is stored
        ours.append(size.at_a_time * spans.height / took_s)
    profile.insist(_convert(profile.given, profile.options))
    rate = statistics.median(ours)
    print(f"{name}: {spans.height:,} spans, {rate:,.0f} per CPU-second", end="; ")
    print(f"Agent Lightning's adapter {statistics.median(theirs[1:]):,.0f}" if theirs else peers.HOW_TO, flush=True)
    ratio = statistics.median(own / its for own, its in zip(ours, theirs[1:], strict=True)) if theirs else None
    return Measured(spans, rate, ratio)


def _convert(given: Given, options: Options) -> Converted:
    return convert(given.spans, scores=given.scores, generations=given.generations, options=options)


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


def long_trace(size: Size) -> float:
    """Cost of a span in one trace of many short model calls, relative to traces of eight."""
    short = captured_spans.make(size.calls // agent_traces.TURNS, agent_traces.PROFILES["tokens"])
    spans = short.spans.with_columns(
        TraceId=pl.lit("f" * 32),
        SpanId=pl.format("{}{}", pl.col("TraceId").str.slice(24), pl.col("SpanId").str.slice(8)),
    )
    long = Given(spans, short.generations.with_columns(trace_id=pl.lit("f" * 32)), short.scores)
    short_s, long_s = (cpu_s(partial(_convert, given, Options()), size.rounds) for given in (short, long))
    print(f"long_trace: {size.calls} calls in one trace cost {long_s:.2f} CPU-seconds, in short traces {short_s:.2f}")
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


def decode(spans: pl.DataFrame) -> int:
    """The baseline: decode the JSON of every list of messages and of token ids."""
    items = spans.select(pl.col("SpanAttributes").explode()).unnest("SpanAttributes")
    texts = items.filter(pl.col("key").is_in(_DECODED_KEYS))["value"].to_list()
    return sum(len(json.loads(value)) for value in texts)


if __name__ == "__main__":
    main()
