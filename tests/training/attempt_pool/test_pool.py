"""Attempts of one run made by several runners: kills, stops, hosts that lack the agent; each counts once."""

import os
import signal
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from spanloop.evaluation.runner.attempt import AttemptEnd, EndedAttempt, EndState
from spanloop.evaluation.runner.ledger import Ledger, Summary
from spanloop.evaluation.runner.making import make_attempts
from spanloop.evaluation.runner.planning import RunRequest
from spanloop.foundation.leases import Heartbeat
from spanloop.foundation.paths import DataDir
from spanloop.semconv.environment import CLICKHOUSE_URL_ENV
from spanloop.store import Store
from spanloop.store.client import Address
from spanloop.training.attempt_pool import pooled_run
from spanloop.training.attempt_pool.leased_attempts import LeasedAttempts
from spanloop.training.attempt_pool.offers import Offers, Refusal
from spanloop.training.attempt_pool.pooled_run import PoolRefusedError, run_in_pool
from spanloop.training.jobs.database.control_database import ControlDatabase
from spanloop.training.jobs.paths import ControlPaths

from ...evaluation.runner.support import Told, plan_of, stored_attempts
from ...gateway.support import wait_until
from ...killed_processes import ForkServer

TASKS = 3
WORKER = """
import os, sys
from spanloop.training.attempt_pool import worker
def main(*arguments):
    end, _ = os.pipe()
    sys.stdin = os.fdopen(end)
    sys.exit(worker.main(list(arguments)))
"""

HANGING_AGENT = """
echo $$ >> begun
n=$(wc -l < begun)
[ $n -gt 2 ] || exec sleep 600
if [ $n -gt 3 ]; then
    for pid in $(head -2 begun); do
        state=$(cut -d " " -f 3 /proc/$pid/stat)
        [ "${state:-Z}" = Z ] || exit 1
    done
fi
echo $1
"""
"""The first two attempts hang; those that are made again expect that the first two are dead (zombies, because
their parent is stopped)."""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "tasks.jsonl"
    path.write_text("".join(f'{{"id": "t{number}", "answer": "{number}"}}\n' for number in range(TASKS)))
    return path


@pytest.fixture
def offers(data_dir: DataDir) -> Offers:
    return Offers(ControlDatabase(ControlPaths.of(data_dir)))


class PooledRun:
    """`spanloop run --pool` in a thread."""

    def __init__(self, data_dir: DataDir, source: Path, offers: Offers, store: Store, **settings: Any) -> None:
        agent = settings.pop("agent", "echo {answer}")
        self.folder = data_dir.runs / "r"
        self.plan = plan_of(self.folder, source, agent, grader="exact", **settings)
        self.request = RunRequest(
            run_id="r",
            tasks=str(source),
            agent=agent,
            grader="exact",
            base_url="http://127.0.0.1:9/v1",
            is_instrumented=False,
            cwd=source.parent,
        )
        self.told, self.stop = Told(), threading.Event()
        self.summary: Summary | None = None
        self.refused: PoolRefusedError | None = None
        self._arguments = (self.plan, self.request, offers, store)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.summary = run_in_pool(*self._arguments, progress=self.told, stop=self.stop)
        except PoolRefusedError as error:
            self.refused = error

    def join(self) -> None:
        self._thread.join(60)
        assert not self._thread.is_alive()

    def end(self) -> Summary:
        self.join()
        assert self.summary is not None
        return self.summary


Begin = Callable[..., PooledRun]


@pytest.fixture
def begin(data_dir: DataDir, source: Path, offers: Offers, store: Store) -> Iterator[Begin]:
    begun: list[PooledRun] = []

    def start(**settings: Any) -> PooledRun:
        begun.append(PooledRun(data_dir, source, offers, store, **settings))
        return begun[-1]

    yield start
    for run in begun:
        run.stop.set()
        run.join()


def leased_attempts(offers: Offers, owner: str, stop: threading.Event, lease_s: float = 30.0) -> LeasedAttempts:
    leased = LeasedAttempts(
        offers, "r", owner=owner, runner=owner, lease_s=lease_s, stop=stop, keep_until=lambda _: True
    )
    assert leased.beat()
    return leased


def counted(store: Store) -> Counter[tuple[str, int]]:
    return Counter((row["task_id"], row["attempt"]) for row in stored_attempts(store))


def every_attempt_once(attempts: int) -> Counter[tuple[str, int]]:
    return Counter((f"t{task}", number) for task in range(TASKS) for number in range(1, attempts + 1))


@pytest.fixture
def run_workers(offers: Offers) -> Iterator[Callable[[PooledRun, str], LeasedAttempts]]:
    """Makes attempts of a run in threads, as the process of a runner does."""
    stop, threads = threading.Event(), list[threading.Thread]()

    def run(pooled: PooledRun, owner: str) -> LeasedAttempts:
        leased = leased_attempts(offers, owner, stop)

        def work() -> None:
            with closing(leased), Heartbeat(leased.beat, 0.2, name="leases"):
                make_attempts(pooled.plan.making, leased, Told(), stop)

        threads.append(threading.Thread(target=work, daemon=True))
        threads[-1].start()
        return leased

    yield run
    stop.set()
    for thread in threads:
        thread.join(30)


