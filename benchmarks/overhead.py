"""What spanloop costs the app that it traces, over the bare app and over the same instrumentors without spanloop.

    python benchmarks/overhead.py [--quick]

The app runs in an environment of its own (``.venv-overhead``, made once from PyPI), in four variants that take turns.
``bare`` is the app alone. ``instrumentor`` is the app under ``opentelemetry-instrument`` with OpenTelemetry's distro
and the SDK's batch exporters; its instrumentors are OpenLLMetry's of the OpenAI SDK and OpenInference's of LangChain.
``spanloop`` is the same command with the same instrumentors and spanloop's distro; both send to the same collector.
``native`` is spanloop without OpenInference's instrumentor, so that spanloop itself traces the tools. Metrics are off.

A round makes as many calls of one kind in each variant (``instrumenting/agent.py``) and counts the CPU time of all
threads until the collector has acknowledged the spans: a figure is the median of the rounds' differences. The start-up
ends with the app's first statement behind its imports, the exit delay begins with its last one. A collector that is
away refuses connections. Every span must be stored: it fails when the collector's database holds another number.

The last line is ``ratio model_call_us=… …``: what spanloop takes more than ``instrumentor`` for a call, at the start,
at the exit and of memory; more than the bare app in names with ``bare``, where ``native`` counts for tools, and in
``exit_away_s``; and ``memory``, the largest resident set while spans are written and the collector is away, relative to
that after the first tenth of them.
"""

import argparse
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import psutil
from ingesting.servers import collector, free_port, stored, wait_for
from peers import ROOT, Environment

from spanloop.embedded_clickhouse import EmbeddedClickHouse
from spanloop.foundation.paths import DataDir
from spanloop.store import Store
from spanloop.store.client import DEFAULT_DATABASE, Connection
from spanloop.store.discovery import embedded_address

ENVIRONMENT: Final = Environment(
    ".venv-overhead",
    (
        *("--editable", str(ROOT)),
        *("openai==3.57.0", "langchain-core==1.8.3"),
        *("opentelemetry-distro==0.66b2", "opentelemetry-exporter-otlp-proto-http==1.45.1"),
    ),
)
ADDED: Final = (
    "openinference-instrumentation==0.1.72",
    "openinference-instrumentation-langchain==0.1.80",
    "openinference-semantic-conventions==0.1.42",
)
"""OpenInference's instrumentor, in a folder of its own, which not all variants have on their path."""
KINDS: Final = {"model": 40, "tool": 80, "span": 80}
"""Calls of a round."""
MIB: Final = 2**20


class Size(NamedTuple):
    """How much is measured."""

    rounds: int
    runs: int
    """Of each variant's start-up."""
    spans: int
    """While the collector is away."""


FULL: Final = Size(rounds=150, runs=15, spans=1_000_000)
QUICK: Final = Size(rounds=8, runs=3, spans=50_000)


class Variant(NamedTuple):
    """One way to run the app."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    kinds: tuple[str, ...] = tuple(KINDS)

    def start(self, *module: str) -> "subprocess.Popen[str]":
        """Start one of the app's modules."""
        return subprocess.Popen(
            [*self.command, "-m", *module],
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=Path(__file__).parent,
        )


def variants(python: Path, url: str, path: Path | None = None) -> dict[str, Variant]:
    """The ways to run the app, by name.

    Args:
        python: The environment's interpreter.
        url: The collector's.
        path: A folder with more instrumentors.
    """
    ours = ("OTEL_", "SPANLOOP_", "TRACELOOP_", "PYTHON")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    common = kept | {
        "OTEL_EXPORTER_OTLP_ENDPOINT": url,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_TRACES_EXPORTER": "otlp",
        "OTEL_LOGS_EXPORTER": "otlp",
        "OTEL_METRICS_EXPORTER": "none",
    }
    more = {} if path is None else {"PYTHONPATH": str(path)}
    traced = (str(python.with_name("opentelemetry-instrument")), str(python))
    distro = {"OTEL_PYTHON_DISTRO": "distro", "OTEL_PYTHON_CONFIGURATOR": "configurator"}
    made = (
        Variant("bare", (str(python),), common),
        Variant("instrumentor", traced, common | more | distro),
        Variant("spanloop", traced, common | more | {"OTEL_PYTHON_DISTRO": "spanloop"}),
    )
    return {variant.name: variant for variant in made}


