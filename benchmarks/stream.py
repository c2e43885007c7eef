"""A conversion of any size in bounded memory: what the pipeline needs at its peak, and what a span costs.

    python benchmarks/stream.py [--quick] [--spans 500000 1000000 2000000] [--memory-bytes N]

An embedded ClickHouse makes the spans itself (``benchmarks/streamed/*.sql``): traces of ten spans, of which five are
model calls that repeat their growing history; every tenth trace has captured tokens and a reward. They arrive in blocks
of up to a million spans, each in one instant. One run of the pipeline, in a process of its own, converts everything;
its largest resident set is the kernel's. How often a span is read says how much was converted only because it is near
in time. Named baseline: the smallest size. The last line is ``ratio memory=… cost=…``:
the peak, and the CPU time of a span, of the largest size relative to the smallest. Every span must come out: it fails
when a count is not what was made.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

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

CONVERT: Final = """
import importlib, json, sys, time
from pathlib import Path
from spanloop.foundation.paths import DataDir
from spanloop.store import connect

module = importlib.import_module("spanloop.pipeline.run")
run, load, loaded = module.run, module.load, [0]

def counted(store, closure):
    found = load(store, closure)
    loaded[0] += found.spans.height
    return found

module.load = counted
with connect(DataDir(sys.argv[1])) as store:
    start = time.perf_counter()
    report = run(store, memory_bytes=int(sys.argv[2]))
    seconds, cpu_s = time.perf_counter() - start, time.process_time()
peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
print(json.dumps({
    "spans": report.spans, "episodes": report.episodes, "transitions": report.transitions,
    "trajectories": report.trajectories, "rejected": dict(report.rejected), "seconds": seconds, "cpu_s": cpu_s,
    "loaded": loaded[0],
    "peak_bytes": int(peak.split()[1]) * 1024,
}))
"""


class Ran(NamedTuple):
    """One size."""

    spans: int
    cpu_s: float
    """Of the pipeline's process."""
    peak_bytes: int


def main() -> None:
    """Measure each size and print the ratios."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="40,000 and 80,000 spans; under a minute")
    parser.add_argument("--spans", type=int, nargs="+", default=[500_000, 1_000_000, 2_000_000])
    parser.add_argument(
        "--memory-bytes", type=int, default=memory_from_environment(), help="the pipeline's setting (%(default)s)"
    )
    options = parser.parse_args()
    sizes = [40_000, 80_000] if options.quick else sorted(options.spans)
    ran = [measure(spans // SPANS_A_TRACE, options.memory_bytes) for spans in sizes]
    small, large = ran[0], ran[-1]
    cost = (large.cpu_s / large.spans) / (small.cpu_s / small.spans)
    print(f"ratio memory={large.peak_bytes / small.peak_bytes:.3f} cost={cost:.3f}")


def measure(traces: int, memory_bytes: int) -> Ran:
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
            command = [sys.executable, "-c", CONVERT, str(directory.path), str(memory_bytes)]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    report = json.loads(done.stdout)
    found = Ran(report["spans"], report["cpu_s"], report["peak_bytes"])
    captured = -(-traces // 10)
    expected: tuple[Any, ...] = (traces * SPANS_A_TRACE, traces, traces * CALLS_A_TRACE, captured, {})
    got = tuple(report[name] for name in ("spans", "episodes", "transitions", "trajectories", "rejected"))
    if got != expected:
        raise SystemExit(f"spans, episodes, transitions, token rows, rejected: got {got}, expected {expected}")
    print(
        f"{found.spans:>12,} spans: {found.spans / report['seconds']:>7,.0f} spans/s, "
        f"{found.spans / found.cpu_s:>7,.0f} per CPU-second, "
        f"{report['loaded'] / found.spans:.2f} times read, peak {found.peak_bytes >> 20:,} MiB "
        f"(setting {memory_bytes >> 20:,} MiB; made in {filled_s:.0f} s)",
        flush=True,
    )
    return found


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