def test_two_runners_make_each_attempt_once_also_those_of_one_that_hangs(
    begin: Begin, offers: Offers, store: Store, run_workers: Callable[[PooledRun, str], LeasedAttempts]
) -> None:
    run = begin(attempts=4)
    wait_until(lambda: len(offers.episode_ids("r")) == 4)
    hanging = leased_attempts(offers, "elsewhere:1:1", threading.Event(), lease_s=1.0)
    held = hanging.claim(0)
    assert held is not None
    workers = [run_workers(run, f"elsewhere:2:{number}") for number in range(2)]
    summary = run.end()
    assert (summary.attempts, summary.states, summary.successes) == (12, {"finished": 12}, 12)
    assert sum(each.done for each in workers) == 12
    hanging.grade(EndedAttempt(held, AttemptEnd(EndState.CRASHED, 1, 1)))  # it comes back, and changes nothing
    assert hanging.done == 0
    assert counted(store) == every_attempt_once(4)
    again = next(row for row in stored_attempts(store) if row["interrupted_episode_ids"])
    assert (again["task_id"], again["attempt"]) == (held.task.id, held.number)
    assert (again["interrupted_episode_ids"], again["state"]) == ([held.episode_id], "finished")
    assert any("its runner is gone, or hangs" in note for note in run.told.notes)


def test_a_stopped_run_goes_on_and_what_was_not_begun_was_not_interrupted(
    begin: Begin, offers: Offers, store: Store, run_workers: Callable[[PooledRun, str], LeasedAttempts]
) -> None:
    run = begin()
    wait_until(lambda: len(offers.episode_ids("r")) == TASKS)
    held = leased_attempts(offers, "elsewhere:1:1", threading.Event()).claim(0)
    assert held is not None
    run.stop.set()
    run.end()
    assert offers.episode_ids("r") == frozenset()
    assert stored_attempts(store) == []
    run = begin()
    wait_until(lambda: len(offers.episode_ids("r")) == TASKS)
    run_workers(run, "elsewhere:2:2")
    assert run.end().successes == TASKS
    interrupted = {row["task_id"]: row["interrupted_episode_ids"] for row in stored_attempts(store)}
    assert interrupted == {f"t{task}": [] for task in range(TASKS)} | {held.task.id: [held.episode_id]}


def test_a_killed_run_goes_on_with_what_runners_did_meanwhile(
    begin: Begin, data_dir: DataDir, offers: Offers, store: Store, source: Path
) -> None:
    with Ledger(data_dir.runs / "r") as ledger:  # what a run leaves that is killed after it offered its attempts
        plan = plan_of(data_dir.runs / "r", source, "echo {answer}", grader="exact")
        ledger.adopt(plan.identity)
        ledger.add_tasks(plan.tasks)
        ledger.add_attempts(1)
        claimed = [ledger.claim(0) for _ in range(TASKS)]
        unknown = claimed[0]
        assert unknown is not None
        offers.open_run("r", "{}", 4)
        offers.offer("r", [each for each in claimed if each is not None])
        offers.offer("r", [unknown._replace(episode_id="of-an-older-start")])
    worker = leased_attempts(offers, "elsewhere:1:1", threading.Event())
    ended, running = worker.claim(0), worker.claim(0)
    assert ended is not None
    assert running is not None
    worker.grade(EndedAttempt(ended, AttemptEnd(EndState.FINISHED, 1, 1, "by the runner")))
    run = begin()
    wait_until(lambda: len(run.told.results) == 1)
    worker.grade(EndedAttempt(running, AttemptEnd(EndState.FINISHED, 1, 1, "a little later")))
    last = worker.claim(0)
    assert last is not None
    assert last.episode_id != "of-an-older-start"
    worker.grade(EndedAttempt(last, AttemptEnd(EndState.FINISHED, 1, 1, "at last")))
    assert run.end().states == {"finished": TASKS}
    assert {each.end.answer for each in run.told.results} == {"by the runner", "a little later", "at last"}
    assert counted(store) == every_attempt_once(1)
    assert all(row["interrupted_episode_ids"] == [] for row in stored_attempts(store))


class Workers:
    """Processes of runners that make attempts of the run, one at a time."""

    def __init__(self, server: ForkServer, data_dir: DataDir) -> None:
        self._server = server
        self._data_dir = data_dir.path
        self._started = 0

    def start(self, lease_s: float = 20.0) -> int:
        runner = f"--runner=elsewhere:{self._started}:1"
        self._started += 1
        return self._server.start(
            f"--data-dir={self._data_dir}", "--run=r", runner, "--slots=2", f"--lease-s={lease_s}"
        )

    def wait(self) -> int:
        return self._server.wait()


