"""The cost of each part for a million spans, and whether two of everything cost what one predicts.

    python benchmarks/scale.py [--quick] [--spans N] [--write]
    python benchmarks/scale.py --table [--peak 3] [--vcpu-hour D] [--gib-hour D] [--gib-month D]

Spans of 3 KB arrive as OTLP over HTTP: traces of ten spans, of which five are model calls that repeat their growing
history (``scaling/traces.py``); every tenth trace has captured tokens and a reward. First one collector and one
pipeline: the collector takes the spans, ClickHouse stores them, then the pipeline converts them. Then two collectors
take the same spans at once, each a half, and two pipelines convert them. Both times ClickHouse is one new server, which
merges every table to one part after each phase: otherwise chance decides how often a row was merged by then. Measured
are CPU-seconds, largest resident memory, bytes written and system calls that write (``/proc/PID/io``) of each part, and
the compressed bytes of the merged tables. Two gateways before a scripted engine each are compared with one in the same
way; the dashboard's pages are read once.

Named baseline: one of everything. A span should cost two of a part the same CPU-seconds (within 20 %) and bytes (within
10 %). The last line is ``ratio cpu=… bytes=…``: the ratio, measured over predicted, of the part that deviates most.

``--write`` stores the figures in ``scale_results.json`` and renews the tables of ``docs/explanation/scaling.md``;
``--table`` prints these tables from the stored figures, with prices of one's own; with ``--write`` it renews the page.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, cast
from urllib.parse import quote

import psutil
from ingesting.load import send_all
from ingesting.servers import collector, stored, wait_for, wait_for_merges
from pages import LOGGED, LoggedStore, cases
from scaling.machines import PRICES, Prices, Results, renew_page, tables
from scaling.processes import Meter, Usage
from scaling.traces import make_requests
from stream import BASE_NS, BLOCK_TRACES, CALLS_A_TRACE, SERVER_BYTES, SPANS_A_TRACE, STREAMED

from gateway import Server, gateway, measure, script
from spanloop.embedded_clickhouse import EmbeddedClickHouse
from spanloop.foundation.paths import DataDir
from spanloop.pipeline.run import BATCH_SPANS
from spanloop.semconv.environment import CLICKHOUSE_URL_ENV
from spanloop.store import Store
from spanloop.store.client import Address, Connection
from spanloop.store.discovery import embedded_address

CONVERT: Final = Path(__file__).parent / "scaling" / "convert_backlog.py"
SPANS: Final = 100_000
QUICK_SPANS: Final = 10_000
GATEWAY_REQUESTS: Final = 300
GATEWAY_CLIENTS: Final = 8
GATEWAY_ROUNDS: Final = 3
CAPTURED: Final = ("generations", "scores")
"""Tables that the gateway and clients fill; ``streamed/`` has their rows."""
ARRIVED: Final = ("otel_traces", "trace_summaries", *CAPTURED)
TABLE_BYTES: Final = """
SELECT
    table,
    sum(bytes_on_disk) AS bytes,
    sum(secondary_indices_compressed_bytes + secondary_indices_marks_bytes) AS index_bytes
