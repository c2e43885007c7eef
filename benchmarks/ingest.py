"""How fast spans get in: HTTP in, acknowledged on disk, queryable; beside ClickHouse alone, rotel and Agent Lightning.

    python benchmarks/ingest.py [--quick]

Four connections send batches of 512 spans of 3 KB whose ``finish_reasons`` are arrays, generated beforehand; 20,000
different ones, again and again. *ClickHouse alone* gets the very same bytes into the same table in blocks of 20,000
spans, one insert after the other. *rotel* writes to the identical table, as it comes and "tuned", in blocks as large
and without compression; it answers before anything is stored. *Agent Lightning* keeps spans in its memory; its requests
name rollouts, else it would drop them. Each has a database of its own. CPU is that of all server processes,
ClickHouse's merges afterwards included; spans/s end when the last span is queryable. Then the collector and Agent
Lightning get spans with 500 token ids each; batches of 8 spans go to the collector and to the same HTTP server that
reads and drops them, over 4 connections and over 64, from senders that make no requests meanwhile; and batches of 512
go to the collector at half of the load, at fixed times.

The last line is ``ratio clickhouse=… rotel=… rotel_tuned=… agent_lightning=… agent_lightning_tokens=…
clickhouse_cpu=… small=… small_64=…``: queryable spans/s over those of ClickHouse alone; spans per CPU-second over those
of the peers and of ClickHouse; acknowledged spans/s in batches of 8 over those that the same server drops, both over 4
connections and both over 64, while ClickHouse stores what was acknowledged on the same machine. A peer that is not
installed has no ratio, see ``peers.py``.
"""

import argparse
import itertools
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from ingesting.flat_out import send_flat_out
from ingesting.load import (
    BATCH_SPANS,
    CONNECTIONS,
    SMALL_BATCH_SPANS,
    cpu_s,
    make_bodies,
    pair,
    percentile,
    send,
    send_all,
    send_at_rate,
)
from ingesting.servers import (
    TIMEOUT_S,
    Server,
    agent_lightning,
    collector,
    dropping,
    kept_spans,
    rollouts,
    rotel,
    stored,
    wait_for,
    wait_for_merges,
)
from peers import HOW_TO, python

from spanloop.collector.otlp.clickhouse_encoding import encode_body
from spanloop.embedded_clickhouse import EmbeddedClickHouse
from spanloop.foundation.paths import DataDir
from spanloop.store import Store
from spanloop.store.client import Address, Connection
from spanloop.store.discovery import embedded_address

BLOCK_REQUESTS: Final = 20_000 // BATCH_SPANS
MANY_CONNECTIONS: Final = 64
"""As many small agents have together."""
TOKEN_IDS: Final = 500
"""Twice the bytes of a span without them."""
PEER_REQUESTS: Final = 8
"""For Agent Lightning, which takes as long for them as all others together for everything."""


class Outcome(NamedTuple):
    """One way in."""

    name: str
    spans: int
    wall_s: float
    cpu_s: float

    @property
    def per_s(self) -> float:
        """Spans/s."""
        return self.spans / self.wall_s

    @property
    def per_cpu_s(self) -> float:
        """Spans per CPU-second."""
        return self.spans / self.cpu_s

    def __str__(self) -> str:
        return f"{self.name:<36} {self.per_s:>9,.0f} spans/s {self.per_cpu_s:>9,.0f} spans per CPU-second"


class Bench(NamedTuple):
    """What every way in needs."""

    data_dir: DataDir
    address: Address
    clickhouse_pid: int
    bodies: Sequence[bytes]
    rounds: int
    """How often the bodies are sent."""

    @property
    def work(self) -> list[bytes]:
        """All requests."""
        return list(self.bodies) * self.rounds

    def measure(
        self, name: str, database: str, pids: Sequence[int], work: Callable[[], object], *, timeout_s: float = TIMEOUT_S
    ) -> Outcome:
        """Do it; the database has these spans and no others."""
        spans = len(self.bodies) * self.rounds * BATCH_SPANS
        connection = Connection(replace(self.address, database="default"))
        before = stored(connection, database)
        cpu_before_s, start_s = cpu_s(self.clickhouse_pid, *pids), time.perf_counter()
        work()
        wait_for(
            lambda: stored(connection, database) >= before + spans, f"the last span of {name}", timeout_s=timeout_s
        )
        wall_s = time.perf_counter() - start_s
        wait_for_merges(connection, database)
        used_s = cpu_s(self.clickhouse_pid, *pids) - cpu_before_s
        found = stored(connection, database) - before
        connection.close()
        if found != spans:
            raise SystemExit(f"{name} stored {found} spans of {spans}")
        return Outcome(name, spans, wall_s, used_s)


