"""What the task runner adds to the commands that it runs, and how many attempts of a Python callable it makes.

    python benchmarks/task_runner.py [--quick] [--attempts N] [--rounds N] [--callables N]

A scripted model, a collector and an embedded ClickHouse run beside. The same instrumented command (two model calls
with the OpenAI SDK, spans to the collector) is run by ``spanloop run --parallel 4``, graded and stored, and, as the
named baseline, by ``xargs -P 4``, in turn. Wall time and CPU time are those of the whole command, its start included;
the CPU time is that of all its processes. The last line is ``ratio wall=… cpu=…``: the runner's over xargs'.

Then the callable: attempts a second under the same instrumentation, and the runner's largest resident set.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, NamedTuple

from spanloop.embedded_clickhouse import EmbeddedClickHouse
from spanloop.foundation.paths import DataDir
from spanloop.semconv.environment import DATA_DIR_ENV
from spanloop.store import connect

HERE: Final = Path(__file__).parent
BIN: Final = Path(sys.executable).parent
PARALLEL: Final = 4
MODEL: Final = "scripted@v1"


class Cost(NamedTuple):
    """Of one run."""

    wall_s: float
    cpu_s: float


class Place(NamedTuple):
    """Where the runs happen."""

    data_dir: DataDir
    folder: Path
    model_url: str

    @property
    def environment(self) -> dict[str, str]:
        """The same for both."""
        settings = {"OPENAI_BASE_URL": self.model_url, "OPENAI_API_KEY": "none", "OPENAI_MODEL": MODEL}
        exits = {"SPANLOOP_EXIT_TIMEOUT_S": "10"}
        return {**os.environ, DATA_DIR_ENV: str(self.data_dir.path), **settings, **exits}


def main() -> None:
    """Measure, and print the ratios."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one round of 12 commands, 500 callables; under a minute")
    parser.add_argument("--attempts", type=int, default=100, help="commands of one round (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each (%(default)s)")
    parser.add_argument("--callables", type=int, default=10_000, help="attempts of the callable (%(default)s)")
    options = parser.parse_args()
    attempts, rounds, callables = (
        (12, 1, 500) if options.quick else (options.attempts, options.rounds, options.callables)
    )
    with running() as place:
        by_xargs(place, PARALLEL)  # the first start of an interpreter reads its files from disk
        costs: dict[str, list[Cost]] = {"xargs": [], "spanloop run": []}
        for number in range(rounds):
            costs["xargs"].append(by_xargs(place, attempts))
            costs["spanloop run"].append(by_runner(place, attempts, f"round-{number}"))
        for name, measured in costs.items():
            wall_s, cpu_s = (statistics.median(each) for each in zip(*measured, strict=True))
            print(f"{name:>14}: {attempts} commands in {wall_s:6.1f} s, {cpu_s:6.1f} CPU-s", flush=True)
        by_callable(place, callables)
    baseline, runner = (Cost(*map(statistics.median, zip(*measured, strict=True))) for measured in costs.values())
    print(f"ratio wall={runner.wall_s / baseline.wall_s:.3f} cpu={runner.cpu_s / baseline.cpu_s:.3f}")


def by_xargs(place: Place, attempts: int) -> Cost:
    """Run the command ``attempts`` times with xargs."""
    command = ["xargs", "-P", str(PARALLEL), "-I{}", str(BIN / "opentelemetry-instrument"), sys.executable]
    command += [str(HERE / "running" / "agent.py"), "question {}"]
    lines = "".join(f"{number}\n" for number in range(attempts))
    return measured(command, place.environment, stdin=lines)


def by_runner(place: Place, attempts: int, name: str) -> Cost:
    """Run the command ``attempts`` times with the task runner; every attempt must be stored as a success."""
    tasks = write_tasks(place, attempts)
    agent = f"{sys.executable} {HERE / 'running' / 'agent.py'} {{question}}"
    cost = measured([*run_command(place, tasks, name), "--agent", agent], place.environment)
    check(place, name, attempts)
    return cost