FROM system.parts
WHERE active AND database = currentDatabase()
GROUP BY table
HAVING bytes > 0
"""


class Measured(NamedTuple):
    """One run with so many of each part, for a million spans."""

    parts: Mapping[str, Usage]
    stored_bytes: Mapping[str, int]
    """Compressed bytes on disk after merging, by group of tables: spans (with captures and scores), derived, index."""
    pipelines: int
    page_cpu_s: float
    """CPU time of ClickHouse for one query of a page, a mean; measured with one of each part alone."""


def main() -> None:
    """Measure one and two of everything, or print the stored figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_SPANS:,} spans; under a minute")
    parser.add_argument("--spans", type=int, default=SPANS, help="through all collectors (%(default)s)")
    parser.add_argument("--write", action="store_true", help="store the figures and renew the tables of the page")
    parser.add_argument(
        "--table", action="store_true", help="print the tables from the stored figures; measure nothing"
    )
    parser.add_argument("--peak", type=float, default=PRICES.peak, help="load at the peak over the mean (%(default)s)")
    parser.add_argument("--vcpu-hour", type=float, default=PRICES.vcpu_hour, help="dollars (%(default)s)")
    parser.add_argument("--gib-hour", type=float, default=PRICES.gib_hour, help="of memory, dollars (%(default)s)")
    parser.add_argument("--gib-month", type=float, default=PRICES.gib_month, help="of disk, dollars (%(default)s)")
    options = parser.parse_args()
    if options.table and options.write:
        renew_page(Results.load())
        return
    if options.table:
        prices = Prices(PRICES.date, options.vcpu_hour, options.gib_hour, options.gib_month, options.peak)
        print(tables(Results.load(), prices))
        return
    os.environ.setdefault("SPANLOOP_LOG_FORMAT", "text")
    traces = (QUICK_SPANS if options.quick else options.spans) // SPANS_A_TRACE
    one, two = measure_parts(traces, 1), measure_parts(traces, 2)
    gateways = measure_gateways()
    print_peaks(one, gateways[0])
    cpu, in_bytes = compare(one, two, *gateways)
    if options.write:
        ratios, spans = (cpu, in_bytes), traces * SPANS_A_TRACE
        results = describe(one, gateways[0], spans=spans, pipelines=two.pipelines, ratios=ratios)
        results.store()
        renew_page(results)
    print(f"ratio cpu={cpu:.3f} bytes={in_bytes:.3f}")


