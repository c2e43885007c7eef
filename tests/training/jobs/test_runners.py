"""Test job runners: several share a queue, and one that lost its lease computes no more."""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager

import pytest

from spanloop.foundation.errors import DataDirectoryError
from spanloop.foundation.paths import DataDir
from spanloop.foundation.processes.identity import ProcessIdentity
from spanloop.foundation.processes.marked import find_processes
from spanloop.training.jobs.database.control_database import ControlDatabase
from spanloop.training.jobs.database.tables import JobRow, LeaderRow
from spanloop.training.jobs.leadership import SCHEDULER
from spanloop.training.jobs.processes.job_processes import JobMark
from spanloop.training.run.job_api import JobApi, JobSpec, JobState
from spanloop.training.run.runner import JobRunner, RunnerSettings
from spanloop.training.run.scheduler import Scheduler
from spanloop.training.spec.stored_spec import parse_spec

from .support import DatabaseAway, RunnerOf, wait_until

MODULES = {"runner": "run.runner", "scheduler": "run.scheduler"}


@contextmanager
def process(module: str, data_dir: DataDir, *options: str) -> Generator[subprocess.Popen[bytes]]:
    """``python -m spanloop.training.<module>`` on a data directory."""
    command = [
        sys.executable,
        "-m",
        f"spanloop.training.{MODULES[module]}",
        "--data-dir",
        str(data_dir.path),
        "--poll-s",
        "0.1",
    ]
    with (data_dir.path / f"{module}.stderr").open("ab") as log:
        started = subprocess.Popen([*command, *options], stderr=log)
    try:
        yield started
    finally:
        started.kill()
        started.wait()


def family(data_dir: DataDir, job_id: str) -> list[ProcessIdentity]:
    """The job's process, its child, and a child that left its session."""
    pids = [path.read_text() for name in ("pid", "family") if (path := data_dir.jobs / job_id / name).exists()]
    return [found for pid in " ".join(pids).split() if (found := ProcessIdentity.of(int(pid))) is not None]


def test_a_job_ends_when_its_lease_cannot_be_renewed_and_goes_on_later_without_blame(
    *,
    api: JobApi,
    spec: JobSpec,
    data_dir: DataDir,
    database: ControlDatabase,
    database_away: DatabaseAway,
    runner_of: RunnerOf,
) -> None:
    job = api.submit(spec.changed(max_attempts=1))
    runner = JobRunner(data_dir, parse_spec, command=runner_of("family"), settings=RunnerSettings(lease_s=3, grace_s=0))
    runner.start()
    with database_away():
        wait_until(lambda: len(family(data_dir, job.id)) == 3)
        started = family(data_dir, job.id)
        wait_until(lambda: not any(each.is_running() for each in started), timeout_s=10)
        wait_until(lambda: _has_no_database(runner))
    runner.watch()
    assert (api.get(job.id).state, api.get(job.id).attempt) == (JobState.QUEUED, 1)
    with database.read() as session:
        assert session.get_one(JobRow, job.id).interruptions == 0
    runner.close()


def _has_no_database(runner: JobRunner) -> bool:
    with pytest.raises(DataDirectoryError):
        runner.watch()
    return True


def test_after_an_outage_the_scheduler_lets_runners_report_first(
    *, api: JobApi, spec: JobSpec, data_dir: DataDir, database_away: DatabaseAway, runner_of: RunnerOf
) -> None:
    job = api.submit(spec)
    runner = JobRunner(data_dir, parse_spec, command=runner_of("sleep"), settings=RunnerSettings(lease_s=2, grace_s=0))
    scheduler = Scheduler(data_dir, parse_spec)
    runner.start()
    scheduler.tick()
    with database_away():
        time.sleep(2.1)
        with pytest.raises(DataDirectoryError):
            scheduler.tick()
    scheduler.tick()
    assert api.get(job.id).state is JobState.RUNNING
    runner.watch()
    assert (api.get(job.id).state, api.get(job.id).error) == (JobState.QUEUED, "")
    runner.close()
    scheduler.close()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_the_job_of_a_runner_that_died_or_hangs_ends_and_another_runner_goes_on(
    *, api: JobApi, data_dir: DataDir, runner_of: RunnerOf, number: signal.Signals
) -> None:
    """Two runners and a scheduler without one; each but the scheduler as a process of its own."""
    job = api.submit(JobSpec.of(kind="sft", base="tiny@v1", steps=40))
    options = ("--lease-s", "3", "--runner", shlex.join(runner_of("work", "40", "0.1")))
    with (
        process("scheduler", data_dir, "--slots", "0"),
        process("runner", data_dir, *options) as first,
    ):
        wait_until(lambda: JobApi(data_dir).get(job.id).step >= 5)
        began_s = time.monotonic()
        os.kill(first.pid, number)
        wait_until(lambda: find_processes(None, JobMark(job.id, 1)) == [])
        ended_s = time.monotonic() - began_s
        assert ended_s < (1.5 if number is signal.SIGKILL else 3)
        with process("runner", data_dir, *options):
            wait_until(lambda: JobApi(data_dir).get(job.id).is_finished)
        os.kill(first.pid, signal.SIGCONT)
    done = JobApi(data_dir).get(job.id)
    assert (done.state, done.attempt, done.error) == (JobState.SUCCEEDED, 2, "")
    steps = (data_dir.jobs / job.id / "ledger").read_text().split()
    assert steps == [str(step) for step in range(1, 41)]
    assert not (data_dir.jobs / job.id / "violation").exists()


@pytest.mark.slow
def test_runners_share_a_queue_and_a_second_scheduler_takes_over(
    *, api: JobApi, data_dir: DataDir, database: ControlDatabase, runner_of: RunnerOf
) -> None:
    spec = JobSpec.of(kind="sft", base="tiny@v1", steps=2)
    options = ("--slots", "2", "--runner", shlex.join(runner_of("work", "2", "0.3")))
    live = JobApi(data_dir)
    with (
        process("scheduler", data_dir, "--slots", "0") as first,
        process("scheduler", data_dir, "--slots", "0") as second,
        process("runner", data_dir, *options),
        process("runner", data_dir, *options),
    ):
        jobs = [api.submit(spec) for _ in range(8)]
        wait_until(lambda: all(live.get(job.id).is_finished for job in jobs))
        wait_until(lambda: "leads, with token 1" in (data_dir.path / "scheduler.stderr").read_text())
        leader = first if first.pid == leading_pid(database) else second
        began_s = time.monotonic()
        leader.terminate()
        assert leader.wait(timeout=60) == 0
        wait_until(lambda: "leads, with token 2" in (data_dir.path / "scheduler.stderr").read_text())
        assert time.monotonic() - began_s < 5, "a leader that stops in order is followed within seconds"
    assert [live.get(job.id).state for job in jobs] == [JobState.SUCCEEDED] * 8
    assert not list(data_dir.jobs.glob("*/violation"))


def leading_pid(database: ControlDatabase) -> int:
    with database.read() as session:
        leader = ProcessIdentity.parse(session.get_one(LeaderRow, SCHEDULER).owner)
    assert leader is not None
    return leader.pid
