"""Cost of the gateway: CPU time of a chat request between an agent and an engine.

    python benchmarks/gateway.py [--quick] [--model FOLDER]

A scripted engine answers with 256 prompt ids and 64 tokens. Named baseline: a bare relay that parses each event once
(``serving/relay.py``). Streams of 66 events and whole responses from an engine that sends at once; streams of an engine
that sends an event every 2 ms; streams at 20 ms an event, whose added latency is shown. CPU times are those of the
gateway's process with its threads, so another load of the machine changes them little.

With ``--model`` vLLM serves a model folder: 8 streams of 64 tokens through the gateway and without it, in alternating
rounds; then conversations with tools at temperature 1, with exact ids and without. The last line is ``ratio stream_ms=…
whole_ms=… relay=… paced_ms=… loss=… retokenised=…``: ``relay`` is the CPU time of a stream relative to the baseline's,
``loss`` the share of the engine's throughput with its 95 % interval, ``retokenised`` the turns that begin anew with
exact ids. The last two are ``-`` without ``--model``.
"""

import argparse
import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

import httpx
from serving.load import LoadResult, run_load
from serving.vllm import count_retokenised, throughput_loss, vllm

from spanloop.foundation.paths import DataDir
from spanloop.semconv.environment import read_run_file

HERE: Final = Path(__file__).parent / "serving"
ROUNDS: Final = 3


class Server(NamedTuple):
    """A process that answers on the loopback."""

    port: int
    pid: int


@contextlib.contextmanager
def script(name: str, *arguments: str) -> Generator[Server]:
    """Run a program of ``serving/``, which prints its port."""
    command = [sys.executable, str(HERE / name), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield Server(int(process.stdout.readline()), process.pid)
        finally:
            process.terminate()


@contextlib.contextmanager
def gateway(engine: Server, *arguments: str) -> Generator[Server]:
    """Run a gateway in front of an engine."""
    with tempfile.TemporaryDirectory() as folder:
        data_dir = DataDir(Path(folder)).open()
        command = [sys.executable, "-m", "spanloop.gateway", "--data-dir", folder, "--port", "0"]
        command += ["--upstream", f"http://127.0.0.1:{engine.port}", *arguments]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
            try:
                yield Server(await_serving(data_dir), process.pid)
            finally:
                process.terminate()


def await_serving(data_dir: DataDir) -> int:
    """Wait until the gateway serves; return its port."""
    for _ in range(600):
        running = read_run_file(data_dir.path, "gateway")
        if running is not None:
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"{running.url}/healthz").json()["engine"] == "serving":
                    return httpx.URL(running.url).port or 0
        time.sleep(0.05)
    raise TimeoutError("the gateway did not serve within 30 s")


def measure(server: Server, *, requests: int, clients: int, is_stream: bool) -> LoadResult:
    """Run a load after a small one that warms up."""
    asyncio.run(run_load(server.port, server.pid, requests=12 * clients, clients=clients, is_stream=is_stream))
    return asyncio.run(run_load(server.port, server.pid, requests=requests, clients=clients, is_stream=is_stream))


def middle(results: list[LoadResult], name: str) -> LoadResult:
    """Show the results of one load; return the one with the median CPU time."""
    for result in results:
        print(
            f"{name:24} {result.cpu_ms:7.3f} ms CPU {result.requests_per_s:8.1f}/s"
            f"   first p50 {result.first_p50_ms:8.2f} ms   whole p50 {result.whole_p50_ms:8.2f} ms"
        )
    return sorted(results)[len(results) // 2]


def compare_at_once(requests: int) -> tuple[float, float, float]:
    """Return the CPU time of a stream and of a whole response, ms, and the stream's relative to the baseline."""
    streams, wholes, relayed = list[LoadResult](), list[LoadResult](), list[LoadResult]()
    with script("engine.py") as engine, script("relay.py", str(engine.port)) as relay, gateway(engine) as served:
        for _ in range(ROUNDS):
            streams.append(measure(served, requests=requests, clients=8, is_stream=True))
            relayed.append(measure(relay, requests=requests, clients=8, is_stream=True))
            wholes.append(measure(served, requests=requests, clients=8, is_stream=False))
    stream, whole = middle(streams, "stream, gateway").cpu_ms, middle(wholes, "whole, gateway").cpu_ms
    bare = middle(relayed, "stream, bare relay").cpu_ms
    ratios = [ours.cpu_ms / theirs.cpu_ms for ours, theirs in zip(streams, relayed, strict=True)]
    print(f"{'relay':24} {stream / bare:7.2f} times the bare relay; by round {', '.join(f'{r:.2f}' for r in ratios)}")
    return stream, whole, median(ratios)


def compare_paced(requests: int) -> float:
    """Return the CPU time of a stream of 32 whose engine sends an event every 2 ms, ms."""
    with script("engine.py", "0.002") as engine, gateway(engine) as served:
        results = [measure(served, requests=requests, clients=32, is_stream=True) for _ in range(ROUNDS)]
    return middle(results, "stream, 2 ms an event").cpu_ms


def show_latency(requests: int) -> None:
    """Show the latency that the gateway adds at 20 ms an event."""
    with script("engine.py", "0.02") as engine, gateway(engine) as served:
        for _ in range(ROUNDS):
            alone = measure(engine, requests=requests, clients=8, is_stream=True)
            through = measure(served, requests=requests, clients=8, is_stream=True)
            print(
                f"{'stream, 20 ms an event':24} first event {through.first_p50_ms - alone.first_p50_ms:+.2f} ms, "
                f"whole response {through.whole_p50_ms - alone.whole_p50_ms:+.2f} ms at p50"
            )


def measure_vllm(folder: Path, *, is_quick: bool) -> tuple[str, str]:
    """Return the loss of throughput and the turns that begin anew, as texts."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    conversations, anew = (10, 6) if is_quick else (40, 8), dict[str, tuple[int, int]]()
    with vllm(folder, port) as pid:
        engine = Server(port, pid)
        with gateway(engine) as served:
            loss = throughput_loss(
                port, served.port, served.pid, rounds=2 if is_quick else 5, requests=16 if is_quick else 64
            )
            anew["exact ids"] = count_retokenised(f"http://127.0.0.1:{served.port}", *conversations)
        with gateway(engine, "--conversation-bytes", "0") as served:
            anew["rendered again"] = count_retokenised(f"http://127.0.0.1:{served.port}", *conversations)
    for name, (count, turns) in anew.items():
        print(f"{'conversations':24} {count} of {turns} turns begin anew, {name}")
    return f"{loss.mean:.3f}±{loss.half_width:.3f}", str(anew["exact ids"][0])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a quarter of the requests")
    parser.add_argument("--model", type=Path, help="a model folder that vLLM serves")
    options = parser.parse_args()
    os.environ.setdefault("SPANLOOP_LOG_FORMAT", "text")
    requests = 200 if options.quick else 800
    stream, whole, relay = compare_at_once(requests)
    paced = compare_paced(requests)
    show_latency(requests // 10)
    loss, anew = measure_vllm(options.model, is_quick=options.quick) if options.model else ("-", "-")
    figures = f"stream_ms={stream:.2f} whole_ms={whole:.2f} relay={relay:.2f} paced_ms={paced:.2f}"
    print(f"ratio {figures} loss={loss} retokenised={anew}")


if __name__ == "__main__":
    main()