def measure_parts(traces: int, count: int) -> Measured:
    """Send ``traces`` traces to ``count`` collectors at once, and convert them by as many pipelines.

    Raises:
        SystemExit: The store has other rows than were sent.
    """
    with tempfile.TemporaryDirectory(prefix="scale-") as folder, ExitStack() as stack:
        directory = DataDir(Path(folder) / "server").open()
        server = stack.enter_context(EmbeddedClickHouse(directory, memory_cap_bytes=SERVER_BYTES))
        address = embedded_address(directory)
        Store.open(address).close()
        connection = stack.enter_context(closing(Connection(address)))
        if server.pid is None:
            raise SystemExit("expected a process of the embedded ClickHouse, got none")
        bodies = make_requests(connection, traces)
        sent_bytes = sum(map(len, bodies)) / traces / SPANS_A_TRACE
        print(f"{count} of each: {traces * SPANS_A_TRACE:,} spans of {sent_bytes:,.0f} bytes", flush=True)
        stack.enter_context(server_url(address))
        folders = [DataDir(Path(folder) / f"part-{number}").open() for number in range(count)]
        parts = ingest(connection, server.pid, folders, bodies, traces)
        fill_captures(connection, traces)
        merge(connection)
        batch_spans = min(BATCH_SPANS, traces * SPANS_A_TRACE // 4)  # so that two have several to share
        parts |= convert(connection, server.pid, folders, traces, batch_spans)
        for name, usage in parts.items():
            print(f"    {name:<22} {_line(usage)}", flush=True)
        page_cpu_s = read_pages(address) if count == 1 else 0.0
        return Measured(parts, stored_bytes(connection, traces), count, page_cpu_s)


@contextmanager
def server_url(address: Address) -> Generator[None]:
    """Let processes that start meanwhile use a server as one of their own, from data directories of their own."""
    user, password = quote(address.user, safe=""), quote(address.password, safe="")
    os.environ[CLICKHOUSE_URL_ENV] = (
        f"{address.scheme}://{user}:{password}@{address.host}:{address.port}/{address.database}"
    )
    try:
        yield
    finally:
        del os.environ[CLICKHOUSE_URL_ENV]


def ingest(
    connection: Connection, server: int, folders: Sequence[DataDir], bodies: Sequence[bytes], traces: int
) -> dict[str, Usage]:
    """Send everything through one collector for each folder; return what collectors and ClickHouse used."""
    spans = traces * SPANS_A_TRACE
    with ExitStack() as stack:
        collectors = [stack.enter_context(collector(folder, "--no-grpc")) for folder in folders]
        collecting, storing = Meter([each.process.pid for each in collectors]), Meter([server])
        with ThreadPoolExecutor(len(collectors)) as pool:
            shares = [bodies[at :: len(collectors)] for at in range(len(collectors))]
            list(pool.map(send_all, [each.port for each in collectors], shares))
        database = connection.address.database
        wait_for(lambda: stored(connection, database) >= spans, "the last span")
        collected = collecting.usage()
        merge(connection)
        used = {"collector": collected, "ClickHouse, ingest": storing.usage()}
    if (count := stored(connection, connection.address.database)) != spans:
        raise SystemExit(f"expected {spans} stored spans, got {count}")
    return {name: usage.per(spans) for name, usage in used.items()}


def fill_captures(connection: Connection, traces: int) -> None:
    """Insert the captured tokens and the reward of every tenth trace."""
    for first in range(0, traces, BLOCK_TRACES):
        given = {"first": first, "traces": min(BLOCK_TRACES, traces - first), "base_ns": BASE_NS}
        for table in CAPTURED:
            sql = (STREAMED / f"{table}.sql").read_text(encoding="utf-8")
            connection.command(sql, doing=f"making {table}", parameters=given)


def convert(
    connection: Connection, server: int, folders: Sequence[DataDir], traces: int, batch_spans: int
) -> dict[str, Usage]:
    """Convert everything by one pipeline for each folder; return what pipelines and ClickHouse used."""
    spans = traces * SPANS_A_TRACE
    with ExitStack() as stack:
        pipelines = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, str(CONVERT), str(folders[0].path), str(batch_spans)],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                )
            )
            for _ in folders
        ]  # fmt: skip
        for each in pipelines:
            if _read(each) != "ready":
                raise SystemExit("a pipeline ended before it began")
        converting, storing = Meter([each.pid for each in pipelines]), Meter([server])
        for each in pipelines:
            _continue(each)
            time.sleep(0.2)  # the first one leads
        reports = [json.loads(_read(each)) for each in pipelines]
        used = {"pipeline": converting.usage()}
        merge(connection)
        used["ClickHouse, conversion"] = storing.usage()
        for each in pipelines:
            _continue(each)
    report = max(reports, key=lambda each: int(each["counts"][0]))
    expected = [spans, traces, traces * CALLS_A_TRACE, -(-traces // 10)]
    if report["counts"] != expected or report["rejected"]:
        raise SystemExit(f"spans, episodes, transitions, token rows: expected {expected}, got {report}")
    return {name: usage.per(spans) for name, usage in used.items()}


def _read(process: "subprocess.Popen[str]") -> str:
    return process.stdout.readline().strip() if process.stdout is not None else ""


def _continue(process: "subprocess.Popen[str]") -> None:
    if process.stdin is not None:
        process.stdin.write("\n")
        process.stdin.flush()


def merge(connection: Connection) -> None:
    """Merge every table to one part."""
    wait_for_merges(connection, connection.address.database)
    for table in connection.query(TABLE_BYTES, doing="reading sizes")["table"].to_list():
        sql = f"OPTIMIZE TABLE `{table}` FINAL SETTINGS optimize_skip_merged_partitions = 1"
        connection.command(sql, doing="merging")


def stored_bytes(connection: Connection, traces: int) -> Mapping[str, int]:
    """Return the compressed bytes of all tables for a million spans, by group."""
    sizes = {"spans": 0, "derived": 0, "index": 0}
    for table, size, index in connection.query(TABLE_BYTES, doing="reading sizes").rows():
        sizes["spans" if table in ARRIVED else "derived"] += size - index
        sizes["index"] += index
    return {group: round(size * 1_000_000 / traces / SPANS_A_TRACE) for group, size in sizes.items()}


def read_pages(address: Address) -> float:
    """Return the CPU time of ClickHouse for one query of the dashboard's pages, a mean over all of them, in seconds."""
    comment = f"scale {time.time_ns()}"
    with Store(address) as store:
        logged = cast("Store", LoggedStore(store, comment))
        each = [case for case in cases(BASE_NS // 10**9, 0) if case.kind == "all"]
        for case in each:
            case.run(logged)
        store.connection.command("SYSTEM FLUSH LOGS query_log", doing="reading the log")
        cpu_ms, _ = store.connection.query(LOGGED, doing="reading the log", parameters={"comment": comment}).row(0)
    return float(cpu_ms) / 1_000 / len(each)


def measure_gateways() -> tuple[Usage, Usage]:
    """Return what one gateway, and two at once, use for a million streams of 64 tokens, which they capture.

    They take turns; the medians by CPU time count.
    """
    with ExitStack() as stack:
        gateways = [stack.enter_context(gateway(stack.enter_context(script("engine.py")))) for _ in range(2)]
        rounds = [(_serve(gateways[:1]), _serve(gateways)) for _ in range(GATEWAY_ROUNDS)]
    one, two = (sorted(each)[len(each) // 2] for each in zip(*rounds, strict=True))
    return one, two


def _serve(gateways: Sequence[Server]) -> Usage:
    """Send the same number of requests to each gateway at once."""

    def send(server: Server) -> None:
        measure(server, requests=GATEWAY_REQUESTS, clients=GATEWAY_CLIENTS, is_stream=True)

    meter = Meter([each.pid for each in gateways])
    with ThreadPoolExecutor(len(gateways)) as pool:
        list(pool.map(send, gateways))
    return meter.usage().per(len(gateways) * (GATEWAY_REQUESTS + 12 * GATEWAY_CLIENTS))  # `measure` warms up


def print_peaks(one: Measured, gateway_usage: Usage) -> None:
    """Print what does not depend on the number of parts."""
    print(f"    {'gateway, calls':<22} {_line(gateway_usage)}")
    print(f"a query of a page: {one.page_cpu_s * 1e3:.0f} ms of ClickHouse's CPU time")
    print("stored, MB for a million spans:", ", ".join(f"{k} {v / 1e6:,.0f}" for k, v in one.stored_bytes.items()))


def _line(usage: Usage) -> str:
    return (
        f"{usage.cpu_s:8,.1f} CPU-seconds, {usage.written_bytes / 1e6:8,.0f} MB written in "
        f"{usage.write_calls:9,} calls, peak {usage.peak_bytes >> 20:,} MiB"
    )


def compare(one: Measured, two: Measured, gateway_usage: Usage, gateways: Usage) -> tuple[float, float]:
    """Print predicted and measured figures of two; return the ratios of the largest deviations, of CPU and of bytes."""
    cpu = {name: (usage.cpu_s, two.parts[name].cpu_s) for name, usage in one.parts.items()}
    cpu["gateway"] = (gateway_usage.cpu_s, gateways.cpu_s)
    sizes = {f"stored, {group}": (size, two.stored_bytes[group]) for group, size in one.stored_bytes.items()}
    sizes["collector, spool"] = (one.parts["collector"].written_bytes, two.parts["collector"].written_bytes)
    print(f"two of each ({two.pipelines} pipelines), for a million spans or calls: predicted, measured, ratio")
    for name, (predicted, found) in cpu.items():
        print(f"    {name:<22} {predicted:10,.1f} {found:10,.1f} CPU-seconds {found / predicted:6.3f}")
    for name, (predicted_bytes, found_bytes) in sizes.items():
        ratio = found_bytes / predicted_bytes
        print(f"    {name:<22} {predicted_bytes / 1e6:10,.1f} {found_bytes / 1e6:10,.1f} MB          {ratio:6.3f}")
    return _furthest(cpu), _furthest(sizes)


def _furthest(pairs: Mapping[str, tuple[float, float]]) -> float:
    return max((found / predicted for predicted, found in pairs.values()), key=lambda ratio: max(ratio, 1 / ratio))


def describe(
    one: Measured, gateway_usage: Usage, *, spans: int, pipelines: int, ratios: tuple[float, float]
) -> Results:
    """Return the figures that are stored."""
    parts: dict[str, dict[str, Any]] = {
        name: usage._asdict() for name, usage in (*one.parts.items(), ("gateway", gateway_usage))
    }
    return Results(
        measured=f"{datetime.now(UTC):%Y-%m-%d}",
        spans=spans,
        processors=psutil.cpu_count() or 1,
        parts=parts,
        stored_bytes=dict(one.stored_bytes),
        page_cpu_s=one.page_cpu_s,
        pipelines=pipelines,
        cpu_ratio=ratios[0],
        bytes_ratio=ratios[1],
    )


if __name__ == "__main__":
    main()
