"""kill -9 of the runner at any instant: no attempt is counted twice, none is lost, and nothing keeps running.

The agents keep a journal of their own: a line when an attempt starts, and one when it ends.
"""

import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from spanloop.evaluation.runner.run import mark_prefix
from spanloop.foundation.paths import DataDir
from spanloop.foundation.processes.marked import VariableMark, find_processes
from spanloop.semconv.environment import CLICKHOUSE_URL_ENV, DATA_DIR_ENV, PROCESS_MARK_ENV
from spanloop.store import Store
from spanloop.store.client import Address

from ..dashboard.cli.support import SPANLOOP
from ..evaluation.runner.support import rewards

AGENT = """
import os, sys, time

def solve(task):
    journal = os.open(task["journal"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(journal, f"start {os.environ['SPANLOOP_EPISODE_ID']}\\n".encode())
    time.sleep(task["seconds"])
    os.write(journal, f"end {os.environ['SPANLOOP_EPISODE_ID']}\\n".encode())
    os.close(journal)
    return task["answer"]

def act(task):
    from spanloop.instrumentation import environment

    journal = os.open(task["journal"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(journal, f"start {os.environ['SPANLOOP_EPISODE_ID']}\\n".encode())
    world = environment()
    while not world.done:
        time.sleep(task["seconds"] / 2)
        world.step("add", {"number": 1})
    os.write(journal, f"end {os.environ['SPANLOOP_EPISODE_ID']}\\n".encode())
    os.close(journal)
    return task["answer"]  # and leaves the environment open
"""
ENVIRONMENTS = Path(__file__).parents[1] / "evaluation" / "environments"
COMMAND = (
    'sh -c \'echo start $SPANLOOP_EPISODE_ID >> "$1"; sleep $2; echo end $SPANLOOP_EPISODE_ID >> "$1"; echo $3\' '
    "sh {journal} {seconds} {answer}"
)


CALLABLE = "solver:solve"


class Runner:
    """``spanloop run`` on one data directory, which may be killed and started again."""

    def __init__(self, data_dir: DataDir, address: Address, folder: Path, agent: str, *, parallel: int = 4) -> None:
        url = f"{address.scheme}://{address.user}:{address.password}@{address.host}:{address.port}/{address.database}"
        self.environment = {**os.environ, CLICKHOUSE_URL_ENV: url, DATA_DIR_ENV: str(data_dir.path)}
        self.folder = folder
        self.journal = folder / "journal"
        self.agent = agent
        self.parallel = parallel
        self.options: list[str] = []
        self.mark = VariableMark(PROCESS_MARK_ENV, mark_prefix(data_dir.runs / "storm"))
        (folder / "solver.py").write_text(AGENT)

    def write_tasks(self, count: int, seconds: float) -> None:
        task = {"journal": str(self.journal), "seconds": seconds}
        lines = [json.dumps({"id": f"t{number}", "answer": str(number), **task}) for number in range(count)]
        (self.folder / "tasks.jsonl").write_text("\n".join(lines) + "\n")

    def start(self, attempts: int) -> "subprocess.Popen[str]":
        command = [str(SPANLOOP), "run", "tasks.jsonl", "--agent", self.agent, "--attempts", str(attempts)]
        command += ["--parallel", str(self.parallel), "--grader", "exact", "--run", "storm", "--no-instrument"]
        command += ["--model", "tiny@v1", "--base-url", "http://127.0.0.1:9/v1", *self.options]
        with (self.folder / "output").open("a") as output:
            return subprocess.Popen(
                command, cwd=self.folder, env=self.environment, stdout=output, stderr=subprocess.PIPE, text=True
            )

    def finish(self, attempts: int) -> None:
        process = self.start(attempts)
        _, errors = process.communicate(timeout=1_500)
        assert process.returncode == 0, errors

    def kill(self, process: "subprocess.Popen[str]") -> None:
        """Kill the runner, and wait until the reaper has killed the agents."""
        process.send_signal(signal.SIGKILL)
        process.communicate()
        deadline_s = time.monotonic() + 60
        while find_processes(None, self.mark):
            assert time.monotonic() < deadline_s, "agents survive their runner"
            time.sleep(0.02)

    def started(self) -> list[str]:
        return self._episodes("start")

    def ended(self) -> list[str]:
        return self._episodes("end")

    def _episodes(self, word: str) -> list[str]:
        lines = self.journal.read_text().splitlines() if self.journal.exists() else []
        return [line.partition(" ")[2] for line in lines if line.startswith(f"{word} ")]