def by_callable(place: Place, attempts: int) -> None:
    """Run the callable, and print its rate and the runner's memory."""
    tasks = write_tasks(place, attempts)
    command = [*run_command(place, tasks, "callable"), "--agent", "solver:solve", "--cwd", str(HERE / "running")]
    start_s, peak_bytes = time.monotonic(), 0
    with subprocess.Popen(command, env=place.environment, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            peak_bytes = max(peak_bytes, high_water_bytes(process.pid))
            time.sleep(0.1)
    seconds = time.monotonic() - start_s
    check(place, "callable", attempts)
    print(
        f"{'callable':>14}: {attempts:,} attempts in {seconds:.1f} s, {attempts / seconds:,.0f} a second, "
        f"the runner's peak {peak_bytes >> 20} MiB"
    )


def run_command(place: Place, tasks: Path, name: str) -> list[str]:
    """The command line of the task runner, without its agent."""
    command = [str(BIN / "spanloop"), "run", str(tasks), "--parallel", str(PARALLEL), "--grader", "exact"]
    return [*command, "--model", MODEL, "--base-url", place.model_url, "--run", name]


def write_tasks(place: Place, count: int) -> Path:
    """Write a file of tasks, whose answer is the question."""
    path = place.folder / f"{count}.jsonl"
    rows = ({"id": f"t{number}", "question": f"question {number}"} for number in range(count))
    path.write_text("".join(json.dumps(row | {"answer": row["question"]}) + "\n" for row in rows))
    return path


def measured(command: list[str], environment: Mapping[str, str], *, stdin: str = "") -> Cost:
    """Run a command to its end.

    Raises:
        SystemExit: It failed.
    """
    before, start_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(command, env=environment, input=stdin, capture_output=True, text=True, check=False)
    wall_s, after = time.monotonic() - start_s, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{command[0]} ended with {done.returncode}: {done.stderr[-2_000:]}")
    return Cost(wall_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def check(place: Place, name: str, attempts: int) -> None:
    """Check that a run is stored.

    Raises:
        SystemExit: An attempt is missing, or failed.
    """
    with connect(place.data_dir) as store:
        row = store.query("attempt_runs", run_id=name).row(0, named=True)
    if (row["attempts"], row["successes"]) != (attempts, attempts):
        raise SystemExit(f"run {name}: {row['successes']} successes of {row['attempts']} attempts, expected {attempts}")


def high_water_bytes(pid: int) -> int:
    """The largest resident set of a process so far; 0 when it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1_024 for line in lines if line.startswith("VmHWM:")), 0)


@contextmanager
def running() -> Generator[Place]:
    """A scripted model, ClickHouse and a collector."""
    with tempfile.TemporaryDirectory(prefix="task-runner") as name, scripted_model() as model_url:
        directory = DataDir(Path(name) / "data").open()
        with EmbeddedClickHouse(directory), connect(directory):
            command = [sys.executable, "-m", "spanloop.collector", "--data-dir", str(directory.path), "--port", "0"]
            collector = subprocess.Popen(command, stderr=subprocess.DEVNULL)
            try:
                while directory.running("collector") is None:
                    time.sleep(0.05)
                yield Place(directory, Path(name), model_url)
            finally:
                collector.terminate()
                collector.wait()


@contextmanager
def scripted_model() -> Generator[str]:
    """An OpenAI-compatible model that repeats the first message, in a process of its own."""
    with subprocess.Popen([sys.executable, __file__, "--serve"], stdout=subprocess.PIPE, text=True) as process:
        try:
            yield (process.stdout.readline() if process.stdout else "").strip()
        finally:
            process.terminate()


class Repeat(BaseHTTPRequestHandler):
    """Answers with the first message."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Answer."""
        request: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["content-length"])))
        message = {"role": "assistant", "content": request["messages"][0]["content"]}
        answer = {
            "id": f"chatcmpl-{time.monotonic_ns()}",
            "object": "chat.completion",
            "created": 1,
            "model": MODEL,
            "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
            "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
        }
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Quiet."""


def serve_model() -> None:
    """Serve the scripted model until SIGTERM."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Repeat) as server:
        print(f"http://127.0.0.1:{server.server_port}/v1", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    if "--serve" in sys.argv:
        serve_model()
    else:
        main()
