"""A thousand attempts over three `spanloop serve runner`, one of them killed: each is made and counted once."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from spanloop.foundation.paths import DataDir
from spanloop.foundation.processes.identity import ProcessIdentity, all_pids
from spanloop.semconv.environment import CLICKHOUSE_URL_ENV, CONTROL_URL_ENV
from spanloop.store import Store
from spanloop.store.client import Address
from spanloop.training.attempt_pool.offers import Offers
from spanloop.training.jobs.database.control_database import ControlDatabase
from spanloop.training.jobs.paths import ControlPaths

from ...evaluation.runner.support import stored_attempts
from ...gateway.support import wait_until

TASKS, ATTEMPTS, SLOTS = 100, 10, 2


@contextmanager
def serving_runner(data_dir: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
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


def kill_while_it_has_attempts(runner: int, offers: Offers) -> None:
    """Kill (-9) a runner and its process that makes attempts, at a moment in which it has some."""
    while True:
        wait_until(lambda: children(runner), timeout_s=120)
        (worker,) = children(runner)
        os.kill(worker, signal.SIGSTOP)
        if offers.renew("r", str(ProcessIdentity.of(worker)), 6.0):
            break
        os.kill(worker, signal.SIGCONT)
        time.sleep(0.05)
    for pid in (runner, worker):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
def test_of_a_thousand_attempts_none_is_lost_or_counted_twice_when_a_runner_is_killed(
    data_dir: DataDir, address: Address, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"{address.scheme}://{address.user}:{address.password}@{address.host}:{address.port}/{address.database}"
    monkeypatch.setenv(CLICKHOUSE_URL_ENV, url)
    monkeypatch.setenv(CONTROL_URL_ENV, f"sqlite:///{tmp_path / 'control.db'}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    source, begun = tmp_path / "tasks.jsonl", tmp_path / "begun"
    source.write_text(
        "".join(json.dumps({"id": f"t{number}", "answer": str(number)}) + "\n" for number in range(TASKS))
    )
    agent = f"sh -c 'echo $SPANLOOP_EPISODE_ID >> {begun}; sleep 0.1; echo {{answer}}'"
    command = [sys.executable, "-m", "spanloop.cli", "run", str(source), f"--agent={agent}", "--no-instrument"]
    options = [f"--attempts={ATTEMPTS}", "--parallel=6", "--grader=exact", "--base-url=http://127.0.0.1:9/v1"]
    offers = Offers(ControlDatabase(ControlPaths.of(data_dir)))
    with ExitStack() as stack:
        runners = [
            stack.enter_context(serving_runner(tmp_path / f"host{number}", tmp_path / f"host{number}.log"))
            for number in range(3)
        ]
        run = stack.enter_context(
            subprocess.Popen(
                [*command, *options, "--pool", "--run=r", f"--data-dir={data_dir.path}"],
                cwd=tmp_path,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        wait_until(lambda: begun.exists() and len(begun.read_text().split()) > TASKS, timeout_s=120)
        kill_while_it_has_attempts(runners[0].pid, offers)
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
