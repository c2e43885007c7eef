"""`spanloop serve runner` makes attempts of `spanloop run --pool`; killed or stopped, each counts once."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from sqlalchemy import select

from spanloop.foundation.errors import DataDirectoryError
from spanloop.foundation.paths import DataDir
from spanloop.foundation.processes.identity import ProcessIdentity, all_pids
from spanloop.semconv.environment import CLICKHOUSE_URL_ENV, CONTROL_URL_ENV
from spanloop.store import Store
from spanloop.store.client import Address
from spanloop.training.jobs.database.control_database import ControlDatabase
from spanloop.training.jobs.database.tables import OfferRow
from spanloop.training.jobs.paths import ControlPaths

from ...evaluation.runner.support import stored_attempts
from ...gateway.support import wait_until

TASKS, ATTEMPTS, SLOTS = 100, 10, 2


@contextmanager
def serving_runner(data_dir: Path, log: Path) -> Generator[subprocess.Popen[bytes]]:
    """`spanloop serve runner` with slots for attempts, and a data directory of its own, as on another host."""
    options = ("--slots=0", f"--attempt-slots={SLOTS}", "--lease-s=6", "--poll-s=0.2")
    command = [sys.executable, "-m", "spanloop.cli", "serve", "runner", f"--data-dir={data_dir}", *options]
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as runner:
        try:
            yield runner
        finally:
            runner.terminate()
            runner.wait(30)


def children(pid: int) -> list[int]:
    """The processes that a process has started and that run."""
    found: list[int] = []
    for each in all_pids():
        try:
            parent = int(Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent == pid:
            found.append(each)
    return found


def holds_attempts(database: ControlDatabase, worker: int) -> bool:
    """Whether a process has leases; False also where it holds the database's lock at this moment."""
    is_its = OfferRow.lease_owner == str(ProcessIdentity.of(worker))
    try:
        with database.read() as session:
            return session.scalars(select(OfferRow.episode_id).where(is_its)).first() is not None
    except DataDirectoryError:
        return False


def kill_while_it_has_attempts(runner: int, database: ControlDatabase) -> None:
    """Kill (-9) a runner and its process that makes attempts, at a moment in which it has some."""
    while True:
        wait_until(lambda: len(children(runner)) == 1, timeout_s=120)
        (worker,) = children(runner)
        os.kill(worker, signal.SIGSTOP)
        if holds_attempts(database, worker):
            break
        os.kill(worker, signal.SIGCONT)
        time.sleep(0.05)
    for pid in (runner, worker):
        os.kill(pid, signal.SIGKILL)


@pytest.fixture(autouse=True)
def _addresses(address: Address, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all processes share ClickHouse and a control database."""
    url = f"{address.scheme}://{address.user}:{address.password}@{address.host}:{address.port}/{address.database}"
    monkeypatch.setenv(CLICKHOUSE_URL_ENV, url)
    monkeypatch.setenv(CONTROL_URL_ENV, f"sqlite:///{tmp_path / 'control.db'}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")


@contextmanager
def pooled_run(
    data_dir: DataDir, folder: Path, agent: str, *, tasks: int, attempts: int = 1
) -> Generator[subprocess.Popen[str]]:
    """`spanloop run --pool` on tasks t0, t1, …, each of which has its number as the answer."""
    source = folder / "tasks.jsonl"
    source.write_text("".join(json.dumps({"id": f"t{each}", "answer": str(each)}) + "\n" for each in range(tasks)))
    command = [sys.executable, "-m", "spanloop.cli", "run", str(source), f"--agent={agent}", "--no-instrument"]
    options = [f"--attempts={attempts}", "--parallel=6", "--grader=exact", "--base-url=http://127.0.0.1:9/v1"]
    with subprocess.Popen(
        [*command, *options, "--pool", "--run=r", f"--data-dir={data_dir.path}"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as run:
        try:
            yield run
        finally:
            run.terminate()


@pytest.mark.slow
def test_of_a_thousand_attempts_none_is_lost_or_counted_twice_when_a_runner_is_killed(
    data_dir: DataDir, store: Store, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    agent = f"sh -c 'echo $SPANLOOP_EPISODE_ID >> {begun}; sleep 0.1; echo {{answer}}'"
    database = ControlDatabase(ControlPaths.of(data_dir))
    with ExitStack() as stack:
        runners = [
            stack.enter_context(serving_runner(tmp_path / f"host{number}", tmp_path / f"host{number}.log"))
            for number in range(3)
        ]
        run = stack.enter_context(pooled_run(data_dir, tmp_path, agent, tasks=TASKS, attempts=ATTEMPTS))
        wait_until(lambda: begun.exists() and len(begun.read_text().split()) > TASKS, timeout_s=120)
        kill_while_it_has_attempts(runners[0].pid, database)
        output, errors = run.communicate(timeout=500)
        assert run.returncode == 0, errors
    rows = stored_attempts(store)
    counts = Counter((row["task_id"], row["attempt"]) for row in rows)
    interrupted = [episode_id for row in rows for episode_id in row["interrupted_episode_ids"]]
    starts = begun.read_text().split()
    print(  # noqa: T201 - the ledger, for whoever runs the test
        f"attempts asked {TASKS * ATTEMPTS}, rows {len(rows)}, doubles {len(rows) - len(counts)}, "
        f"lost {TASKS * ATTEMPTS - len(counts)}, starts {len(starts)}, interrupted {len(interrupted)}"
    )
    assert counts == Counter((f"t{task}", number) for task in range(TASKS) for number in range(1, ATTEMPTS + 1))
    assert all(row["is_success"] for row in rows)
    assert 0 < len(interrupted) <= SLOTS
    assert len(set(starts)) == len(starts)
    assert set(starts) <= {row["episode_id"] for row in rows} | set(interrupted)
    assert len(output.splitlines()) >= TASKS * ATTEMPTS


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_runner_that_ends_gives_its_attempts_back_at_once(
    data_dir: DataDir, store: Store, tmp_path: Path, how: signal.Signals
) -> None:
    begun = tmp_path / "begun"
    agent = f"sh -c 'echo $SPANLOOP_EPISODE_ID >> {begun}; [ $(wc -l < {begun}) -gt 2 ] || sleep 600; echo {{answer}}'"
    with pooled_run(data_dir, tmp_path, agent, tasks=3) as run:
        with serving_runner(tmp_path / "host0", tmp_path / "host0.log") as runner:
            wait_until(lambda: begun.exists() and len(begun.read_text().split()) == SLOTS, timeout_s=120)
            (worker,) = (ProcessIdentity.of(each) for each in children(runner.pid))
            runner.send_signal(how)
            runner.wait(30)
        assert worker is not None
        wait_until(worker.has_ended)
        with serving_runner(tmp_path / "host1", tmp_path / "host1.log"):
            output, errors = run.communicate(timeout=120)
    assert run.returncode == 0, errors
    assert "its runner is gone" not in errors
    interrupted = [row["interrupted_episode_ids"] for row in stored_attempts(store)]
    assert sorted(each for ids in interrupted for each in ids) == sorted(begun.read_text().split()[:SLOTS])
    assert len(interrupted) == 3
    assert "success 1" in output