@pytest.fixture
def runner(data_dir: DataDir, address: Address, store: Store, tmp_path: Path) -> Runner:
    assert store.database == address.database
    folder = tmp_path / "work"
    folder.mkdir()
    (data_dir.run / "collector.json").write_text(json.dumps({"url": "http://127.0.0.1:9", "pid": os.getpid()}))
    return Runner(data_dir, address, folder, COMMAND)


def wait_for_second_wave(runner: Runner) -> None:
    """Wait until an attempt has begun after the first ones: it works for a while, when those may end at any moment."""
    deadline_s = time.monotonic() + 60
    while len(runner.started()) <= runner.parallel and time.monotonic() < deadline_s:
        time.sleep(0.01)


def check_ledger(runner: Runner, store: Store, *, tasks: int, attempts: int) -> Counter[str]:
    """Each attempt has one row, whose episode was started and ended once; what was interrupted is named as such."""
    sql = "SELECT task_id, attempt, episode_id, state, is_success, interrupted_episode_ids FROM attempts FINAL"
    rows = store.connection.query(sql, doing="reading attempts").to_dicts()
    assert Counter((row["task_id"], row["attempt"]) for row in rows) == Counter(
        (f"t{task}", attempt) for task in range(tasks) for attempt in range(1, attempts + 1)
    )
    assert {(row["state"], row["is_success"]) for row in rows} == {("finished", True)}
    counted = [row["episode_id"] for row in rows]
    interrupted = [episode for row in rows for episode in row["interrupted_episode_ids"]]
    started, ended = Counter(runner.started()), Counter(runner.ended())
    assert max(started.values()) == 1
    assert len({*counted, *interrupted}) == len(counted) + len(interrupted)
    assert set(counted) <= set(ended)
    assert set(started) <= {*counted, *interrupted}
    assert set(rewards(store)) == set(counted)
    repeated = "SELECT count() - uniqExact(task_id, attempt, episode_id) FROM attempts"
    other = "SELECT uniqExact(task_id, attempt, episode_id) - uniqExact(task_id, attempt) FROM attempts"
    assert store.connection.query(other, doing="counting").item() == 0, "an attempt was stored under two episodes"
    return Counter(
        counted=len(counted),
        interrupted=len(interrupted),
        ended_and_made_again=len(set(ended) - set(counted)),
        stored_again=int(store.connection.query(repeated, doing="counting").item()),
    )


def test_a_runner_that_is_killed_takes_its_agents_along_and_goes_on(runner: Runner, store: Store) -> None:
    runner.write_tasks(4, 0.3)
    process = runner.start(2)
    wait_for_second_wave(runner)
    runner.kill(process)
    runner.finish(2)
    ledger = check_ledger(runner, store, tasks=4, attempts=2)
    assert ledger["interrupted"] >= 1


@pytest.mark.slow
def test_ctrl_c_interrupts_and_says_how_to_continue(runner: Runner, store: Store) -> None:
    runner.write_tasks(4, 2.0)
    process = runner.start(2)
    wait_for_second_wave(runner)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "the same command continues this run with --run storm" in errors
    assert find_processes(None, runner.mark) == []
    runner.finish(2)
    assert check_ledger(runner, store, tasks=4, attempts=2)["interrupted"] >= 1


@pytest.mark.slow
@pytest.mark.parametrize("agent", [COMMAND, CALLABLE], ids=["command", "callable"])
def test_kill_9_at_random_instants(
    runner: Runner, store: Store, print_at_end: Callable[[str], None], times: int, agent: str
) -> None:
    chance, kills = random.Random(17), 0
    runner.agent = agent
    tasks, attempts = 40 * times, 5
    runner.write_tasks(tasks, 0.15)
    while len(runner.ended()) < tasks * attempts:
        process, before = runner.start(attempts), len(runner.started())
        # A third of the kills hit the start, which takes seconds on a busy machine, and the others the work.
        hits_work = chance.random() > 1 / 3
        while hits_work and len(runner.started()) == before and process.poll() is None:
            time.sleep(0.02)
        try:
            process.wait(chance.uniform(0, 2))
        except subprocess.TimeoutExpired:
            runner.kill(process)
            kills += 1
        else:
            process.communicate()
    runner.finish(attempts)
    ledger = check_ledger(runner, store, tasks=tasks, attempts=attempts)
    what = "callable" if agent == CALLABLE else "command"
    print_at_end(f"task runner, {what}: kills={kills} {shown(ledger)}")
    assert kills >= 5
    assert ledger["interrupted"] >= 1