class Measured(NamedTuple):
    """Figures of all rounds."""

    cpu_us: Mapping[str, Mapping[str, Sequence[float]]]
    """Kind → variant → CPU microseconds of a call, a round each."""
    resident_mib: Mapping[str, float]
    """Variant → resident memory of the process that made the calls."""

    def over(self, kind: str, variant: str, baseline: str) -> float:
        """The median of the rounds' differences; their standard error is printed."""
        pairs = zip(self.cpu_us[kind][variant], self.cpu_us[kind][baseline], strict=True)
        differences = [one - other for one, other in pairs]
        median, error = statistics.median(differences), 1.25 * statistics.stdev(differences) / len(differences) ** 0.5
        print(f"{kind}, {variant} over {baseline}: {median:+,.0f} µs, standard error {error:,.0f}")
        return median


def measure_calls(ways: Mapping[str, Variant], rounds: int) -> Measured:
    """Let the variants make calls in turns; a first round does not count."""
    found: dict[str, dict[str, list[float]]] = {kind: {} for kind in KINDS}
    with ExitStack() as stack:
        agents = {name: stack.enter_context(way.start("instrumenting.agent")) for name, way in ways.items()}
        for _ in range(rounds + 1):
            for kind, count in KINDS.items():
                for name, way in ways.items():
                    if kind in way.kinds:
                        found[kind].setdefault(name, []).append(_ask(agents[name], kind, count))
        resident_mib = {name: psutil.Process(agent.pid).memory_info().rss / MIB for name, agent in agents.items()}
    counted = {kind: {name: each[1:] for name, each in by_name.items()} for kind, by_name in found.items()}
    return Measured(counted, resident_mib)


def _ask(agent: "subprocess.Popen[str]", kind: str, count: int) -> float:
    if agent.stdin is None or agent.stdout is None:
        raise SystemExit("expected pipes to the agent, got none")
    print(kind, count, file=agent.stdin, flush=True)
    answer = agent.stdout.readline()
    if not answer:
        raise SystemExit(f"expected the agent to measure {kind}, got nothing; run it by hand: {agent.args!r}")
    return float(answer)


def expected_spans(ways: Mapping[str, Variant], rounds: int) -> int:
    """Spans that `measure_calls` causes: one a call, except in the bare app."""
    return (rounds + 1) * sum(sum(KINDS[kind] for kind in way.kinds) for way in ways.values() if way.name != "bare")


class Run(NamedTuple):
    """One run of the short app, in seconds."""

    startup_s: float
    exit_s: float


def short_run(way: Variant) -> Run:
    """Run the app with two model calls."""
    before_s = time.monotonic()
    with way.start("instrumenting.short_run") as process:
        output, _ = process.communicate()
        ended_s = time.monotonic()
    if process.returncode or not output:
        raise SystemExit(f"the app ended with exit code {process.returncode}; run it by hand: {process.args!r}")
    started_s, last_s = map(float, output.split())
    return Run(started_s - before_s, ended_s - last_s)


def short_runs(ways: Mapping[str, Variant], runs: int) -> Mapping[str, Run]:
    """The medians of runs in turns, by variant; a first one fills the caches."""
    found: dict[str, list[Run]] = {name: [] for name in ways}
    for _ in range(runs + 1):
        for name, way in ways.items():
            found[name].append(short_run(way))
    return {name: Run(*map(statistics.median, zip(*each[1:], strict=True))) for name, each in found.items()}


def memory_without_collector(way: Variant, spans: int) -> Sequence[float]:
    """Resident MiB of the app after each hundredth of ``spans`` that nobody takes."""
    with way.start("instrumenting.many_spans", str(spans)) as process:
        output, _ = process.communicate()
    found = [float(line) for line in output.split()]
    if process.returncode or len(found) != 100:
        raise SystemExit(f"expected 100 figures of the memory, got {len(found)}; run it by hand: {process.args!r}")
    return found


def environment() -> tuple[Path, Path]:
    """The app's interpreter, and the folder with the added instrumentor; made if they are not there."""
    python, folder = ENVIRONMENT.make(), ENVIRONMENT.folder / "added"
    if not folder.exists():
        pip = (str(python), "-m", "pip", "install", "--quiet", "--no-deps")
        subprocess.run([*pip, "--target", str(folder), *ADDED], check=True)
    return python, folder


