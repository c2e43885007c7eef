"""A conversion of any size in bounded memory: what the pipeline needs at its peak, and what a span costs.

    python benchmarks/stream.py [--quick] [--spans 500000 1000000 2000000] [--memory-bytes N] [--pipelines 2]

An embedded ClickHouse makes the spans itself (``benchmarks/streamed/*.sql``): traces of ten spans, of which five are
model calls that repeat their growing history; every tenth trace has captured tokens and a reward. They arrive in blocks
of up to a million spans, each in one instant. One run of the pipeline, in a process of its own, converts everything;
its largest resident set is the kernel's. How often a span is read says how much was converted only because it is near
in time. Named baseline: the smallest size. The last line is ``ratio memory=… cost=…``:
the peak, and the CPU time of a span, of the largest size relative to the smallest. Every span must come out: it fails
when a count is not what was made.

With ``--pipelines 2``, the largest size is converted once by one pipeline and once by two that share it, in turns. The
last line is then ``ratio pipelines=…``: the CPU time of a span, of all pipelines and the server, relative to one
pipeline; ``share`` is the smallest part of the spans that a pipeline converted.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

import psutil

from spanloop.embedded_clickhouse import EmbeddedClickHouse
from spanloop.foundation.paths import DataDir
from spanloop.pipeline.run import memory_from_environment
from spanloop.store import Store
from spanloop.store.client import Connection
from spanloop.store.discovery import embedded_address

STREAMED: Final = Path(__file__).parent / "streamed"
TABLES: Final = ("spans", "generations", "scores")
SPANS_A_TRACE: Final = 10
CALLS_A_TRACE: Final = 5
BLOCK_TRACES: Final = 100_000
BASE_NS: Final = 1_795_000_000_000_000_000
SERVER_BYTES: Final = 3 << 30
ROUNDS: Final = 3

CONVERT: Final = """
import importlib, json, sys, time
from pathlib import Path
from spanloop.foundation.paths import DataDir
from spanloop.pipeline.sharing import Sharing
from spanloop.store import connect

module = importlib.import_module("spanloop.pipeline.run")
run, load, counts = module.run, module.load, {"loaded": 0, "converted": 0}

def counted(store, closure):
    found = load(store, closure)
    counts["loaded"] += found.spans.height
    counts["converted"] += closure.batch.new_spans
    return found

module.load = counted
directory = DataDir(sys.argv[1])
with Sharing.joined(directory) as sharing, connect(directory) as store:
    print(flush=True)
    input()
    start, cpu_s = time.perf_counter(), time.process_time()
    report = run(store, memory_bytes=int(sys.argv[2]), sharing=sharing)
    seconds, cpu_s = time.perf_counter() - start, time.process_time() - cpu_s
peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
print(json.dumps({
    "spans": report.spans, "episodes": report.episodes, "transitions": report.transitions,
    "trajectories": report.trajectories, "rejected": dict(report.rejected), "seconds": seconds, "cpu_s": cpu_s,
    "peak_bytes": int(peak.split()[1]) * 1024, **counts,
}))
"""


class Ran(NamedTuple):
    """One size."""

    spans: int
    cpu_s: float
    """Of the pipelines' processes."""
    peak_bytes: int
    """The largest of them."""
    server_cpu_s: float
    least_share: float
    """The smallest part of the spans that a pipeline converted."""


