"""Whether the collector's memory stays flat: millions of spans, then ten times as many as it gets through.

    python benchmarks/ingest_memory.py [--quick] [--spans N]

Batches of 512 spans of 3 KB, 20,000 different ones again and again; what is stored is dropped on the way. First four
connections send no faster than ClickHouse stores. Then a collector whose spool holds 256 MiB is offered ten times that
rate by forty connections, at fixed times: once the spool is full it answers 503 to most, and they send the batch again.
Then they stop, and the backlog drains. The resident memory is looked at five times a second, from the first 100,000
spans on.

The last line is ``ratio drain=… overload=… swing_mib=…``: the backlog's spans/s over those of the same collector while
it is flooded; spans that were offered in the overload over those that were acknowledged; and the most less the least
resident memory of one collector, the larger of both.
"""

import argparse
import http.client
import itertools
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
import psutil
from ingesting.load import BATCH_SPANS, CONNECTIONS, make_bodies
from ingesting.servers import Server, collector, wait_for

from spanloop.embedded_clickhouse import EmbeddedClickHouse
from spanloop.foundation.paths import DataDir
from spanloop.store import Store
from spanloop.store.client import Address, Connection
from spanloop.store.discovery import embedded_address

OVERLOAD: Final = 10
FLOOD_CONNECTIONS: Final = OVERLOAD * CONNECTIONS
SPOOL_BYTES: Final = 256 * 2**20
HIGH_BYTES: Final = 512 * 2**20
KEPT_SPANS: Final = 1_000_000
WARM_SPANS: Final = 100_000
MIB: Final = 2**20


class Memory(NamedTuple):
    """Resident bytes of the collector, over a phase."""

    first: int
    least: int
    most: int
    last: int

    def __str__(self) -> str:
        at = [f"{size / MIB:.0f}" for size in self]
        return f"{at[0]} MiB at first, {at[1]} at least, {at[2]} at most, {at[3]} at last"