@contextmanager
def running_collector() -> Generator[tuple[str, Connection]]:
    """A collector with a ClickHouse of its own: its URL, and a connection to its database."""
    with tempfile.TemporaryDirectory(prefix="spanloop-overhead-") as folder:
        data_dir = DataDir(Path(folder)).open()
        with EmbeddedClickHouse(data_dir):
            address = embedded_address(data_dir)
            Store.open(address).close()
            with collector(data_dir) as server, closing(Connection(address)) as connection:
                yield f"http://127.0.0.1:{server.port}", connection


def calls_of_variants(python: Path, added: Path, url: str, connection: Connection, rounds: int) -> Measured:
    """Measure the calls, and wait until each of their spans is stored."""
    native = variants(python, url)["spanloop"]._replace(name="native", kinds=("tool",))
    ways = variants(python, url, added) | {"native": native}
    measured = measure_calls(ways, rounds)
    spans, database = expected_spans(ways, rounds), DEFAULT_DATABASE
    wait_for(lambda: stored(connection, database) >= spans, f"{spans} stored spans")
    if (found := stored(connection, database)) != spans:
        raise SystemExit(f"expected {spans} spans, found {found}")
    return measured


def main() -> None:
    """Measure everything and print the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds and runs, 50,000 spans; under a minute")
    size = QUICK if parser.parse_args().quick else FULL
    python, added = environment()
    with running_collector() as (url, connection):
        measured = calls_of_variants(python, added, url, connection, size.rounds)
        present = short_runs(variants(python, url), size.runs)
    ways = variants(python, f"http://127.0.0.1:{free_port()}")
    with ThreadPoolExecutor() as pool:  # they wait for the collector, side by side
        away = dict(zip(ways, pool.map(short_run, ways.values()), strict=True))
    resident_mib = memory_without_collector(ways["spanloop"], size.spans)
    report(measured, present, away, resident_mib, size)


def report(
    measured: Measured,
    present: Mapping[str, Run],
    away: Mapping[str, Run],
    resident_mib: Sequence[float],
    size: Size,
) -> None:
    """Print each variant's figures and the differences."""
    for kind, by_name in measured.cpu_us.items():
        figures = (f"{name} {statistics.median(each):,.0f}" for name, each in by_name.items())
        print(f"{kind}, CPU µs of one: {', '.join(figures)}")
    for what, runs in (("collector present", present), ("collector away", away)):
        figures = (f"{name} {run.startup_s:.2f} and {run.exit_s:.2f}" for name, run in runs.items())
        print(f"start-up and exit in seconds, {what}: {', '.join(figures)}")
    print(f"resident MiB: {', '.join(f'{name} {each:.0f}' for name, each in measured.resident_mib.items())}")
    warm = resident_mib[9:]
    print(f"resident MiB over {size.spans:,} spans without a collector: {warm[0]:.0f} to {max(warm):.0f}")
    ours, theirs, bare = (present[name] for name in ("spanloop", "instrumentor", "bare"))
    ratios = {
        "model_call_us": measured.over("model", "spanloop", "instrumentor"),
        "tool_call_us": measured.over("tool", "spanloop", "instrumentor"),
        "span_us": measured.over("span", "spanloop", "instrumentor"),
        "model_call_bare_us": measured.over("model", "spanloop", "bare"),
        "tool_call_bare_us": measured.over("tool", "native", "bare"),
        "startup_s": ours.startup_s - theirs.startup_s,
        "startup_bare_s": ours.startup_s - bare.startup_s,
        "exit_s": ours.exit_s - theirs.exit_s,
        "exit_away_s": away["spanloop"].exit_s - away["bare"].exit_s,
        "memory_mib": measured.resident_mib["spanloop"] - measured.resident_mib["instrumentor"],
        "memory": max(warm) / warm[0],
    }
    print(
        "ratio",
        *(
            f"{name}={value:.0f}" if name[-3:] in {"_us", "mib"} else f"{name}={value:.2f}"
            for name, value in ratios.items()
        ),
    )


if __name__ == "__main__":
    main()