def main() -> None:
    """Measure each size and print the ratios."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="40,000 and 80,000 spans; under a minute")
    parser.add_argument("--spans", type=int, nargs="+", default=[500_000, 1_000_000, 2_000_000])
    parser.add_argument(
        "--memory-bytes", type=int, default=memory_from_environment(), help="the pipeline's setting (%(default)s)"
    )
    parser.add_argument("--pipelines", type=int, default=1, help="compare so many with one (%(default)s)")
    options = parser.parse_args()
    sizes = [40_000, 80_000] if options.quick else sorted(options.spans)
    if options.pipelines > 1:
        compare(sizes[-1] // SPANS_A_TRACE, options.memory_bytes, options.pipelines)
        return
    ran = [measure(spans // SPANS_A_TRACE, options.memory_bytes) for spans in sizes]
    small, large = ran[0], ran[-1]
    cost = (large.cpu_s / large.spans) / (small.cpu_s / small.spans)
    print(f"ratio memory={large.peak_bytes / small.peak_bytes:.3f} cost={cost:.3f}")


def compare(traces: int, memory_bytes: int, pipelines: int) -> None:
    """Print the cost of a span with several pipelines relative to one, the median of three rounds."""
    ratios: list[float] = []
    shares: list[float] = []
    for _ in range(ROUNDS):
        alone, together = (measure(traces, memory_bytes, count) for count in (1, pipelines))
        ratios.append((together.cpu_s + together.server_cpu_s) / (alone.cpu_s + alone.server_cpu_s))
        shares.append(together.least_share)
    print(f"ratio pipelines={statistics.median(ratios):.3f} share={statistics.median(shares):.3f}")


def measure(traces: int, memory_bytes: int, pipelines: int = 1) -> Ran:
    """Make ``traces`` traces and convert them.

    Raises:
        SystemExit: Something is missing in what came out.
    """
    with tempfile.TemporaryDirectory(prefix="stream") as folder:
        directory = DataDir(Path(folder)).open()
        with EmbeddedClickHouse(directory, memory_cap_bytes=SERVER_BYTES):
            start = time.perf_counter()
            fill(directory, traces)
            filled_s = time.perf_counter() - start
            server = directory.running("clickhouse")
            if server is None:
                raise SystemExit("expected a run file of ClickHouse, got none")
            before_s = sum(psutil.Process(server.pid).cpu_times()[:2])
            reports = convert(directory, memory_bytes, pipelines)
            server_cpu_s = sum(psutil.Process(server.pid).cpu_times()[:2]) - before_s
    report = max(reports, key=lambda each: int(each["spans"]))
    spans, converted = int(report["spans"]), [int(each["converted"]) for each in reports]
    found = Ran(
        spans,
        sum(float(each["cpu_s"]) for each in reports),
        max(int(each["peak_bytes"]) for each in reports),
        server_cpu_s,
        min(converted) / spans,
    )
    captured = -(-traces // 10)
    expected: tuple[Any, ...] = (traces * SPANS_A_TRACE, traces, traces * CALLS_A_TRACE, captured, {})
    got = tuple(report[name] for name in ("spans", "episodes", "transitions", "trajectories", "rejected"))
    if got != expected:
        raise SystemExit(f"spans, episodes, transitions, token rows, rejected: got {got}, expected {expected}")
    loaded = sum(int(each["loaded"]) for each in reports)
    print(
        f"{pipelines} pipelines, {found.spans:>12,} spans: {found.spans / report['seconds']:>7,.0f} spans/s, "
        f"{found.spans / found.cpu_s:>7,.0f} per CPU-second, server {found.server_cpu_s:.1f} CPU-seconds, "
        f"{loaded / found.spans:.2f} times read, peak {found.peak_bytes >> 20:,} MiB "
        f"(setting {memory_bytes >> 20:,} MiB; made in {filled_s:.0f} s; converted by each {converted})",
        flush=True,
    )
    return found


def convert(directory: DataDir, memory_bytes: int, pipelines: int) -> list[dict[str, Any]]:
    """Convert by so many processes, which begin one after another; return what each reports."""
    command = [sys.executable, "-c", CONVERT, str(directory.path), str(memory_bytes)]
    with ExitStack() as stack:
        processes = [
            stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
            for _ in range(pipelines)
        ]
        for each in processes:
            if each.stdout is None or not each.stdout.readline():
                raise SystemExit("a pipeline ended before it began")
        for each in processes:
            if each.stdin is not None:
                each.stdin.write("\n")
                each.stdin.flush()
            time.sleep(0.2)
        return [json.loads(each.stdout.read() if each.stdout is not None else "") for each in processes]


def fill(directory: DataDir, traces: int) -> None:
    """Make spans, captures and scores of ``traces`` traces."""
    address = embedded_address(directory)
    Store.open(address).close()
    connection = Connection(address)
    for first in range(0, traces, BLOCK_TRACES):
        given = {"first": first, "traces": min(BLOCK_TRACES, traces - first), "base_ns": BASE_NS}
        for table in TABLES:
            sql = (STREAMED / f"{table}.sql").read_text(encoding="utf-8")
            connection.command(sql, doing=f"making {table}", parameters=given)
    connection.close()


if __name__ == "__main__":
    main()