class Progress:
    """What the senders count together."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.acknowledged = 0
        self.refused = 0
        self.is_over = threading.Event()

    @property
    def offered(self) -> int:
        """Spans that were sent, each time that they were."""
        return self.acknowledged + self.refused

    def add(self, *, is_acknowledged: bool) -> None:
        """One answer."""
        with self._lock:
            self.acknowledged += BATCH_SPANS * is_acknowledged
            self.refused += BATCH_SPANS * (not is_acknowledged)


def sender(port: int, bodies: Sequence[bytes], first: int, progress: Progress, may_send: Callable[[], bool]) -> None:
    """Send until it is over; a batch that gets 503 goes again."""
    client = http.client.HTTPConnection("127.0.0.1", port)
    number = first
    while not progress.is_over.is_set():
        if not may_send():
            continue
        client.request("POST", "/v1/traces", bodies[number % len(bodies)], {"Content-Type": "application/x-protobuf"})
        answer = client.getresponse()
        answer.read()
        if answer.status not in {200, 503}:
            raise SystemExit(f"the collector answered {answer.status}")
        progress.add(is_acknowledged=answer.status == 200)
        number += answer.status == 200


def while_small(watch: "Watch") -> Callable[[], bool]:
    """Permission to send while the backlog is small."""

    def may_send() -> bool:
        if watch.backlog_bytes < HIGH_BYTES:
            return True
        time.sleep(0.05)
        return False

    return may_send


def at_fixed_times(per_s: float) -> Callable[[], bool]:
    """Permission to send so often, by all senders together, whenever the answers come."""
    turns, lock, start_s = itertools.count(), threading.Lock(), time.perf_counter()

    def may_send() -> bool:
        with lock:
            due_s = start_s + next(turns) / per_s
        time.sleep(max(0.0, due_s - time.perf_counter()))
        return True

    return may_send


@contextmanager
def senders(count: int, port: int, bodies: Sequence[bytes], may_send: Callable[[], bool]) -> Generator[Progress]:
    """As many of them, for as long as the block lasts."""
    progress = Progress()
    threads = [threading.Thread(target=sender, args=(port, bodies, at, progress, may_send)) for at in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield progress
    finally:
        progress.is_over.set()
        for thread in threads:
            thread.join()


class Watch:
    """One collector under load: its memory, its backlog, and what ClickHouse has confirmed."""

    def __init__(self, server: Server, address: Address) -> None:
        self._url = f"http://127.0.0.1:{server.port}"
        self._process = psutil.Process(server.process.pid)
        self._connection = Connection(address)
        self._sizes: list[int] = []
        self.least, self.most = 2**63, 0
        """Resident bytes, over all phases."""
        self._dropped = 0
        self.backlog_bytes = 0

    def inserted(self) -> int:
        """Spans that were confirmed since the collector started."""
        text = httpx.get(f"{self._url}/metrics", timeout=60).text
        line = next(
            (line for line in text.splitlines() if line.startswith("spanloop_collector_inserted_total ")), "x 0"
        )
        return int(float(line.split()[-1]))

    def look(self) -> int:
        """Sample; drop what is stored when that is much. The confirmed spans so far."""
        health: dict[str, Any] = httpx.get(f"{self._url}/healthz", timeout=60).json()
        self.backlog_bytes = int(health["spool"]["bytes"])
        inserted = self.inserted()
        if inserted >= WARM_SPANS:
            self._sizes.append(self._process.memory_info().rss)
        if inserted - self._dropped >= KEPT_SPANS:
            self._connection.command("TRUNCATE TABLE otel_traces", doing="dropping what was stored")
            self._dropped = inserted
        time.sleep(0.2)
        return inserted

    def memory(self) -> Memory:
        """Since the last time."""
        sizes, self._sizes = self._sizes, []
        self.least, self.most = min(self.least, *sizes), max(self.most, *sizes)
        return Memory(sizes[0], min(sizes), max(sizes), sizes[-1])

    def close(self) -> None:
        """Leave ClickHouse."""
        self._connection.close()


def steadily(server: Server, watch: Watch, bodies: Sequence[bytes], spans: int) -> float:
    """As fast as ClickHouse stores; the spans/s."""
    start_s = time.perf_counter()
    with senders(CONNECTIONS, server.port, bodies, while_small(watch)):
        while (done := watch.look()) < spans:
            pass
    per_s = done / (time.perf_counter() - start_s)
    print(f"{done:,} spans at {per_s:,.0f} spans/s: {watch.memory()}")
    return per_s


def overloaded(
    server: Server, watch: Watch, bodies: Sequence[bytes], seconds: float, per_s: float
) -> tuple[float, float]:
    """Ten times as much, then nothing; the drain's rate over the rate before, and what was offered over what was taken.

    Args:
        server: A collector with a small spool.
        watch: Its memory.
        bodies: What is sent.
        seconds: How long, from the first 503 on.
        per_s: Spans/s that get through.
    """
    while_flooded: list[tuple[float, int]] = []
    may_send = at_fixed_times(OVERLOAD * per_s / BATCH_SPANS)
    with senders(FLOOD_CONNECTIONS, server.port, bodies, may_send) as progress:
        wait_for(lambda: watch.look() >= WARM_SPANS and progress.refused > 0, "the first 503", server.process)
        acknowledged, refused, offered = -progress.acknowledged, -progress.refused, -progress.offered
        start_s = time.perf_counter()
        while time.perf_counter() < start_s + seconds:
            while_flooded.append((time.perf_counter(), watch.look()))
        seconds = time.perf_counter() - start_s
        acknowledged += progress.acknowledged
        refused += progress.refused
        offered += progress.offered
    flooded_per_s = _rate(while_flooded)
    print(
        f"in {seconds:.0f} s of overload {offered / seconds:,.0f} spans/s offered by {FLOOD_CONNECTIONS} connections, "
        f"{acknowledged / seconds:,.0f} acknowledged, {refused / seconds:,.0f} refused, {flooded_per_s:,.0f} stored: "
        f"{watch.memory()}"
    )
    draining: list[tuple[float, int]] = []

    def is_drained() -> bool:
        draining.append((time.perf_counter(), watch.look()))
        return watch.backlog_bytes == 0

    wait_for(is_drained, "the drained spool")
    drained_per_s = _rate(draining)
    print(f"the backlog drains at {drained_per_s:,.0f} spans/s: {watch.memory()}")
    if watch.inserted() < progress.acknowledged:
        raise SystemExit(f"{progress.acknowledged} spans were acknowledged and {watch.inserted()} stored")
    return drained_per_s / flooded_per_s, offered / acknowledged


def _rate(samples: Sequence[tuple[float, int]]) -> float:
    (first_s, first), (last_s, last) = samples[0], samples[-1]
    return (last - first) / (last_s - first_s)


def main() -> None:
    """Run both phases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="200,000 spans, and 10 s of overload")
    parser.add_argument("--spans", type=int, default=10_000_000, help="of the steady phase; default 10 million")
    options = parser.parse_args()
    spans, seconds = (200_000, 10) if options.quick else (options.spans, 60)
    bodies = make_bodies(40)
    with tempfile.TemporaryDirectory(prefix="spanloop-memory-") as folder:
        data_dir = DataDir(Path(folder)).open()
        with EmbeddedClickHouse(data_dir):
            address = embedded_address(data_dir)
            Store.open(address).close()
            with collector(data_dir) as server:
                watch = Watch(server, address)
                per_s = steadily(server, watch, bodies, spans)
                watch.close()
                swing = watch.most - watch.least
            with collector(data_dir, "--spool-limit-bytes", str(SPOOL_BYTES)) as server:
                watch = Watch(server, address)
                drain, overload = overloaded(server, watch, bodies, seconds, per_s)
                watch.close()
                swing = max(swing, watch.most - watch.least)
    print(f"ratio drain={drain:.2f} overload={overload:.1f} swing_mib={swing / MIB:.0f}")


if __name__ == "__main__":
    main()
