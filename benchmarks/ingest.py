"""How fast spans get in: HTTP in, acknowledged on disk, queryable; against ClickHouse alone fed the same rows.

    python benchmarks/ingest.py [--quick]

The collector and an embedded ClickHouse run as their own processes; four connections send batches of 512 spans of 3 KB
whose ``finish_reasons`` are arrays, generated beforehand. "ClickHouse alone" gets the very same bytes, arrays already
made text, in blocks of 20,000, one insert at a time, into the same table of another database; that it parses them
itself is part of its work, as it is in the collector. "as rows" gets them as Arrow rows, parsed beforehand: no parsing
at all. CPU is that of collector and ClickHouse together. The last line is ``ratio clickhouse=… clickhouse_cpu=…``:
queryable spans/s, and spans per CPU-second, of the whole way divided by those of ClickHouse alone on the same bytes.
"""

import argparse
import http.client
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

import polars as pl
import psutil
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from spanloop.collector.tidy import tidy
from spanloop.collector.trace_rows import TraceRows
from spanloop.collector.wire import parse
from spanloop.store import DataDir, EmbeddedClickHouse, Store
from spanloop.store.access import embedded_address
from spanloop.store.client import Address, Connection

BATCH_SPANS: Final = 512
BLOCK_REQUESTS: Final = 20_000 // BATCH_SPANS
CONNECTIONS: Final = 4
TIMEOUT_S: Final = 300
WORDS: Final = tuple("".join(random.Random(at).choices("etaoinshrdlu", k=2 + at % 8)) for at in range(4000))


class Outcome(NamedTuple):
    """One way in."""

    name: str
    spans: int
    wall_s: float
    cpu_s: float

    def __str__(self) -> str:
        per_cpu_s = self.spans / self.cpu_s
        return f"{self.name:<34} {self.spans / self.wall_s:>9,.0f} spans/s {per_cpu_s:>9,.0f} spans per CPU-second"


def pair(key: str, value: str | float) -> KeyValue:
    """One attribute."""
    if isinstance(value, str):
        return KeyValue(key=key, value=AnyValue(string_value=value))
    if isinstance(value, int):
        return KeyValue(key=key, value=AnyValue(int_value=value))
    return KeyValue(key=key, value=AnyValue(double_value=value))


def make_span(rng: random.Random, trace_id: bytes, start_ns: int) -> Span:
    """One model call of about 3 KB."""
    span = Span(
        trace_id=trace_id, span_id=rng.randbytes(8), name="chat m", kind=Span.SPAN_KIND_CLIENT,
        start_time_unix_nano=start_ns, end_time_unix_nano=start_ns + rng.randrange(1, 5 * 10**9),
    )  # fmt: skip
    texts = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "m",
        "gen_ai.response.model": "m-2026",
        "gen_ai.response.id": f"chatcmpl-{rng.getrandbits(96):x}",
        "gen_ai.conversation.id": f"{rng.getrandbits(64):x}",
        "session.id": f"{rng.getrandbits(64):x}",
        "server.address": "api.example.com",
        "gen_ai.system_instructions": " ".join(rng.choices(WORDS, k=60)),
        "gen_ai.input.messages": " ".join(rng.choices(WORDS, k=rng.randrange(120, 340))),
        "gen_ai.output.messages": " ".join(rng.choices(WORDS, k=rng.randrange(60, 120))),
    }
    span.attributes.extend(pair(key, value) for key, value in texts.items())
    span.attributes.extend(pair(f"app.tag.{at}", f"{rng.getrandbits(32):x}") for at in range(6))
    span.attributes.append(pair("gen_ai.request.temperature", 0.7))
    span.attributes.append(pair("gen_ai.usage.input_tokens", rng.randrange(20_000)))
    span.attributes.append(pair("gen_ai.usage.output_tokens", rng.randrange(2_000)))
    reasons = span.attributes.add()
    reasons.key = "gen_ai.response.finish_reasons"
    reasons.value.array_value.values.add().string_value = "stop"
    return span