@pytest.mark.slow
def test_kill_9_of_the_runner_and_of_environments_at_random_instants(
    runner: Runner, store: Store, print_at_end: Callable[[str], None], times: int
) -> None:
    chance, kills = random.Random(18), Counter[str]()
    runner.agent, runner.options = "solver:act", ["--environment", "troublesome:Counter"]
    runner.environment["PYTHONPATH"] = str(ENVIRONMENTS)
    tasks, attempts = 10 * times, 5
    runner.write_tasks(tasks, 0.4)
    while len(runner.ended()) < tasks * attempts:
        process, before = runner.start(attempts), len(runner.started())
        while len(runner.started()) == before and process.poll() is None:
            time.sleep(0.02)
        deadline_s = time.monotonic() + chance.uniform(1, 5)
        while process.poll() is None and time.monotonic() < deadline_s:
            time.sleep(chance.uniform(0.2, 1.0))
            found = [each for each in find_processes(None, runner.mark) if is_environment(each.pid)]
            if found:
                with suppress(ProcessLookupError):
                    os.kill(chance.choice(found).pid, signal.SIGKILL)
                kills["environments"] += 1
        if process.poll() is None:
            runner.kill(process)
            kills["runners"] += 1
        else:
            process.communicate()
    runner.finish(attempts)
    ledger = check_ledger(runner, store, tasks=tasks, attempts=attempts)
    print_at_end(f"environments: kills={dict(kills)} {shown(ledger)}")
    assert kills["environments"] >= 5
    assert kills["runners"] >= 1
    assert ledger["interrupted"] >= 1


def is_environment(pid: int) -> bool:
    try:
        return "spanloop.evaluation.environments.worker" in psutil.Process(pid).cmdline()
    except psutil.Error:
        return False


@pytest.mark.slow
def test_ten_thousand_attempts_of_a_callable_in_bounded_memory(
    runner: Runner, store: Store, print_at_end: Callable[[str], None]
) -> None:
    runner.agent = CALLABLE
    peaks: dict[int, int] = {}
    for tasks, attempts in ((500, 2), (2_500, 4)):
        (runner.folder / "tasks.jsonl").unlink(missing_ok=True)
        runner.journal.unlink(missing_ok=True)
        runner.write_tasks(tasks, 0.0)
        store.connection.command("TRUNCATE TABLE attempts", doing="starting anew")
        store.connection.command("TRUNCATE TABLE scores", doing="starting anew")
        for path in (DataDir(runner.environment[DATA_DIR_ENV]).runs / "storm").glob("*"):
            path.unlink()
        process, peak, kills = runner.start(attempts), 0, 0
        while process.poll() is None:
            peak = max(peak, resident_bytes(process.pid))
            if tasks == 2_500 and len(runner.ended()) > 2_500 * (kills + 1) and kills < 3:
                runner.kill(process)
                kills += 1
                process = runner.start(attempts)
            time.sleep(0.2)
        assert process.communicate()[1] is not None
        assert process.returncode == 0
        peaks[tasks * attempts] = peak
        ledger = check_ledger(runner, store, tasks=tasks, attempts=attempts)
        print_at_end(f"task runner, {tasks * attempts:,} attempts: kills={kills} {shown(ledger)} peak_mib={peak >> 20}")
    assert peaks[10_000] < peaks[1_000] + (64 << 20)


def shown(ledger: Counter[str]) -> str:
    """The counts, for a line at the end of the run."""
    return " ".join(f"{name}={count}" for name, count in ledger.items())


def resident_bytes(pid: int) -> int:
    """The resident set of a process; 0 when it is gone."""
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0