def of_collector(bench: Bench) -> Outcome:
    """HTTP in, acknowledged, queryable."""
    with collector(bench.data_dir) as server:
        _warm_up(bench, server.port, bench.address)

        def work() -> None:
            start_s = time.perf_counter()
            waited_s = send_all(server.port, bench.work)
            per_s = len(waited_s) * BATCH_SPANS / (time.perf_counter() - start_s)
            print(
                f"{'acknowledged, at full load':<36} {per_s:>9,.0f} spans/s, "
                f"p50 {percentile(waited_s, 0.5):.0f} ms, p99 {percentile(waited_s, 0.99):.0f} ms"
            )

        return bench.measure("collector: HTTP in to queryable", bench.address.database, [server.process.pid], work)


def of_collector_with_token_ids(bench: Bench, rounds: int) -> Outcome:
    """The same with spans twice as large, half of them token ids, in a table that holds no others to be merged with."""
    bodies = make_bodies(PEER_REQUESTS, token_ids=TOKEN_IDS)
    with Store.open(bench.address) as store, closing(Connection(bench.address)) as connection:
        for table in ("otel_traces", "trace_summaries"):
            connection.command(f"TRUNCATE TABLE `{store.database}`.{table}", doing="emptying")
    size_bytes = sum(map(len, bodies)) / len(bodies) / BATCH_SPANS
    print(f"{len(bodies) * rounds * BATCH_SPANS:,} spans of {size_bytes:,.0f} bytes with {TOKEN_IDS} token ids each")
    outcome = of_collector(bench._replace(bodies=bodies, rounds=rounds))
    return outcome._replace(name=f"collector, {TOKEN_IDS} token ids a span")


def of_clickhouse(bench: Bench) -> Outcome:
    """The same bytes, in ClickHouse's form beforehand."""
    address = replace(bench.address, database="alone")
    work = [encode_body(body).body for body in bench.bodies] * bench.rounds
    blocks = [work[at : at + BLOCK_REQUESTS] for at in range(0, len(work), BLOCK_REQUESTS)]
    with Store.open(address) as store:

        def insert() -> None:
            for number, block in enumerate(blocks):
                store.insert_from("collector_insert_spans", block, token=f"block {number}")

        return bench.measure("ClickHouse alone, blocks of 20,000", address.database, [], insert)


def of_rotel(bench: Bench, *, is_tuned: bool) -> Outcome | None:
    """The peer with the same storage; none where it lost or doubled spans, as it does when an insert takes long."""
    database = "rotel_tuned" if is_tuned else "rotel"
    address = replace(bench.address, database=database)
    Store.open(address).close()
    with rotel(address, BLOCK_REQUESTS * BATCH_SPANS if is_tuned else None) as server:
        _warm_up(bench, server.port, address)
        name = f"rotel{', blocks of 20,000' if is_tuned else ''}: HTTP in to queryable"
        try:
            return bench.measure(
                name, database, [server.process.pid], lambda: send_all(server.port, bench.work), timeout_s=60
            )
        except SystemExit as error:
            print(f"rotel is left out: {error}")
            return None


def of_agent_lightning(token_ids: int) -> Outcome:
    """The peer with the same purpose."""
    with agent_lightning() as server:
        wait_for(lambda: kept_spans(server.port) == 0, "Agent Lightning's first answer", server.process)
        names = ("agentlightning.rollout_id", "agentlightning.attempt_id")
        around = [[pair(*named) for named in zip(names, ids, strict=True)] for ids in rollouts(server.port, 4)]
        bodies = make_bodies(PEER_REQUESTS, around=around, token_ids=token_ids)
        cpu_before_s, start_s = cpu_s(server.process.pid), time.perf_counter()
        send_all(server.port, bodies)
        wall_s, used_s = time.perf_counter() - start_s, cpu_s(server.process.pid) - cpu_before_s
        spans = PEER_REQUESTS * BATCH_SPANS
        if kept_spans(server.port) != spans:
            raise SystemExit(f"Agent Lightning kept {kept_spans(server.port)} spans of {spans}")
    name = f"Agent Lightning, {token_ids} token ids a span" if token_ids else "Agent Lightning: HTTP in to memory"
    return Outcome(name, spans, wall_s, used_s)


def small_batches(bench: Bench, seconds: float, repeats: int) -> Mapping[str, float]:
    """Acknowledged spans/s in small batches over those that are read and dropped, by the ratio's name.

    Args:
        bench: Its collector stores what it acknowledges meanwhile.
        seconds: For each server and number of connections, each time.
        repeats: The servers take turns; medians count.
    """
    bodies = make_bodies(1_000, SMALL_BATCH_SPANS)
    found: dict[str, list[float]] = {}
    for _ in range(repeats):
        for what, start in (("read and dropped", dropping), ("acknowledged", lambda: collector(bench.data_dir))):
            with start() as server:
                send_flat_out(server.port, bodies, CONNECTIONS, 0.2)
                for connections in (CONNECTIONS, MANY_CONNECTIONS):
                    found.setdefault(f"{connections} {what}", []).append(
                        _small_batches(server, bodies, connections, seconds, what)
                    )
    return {
        name: statistics.median(found[f"{connections} acknowledged"])
        / statistics.median(found[f"{connections} read and dropped"])
        for name, connections in (("small", CONNECTIONS), (f"small_{MANY_CONNECTIONS}", MANY_CONNECTIONS))
    }