@pytest.fixture
def workers(data_dir: DataDir, address: Address, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workers]:
    url = f"{address.scheme}://{address.user}:{address.password}@{address.host}:{address.port}/{address.database}"
    monkeypatch.setenv(CLICKHOUSE_URL_ENV, url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    with ForkServer(WORKER, tmp_path / "workers.log") as server:
        yield Workers(server, data_dir)


def test_a_killed_runners_attempts_are_made_by_another_and_counted_once(
    begin: Begin, workers: Workers, store: Store, tmp_path: Path
) -> None:
    agent = "sh -c 'echo $SPANLOOP_EPISODE_ID >> begun; [ $(wc -l < begun) -gt 2 ] || sleep 600; echo {answer}'"
    run, begun = begin(agent=agent, attempts=2), tmp_path / "begun"
    killed = workers.start()
    wait_until(lambda: begun.exists() and len(begun.read_text().split()) == 2)
    os.kill(killed, signal.SIGKILL)
    assert workers.wait() == -signal.SIGKILL
    workers.start()
    summary = run.end()
    assert workers.wait() == 0
    assert (summary.attempts, summary.successes) == (2 * TASKS, 2 * TASKS)
    assert counted(store) == every_attempt_once(2)
    first = begun.read_text().split()[:2]
    interrupted = [row["interrupted_episode_ids"] for row in stored_attempts(store) if row["interrupted_episode_ids"]]
    assert sorted(interrupted) == sorted([each] for each in first)


def test_a_runner_that_hangs_loses_its_agents_before_another_makes_the_attempts(
    begin: Begin,
    workers: Workers,
    run_workers: Callable[[PooledRun, str], LeasedAttempts],
    store: Store,
    tmp_path: Path,
) -> None:
    (tmp_path / "agent.sh").write_text(HANGING_AGENT)
    agent = "sh agent.sh {answer}"
    run, begun = begin(agent=agent, cwd=tmp_path), tmp_path / "begun"
    hanging = workers.start(lease_s=6.0)
    wait_until(lambda: begun.exists() and len(begun.read_text().split()) == 2)
    os.kill(hanging, signal.SIGSTOP)
    run_workers(run, "elsewhere:2:2")
    try:
        summary = run.end()
    finally:
        os.kill(hanging, signal.SIGCONT)
    assert workers.wait() == 0
    assert summary.successes == TASKS, [each.end for each in run.told.results]
    assert counted(store) == every_attempt_once(1)
    assert sum(len(row["interrupted_episode_ids"]) for row in stored_attempts(store)) == 2


def test_a_host_without_the_agent_says_so_and_gives_the_attempts_to_others(
    begin: Begin, workers: Workers, offers: Offers, store: Store, tmp_path: Path
) -> None:
    run = begin(agent="./agent.sh {answer}")
    wait_until(lambda: len(offers.episode_ids("r")) == TASKS)
    workers.start()
    assert workers.wait() == 0
    wait_until(lambda: len(run.told.notes) == 1)
    assert "cannot make attempts of this run: The agent's command './agent.sh' does not exist" in run.told.notes[0]
    assert (offers.waiting_runs("elsewhere:0:1"), offers.waiting_runs("elsewhere:1:1")) == ([], ["r"])
    (tmp_path / "agent.sh").write_text("#!/bin/sh\necho $1\n")
    (tmp_path / "agent.sh").chmod(0o755)
    workers.start()
    assert run.end().successes == TASKS
    assert workers.wait() == 0
    assert all(row["interrupted_episode_ids"] == [] for row in stored_attempts(store))
    assert len(run.told.notes) == 1


def test_a_run_that_every_runner_refuses_ends_with_the_reason(
    begin: Begin, workers: Workers, offers: Offers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pooled_run, "_REFUSED_S", 0.5)
    run = begin(agent="./agent.sh {answer}")
    wait_until(lambda: len(offers.episode_ids("r")) == TASKS)
    workers.start()
    run.join()
    assert run.refused is not None
    assert f"those on {socket.gethostname()} cannot: The agent's command './agent.sh' does not exist" in str(
        run.refused
    )
    assert "then the same command continues" in run.refused.next_step
    assert offers.episode_ids("r") == frozenset()
    assert workers.wait() == 0


def test_a_run_waits_while_a_refusal_passes_or_no_runner_has_looked(
    begin: Begin, offers: Offers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pooled_run, "_REFUSED_S", 0.0)
    run = begin()
    wait_until(lambda: len(offers.episode_ids("r")) == TASKS)
    offers.refuse("r", "there:0:1", Refusal("there", "no gateway"), retry_s=60)
    wait_until(lambda: len(run.told.notes) == 1)
    with pytest.raises(TimeoutError):
        wait_until(lambda: run.refused is not None, timeout_s=1)