def make_bodies(span_count: int) -> list[bytes]:
    """Requests of `BATCH_SPANS` spans; the same for every run."""
    rng = random.Random(7)
    start_ns = time.time_ns()
    bodies: list[bytes] = []
    for _ in range(span_count // BATCH_SPANS):
        request = ExportTraceServiceRequest()
        resource_spans = request.resource_spans.add()
        resource_spans.resource.attributes.extend([pair("service.name", "agent"), pair("host.name", "node-1")])
        spans = resource_spans.scope_spans.add().spans
        for _ in range(BATCH_SPANS // 8):
            trace_id = rng.randbytes(16)
            spans.extend(make_span(rng, trace_id, start_ns + at) for at in range(8))
        bodies.append(request.SerializeToString())
    return bodies


def stored(connection: Connection, database: str) -> int:
    """Spans that a query sees."""
    return int(connection.query(f"SELECT count() AS n FROM `{database}`.otel_traces", doing="counting")["n"].item())


def wait_for(condition: Callable[[], bool], what: str, collector: subprocess.Popen[bytes]) -> None:
    """Return when the condition holds; end the benchmark when it cannot any more."""
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        if collector.poll() is not None:
            raise SystemExit(f"the collector ended with exit code {collector.returncode} before {what}")
        if time.monotonic() > deadline:
            raise SystemExit(f"after {TIMEOUT_S} s there is still no sign of {what}")
        time.sleep(0.05)


def cpu_s(*pids: int) -> float:
    """User and system time of processes so far."""
    times = [psutil.Process(pid).cpu_times() for pid in pids]
    return sum(time.user + time.system for time in times)


def send(port: int, bodies: list[bytes]) -> list[float]:
    """Post bodies over one connection; returns the seconds that each acknowledgement took."""
    client = http.client.HTTPConnection("127.0.0.1", port)
    waited_s: list[float] = []
    for body in bodies:
        start = time.perf_counter()
        client.request("POST", "/v1/traces", body, {"Content-Type": "application/x-protobuf"})
        answer = client.getresponse()
        answer.read()
        if answer.status != 200:
            raise SystemExit(f"the collector answered {answer.status}")
        waited_s.append(time.perf_counter() - start)
    client.close()
    return waited_s


def through_the_collector(data_dir: DataDir, address: Address, clickhouse_pid: int, bodies: list[bytes]) -> Outcome:
    """HTTP in, acknowledged, queryable."""
    command = [sys.executable, "-m", "spanloop.collector", "--data-dir", str(data_dir.path), "--port", "0"]
    collector = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    connection = Connection(address, database="default")
    try:
        wait_for(lambda: data_dir.running("collector") is not None, "its first answer", collector)
        running = data_dir.running("collector")
        assert running is not None
        port = int(running.url.rpartition(":")[2])
        send(port, bodies[:1])
        wait_for(lambda: stored(connection, address.database) >= BATCH_SPANS, "the first batch", collector)
        rest = bodies[1:]
        span_count = len(rest) * BATCH_SPANS
        cpu_before_s = cpu_s(collector.pid, clickhouse_pid)
        start = time.perf_counter()
        with ThreadPoolExecutor(CONNECTIONS) as pool:
            parts = [rest[at::CONNECTIONS] for at in range(CONNECTIONS)]
            waited_s = sorted(wait for part in pool.map(send, [port] * CONNECTIONS, parts) for wait in part)
        acknowledged_s = time.perf_counter() - start
        total = len(bodies) * BATCH_SPANS
        wait_for(lambda: stored(connection, address.database) >= total, "the last batch", collector)
        wall_s = time.perf_counter() - start
        used_s = cpu_s(collector.pid, clickhouse_pid) - cpu_before_s
    finally:
        connection.close()
        collector.terminate()
        collector.wait()
    median_ms, worst_ms = waited_s[len(waited_s) // 2] * 1e3, waited_s[int(len(waited_s) * 0.99)] * 1e3
    per_s = span_count / acknowledged_s
    print(f"{'acknowledged':<34} {per_s:>9,.0f} spans/s, p50 {median_ms:.0f} ms, p99 {worst_ms:.0f} ms")
    return Outcome("collector: HTTP in to queryable", span_count, wall_s, used_s)


def blocks_of(bodies: list[bytes]) -> list[list[bytes]]:
    """Bodies in blocks of about 20,000 spans, less the one that only warms up."""
    return [bodies[at : at + BLOCK_REQUESTS] for at in range(1, len(bodies), BLOCK_REQUESTS)]


def to_frame(bodies: list[bytes]) -> pl.DataFrame:
    """The requests as rows."""
    rows = TraceRows()
    for body in bodies:
        rows.add(parse(ExportTraceServiceRequest, body))
    return rows.to_frame()


def clickhouse_alone(
    name: str, address: Address, clickhouse_pid: int, spans: int, inserts: Sequence[Callable[[Store, str], object]]
) -> Outcome:
    """One insert after the other; each gets the store and a token."""
    connection = Connection(address, database="default")
    with Store.open(address) as store:
        cpu_before_s = cpu_s(clickhouse_pid)
        start = time.perf_counter()
        for at, insert in enumerate(inserts):
            insert(store, f"block {at}")
        wall_s = time.perf_counter() - start
        used_s = cpu_s(clickhouse_pid) - cpu_before_s
    if stored(connection, address.database) != spans:
        raise SystemExit(f"{name} stored {stored(connection, address.database)} of {spans} spans")
    connection.close()
    return Outcome(name, spans, wall_s, used_s)


def insert_bytes(data: Sequence[bytes]) -> Callable[[Store, str], object]:
    """Raw protobuf."""
    return lambda store, token: store.insert_from("collector_insert_spans", data, token=token)


def insert_rows(frame: pl.DataFrame) -> Callable[[Store, str], object]:
    """Arrow rows."""
    return lambda store, token: store.insert("otel_traces", frame, token=token)


def main() -> None:
    """Run every way and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="30,000 spans, under a minute; default 200,000")
    options = parser.parse_args()
    bodies = make_bodies(30_000 if options.quick else 200_000)
    size_bytes = sum(map(len, bodies)) / len(bodies) / BATCH_SPANS
    span_count = len(bodies) * BATCH_SPANS
    print(f"{span_count:,} spans of {size_bytes:,.0f} bytes, batches of {BATCH_SPANS}, {CONNECTIONS} connections")
    with tempfile.TemporaryDirectory(prefix="spanloop-ingest-") as folder:
        data_dir = DataDir(Path(folder)).open()
        with EmbeddedClickHouse(data_dir) as server:
            address = embedded_address(data_dir)
            if server.pid is None:
                raise SystemExit("the embedded ClickHouse has no process")
            Store.open(address).close()
            whole = through_the_collector(data_dir, address, server.pid, bodies)
            blocks, spans = blocks_of(bodies), (len(bodies) - 1) * BATCH_SPANS
            raw = [insert_bytes([tidy(body).body for body in block]) for block in blocks]
            alone = clickhouse_alone(
                "ClickHouse alone, blocks of 20,000", replace(address, database="alone"), server.pid, spans, raw
            )
            del raw
            frames = [insert_rows(to_frame(block)) for block in blocks]
            rows = clickhouse_alone(
                "ClickHouse alone, as rows", replace(address, database="rows"), server.pid, spans, frames
            )
    for outcome in (whole, alone, rows):
        print(outcome)
    per_s = (whole.spans / whole.wall_s) / (alone.spans / alone.wall_s)
    per_cpu_s = (whole.spans / whole.cpu_s) / (alone.spans / alone.cpu_s)
    print(f"ratio clickhouse={per_s:.2f} clickhouse_cpu={per_cpu_s:.2f}")


if __name__ == "__main__":
    main()