def _small_batches(server: Server, bodies: Sequence[bytes], connections: int, seconds: float, what: str) -> float:
    cpu_before_s = cpu_s(server.process.pid)
    done = send_flat_out(server.port, bodies, connections, seconds)
    used_s = cpu_s(server.process.pid) - cpu_before_s
    per_s = done.requests * SMALL_BATCH_SPANS / done.wall_s
    print(
        f"{f'batches of {SMALL_BATCH_SPANS}, {connections} connections, {what}':<46} {per_s:>9,.0f} spans/s, "
        f"p99 {percentile(done.waited_s, 0.99):.0f} ms; CPU of a request {used_s / done.requests * 1e6:.0f} µs, "
        f"of its sender {done.cpu_s / done.requests * 1e6:.0f}"
    )
    return per_s


def half_load(bench: Bench, per_s: float, seconds: float) -> float:
    """The 99th percentile of the acknowledgement in milliseconds, at half of the spans/s that get through."""
    requests_per_s = per_s / 2 / BATCH_SPANS
    work = list(itertools.islice(itertools.cycle(bench.bodies), int(requests_per_s * seconds)))
    with collector(bench.data_dir) as server:
        _warm_up(bench, server.port, bench.address)
        waited_s = send_at_rate(server.port, work, requests_per_s)
    p99_ms = percentile(waited_s, 0.99)
    print(f"{'acknowledged, at half load':<36} {per_s / 2:>9,.0f} spans/s, "
          f"p50 {percentile(waited_s, 0.5):.0f} ms, p99 {p99_ms:.0f} ms")  # fmt: skip
    return p99_ms


def _warm_up(bench: Bench, port: int, address: Address) -> None:
    connection = Connection(replace(address, database="default"))
    before = stored(connection, address.database)
    send(port, bench.bodies[:1])
    wait_for(lambda: stored(connection, address.database) >= before + BATCH_SPANS, "the first batch")
    connection.close()


def main() -> None:
    """Run every way and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help="80,000 spans each way, once; default 200,000, three times"
    )
    options = parser.parse_args()
    rounds, repeats = (4, 1) if options.quick else (10, 3)
    bodies = make_bodies(BLOCK_REQUESTS + 1)
    has_peers = python() is not None
    size_bytes = sum(map(len, bodies)) / len(bodies) / BATCH_SPANS
    print(f"{len(bodies) * rounds * BATCH_SPANS:,} spans of {size_bytes:,.0f} bytes, batches of {BATCH_SPANS}, "
          f"{CONNECTIONS} connections; medians of {repeats}")  # fmt: skip
    ways: list[Callable[[Bench], Outcome | None]] = [of_collector, of_clickhouse]
    if has_peers:
        ways += [partial(of_rotel, is_tuned=False), partial(of_rotel, is_tuned=True)]
    with tempfile.TemporaryDirectory(prefix="spanloop-ingest-") as folder:
        data_dir = DataDir(Path(folder)).open()
        with EmbeddedClickHouse(data_dir) as server:
            address = embedded_address(data_dir)
            if server.pid is None:
                raise SystemExit("the embedded ClickHouse has no process")
            Store.open(address).close()
            bench = Bench(data_dir, address, server.pid, bodies, rounds)
            outcomes = [[way(bench) for way in ways] for _ in range(repeats)]
            ours = _medians([each[0] for each in outcomes])
            tokens = of_collector_with_token_ids(bench, 10 if options.quick else 40)
            small = small_batches(bench, 0.7 if options.quick else 10.0, repeats)
            p99_ms = half_load(bench, ours.per_s, 4 if options.quick else 20)
    alone = _medians([each[1] for each in outcomes])
    found = [ours, alone]
    ratios = {"clickhouse": ours.per_s / alone.per_s}
    for at, name in ((2, "rotel"), (3, "rotel_tuned")):
        if has_peers and any(each[at] for each in outcomes):
            found.append(_medians([each[at] for each in outcomes]))
            ratios[name] = ours.per_cpu_s / found[-1].per_cpu_s
    if has_peers:
        plain, with_ids = of_agent_lightning(0), of_agent_lightning(TOKEN_IDS)
        found += [plain, tokens, with_ids]
        ratios |= {
            "agent_lightning": ours.per_cpu_s / plain.per_cpu_s,
            "agent_lightning_tokens": tokens.per_cpu_s / with_ids.per_cpu_s,
        }
    else:
        print(f"rotel and Agent Lightning: {HOW_TO}")
    print(*found, sep="\n")
    ratios |= {"clickhouse_cpu": ours.per_cpu_s / alone.per_cpu_s, **small}
    print("ratio", *(f"{name}={value:.2f}" for name, value in ratios.items()), f"p99_ms={p99_ms:.0f}")


def _medians(outcomes: Sequence[Outcome | None]) -> Outcome:
    found = [each for each in outcomes if each is not None]
    wall_s = statistics.median(each.wall_s for each in found)
    return Outcome(found[0].name, found[0].spans, wall_s, statistics.median(each.cpu_s for each in found))


if __name__ == "__main__":
    main()
