"""Test that the scheduler process and its jobs survive kills and stops at many points in time.

A ledger in the job's folder shows what was run: each step once, never two runners at a time.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from spanloop.foundation.paths import DataDir
from spanloop.foundation.processes.identity import ProcessIdentity
from spanloop.foundation.processes.marked import find_processes
from spanloop.training.jobs.processes.job_processes import JOB_ID_ENV, JobMark
from spanloop.training.jobs.processes.process_launch import GATE
from spanloop.training.models.registry import Registry
from spanloop.training.run.job_api import Job, JobApi, JobSpec, JobState

from .support import RunnerOf, wait_until

STEPS = 8
STEP_S = 0.05

INSTANTS = [
    pytest.param(0.0, marks=pytest.mark.slow),
    pytest.param(0.1, marks=pytest.mark.slow),
    pytest.param(0.2, marks=pytest.mark.slow),
    pytest.param(0.35, marks=pytest.mark.slow),
    0.5,
    pytest.param(0.8, marks=pytest.mark.slow),
]
"""Seconds after a start at which something is killed: before the runner runs, while it works, while it registers."""


class SchedulerProcess:
    """``python -m spanloop.training.run.scheduler`` on one data directory."""

    def __init__(self, data_dir: DataDir, runner: tuple[str, ...]) -> None:
        self.log = data_dir.path / "scheduler.stderr"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "spanloop.training.run.scheduler", "--data-dir", str(data_dir.path)),
                    *("--poll-s", "0.02", "--grace-s", "2", "--runner", shlex.join(runner)),
                ],
                stderr=log,
            )

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(timeout=60)


@pytest.fixture
def job(api: JobApi) -> Job:
    return api.submit(JobSpec.of(kind="sft", base="tiny@v1", steps=STEPS, max_attempts=100))


@pytest.fixture
def start(data_dir: DataDir, job: Job) -> Iterator["Start"]:
    yield Start(data_dir)
    for process in find_processes(None, JobMark(job.id, 10**9)):
        os.kill(process.pid, signal.SIGKILL)


class Start:
    """Starts schedulers that end with the block."""

    def __init__(self, data_dir: DataDir) -> None:
        self._data_dir = data_dir

    @contextmanager
    def __call__(self, runner: tuple[str, ...]) -> Generator[SchedulerProcess]:
        scheduler = SchedulerProcess(self._data_dir, runner)
        try:
            yield scheduler
        finally:
            scheduler.kill()


def ledger(data_dir: DataDir, job: Job) -> list[str]:
    path = data_dir.jobs / job.id / "ledger"
    return path.read_text().splitlines() if path.exists() else []


def assert_ran_once(data_dir: DataDir, job: Job, registry: Registry, api: JobApi) -> None:
    done = api.get(job.id)
    assert (done.state, done.error) == (JobState.SUCCEEDED, ""), api.log(job.id)
    assert ledger(data_dir, job) == [str(step) for step in range(1, STEPS + 1)]
    assert not (data_dir.jobs / job.id / "violation").exists()
    assert (done.step, done.steps_total, done.model_version) == (STEPS, STEPS, "tiny@v2")
    assert {model.version for model in registry.list("tiny")} == {"v1", "v2"}
    assert find_processes(None, JobMark(job.id, 10**9)) == []


@pytest.mark.parametrize("delay_s", INSTANTS)
def test_kill_9_of_the_scheduler_loses_and_doubles_nothing(
    *,
    api: JobApi,
    registry: Registry,
    data_dir: DataDir,
    job: Job,
    start: Start,
    runner_of: RunnerOf,
    delay_s: float,
) -> None:
    runner = runner_of("work", str(STEPS), str(STEP_S))
    for kill in range(1, 3):
        with start(runner) as scheduler:
            wait_until(lambda kill=kill: api.get(job.id).attempt >= kill)  # type: ignore[misc]
            time.sleep(delay_s)
            scheduler.kill()
    with start(runner) as scheduler:
        # The job may have ended before; a scheduler that is asked to stop while it still imports just dies.
        wait_until(lambda: data_dir.running("scheduler") is not None and api.get(job.id).is_finished)
        assert scheduler.stop() == 0
    assert_ran_once(data_dir, job, registry, api)


def kill_if_it_runs(pid: int) -> bool:
    """Whether it had not ended before: at the late instants, and after any on a busy machine, it may have."""
    try:
        process = psutil.Process(pid)
        process.suspend()  # what is stopped does not end in the meantime
        wait_until(lambda: process.status() in {psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE})
        runs = process.status() == psutil.STATUS_STOPPED
        process.kill()
    except psutil.NoSuchProcess:
        return False
    return runs


@pytest.mark.slow
@pytest.mark.parametrize("delay_s", INSTANTS)
def test_kill_9_of_the_job_starts_it_again_where_it_was(
    *,
    api: JobApi,
    registry: Registry,
    data_dir: DataDir,
    job: Job,
    start: Start,
    runner_of: RunnerOf,
    delay_s: float,
) -> None:
    with start(runner_of("work", str(STEPS), str(STEP_S))) as scheduler:
        pid = data_dir.jobs / job.id / "pid"
        wait_until(lambda: pid.exists() and pid.read_text() != "")
        time.sleep(delay_s)
        was_killed = kill_if_it_runs(int(pid.read_text()))
        wait_until(lambda: api.get(job.id).is_finished)
        assert scheduler.stop() == 0
    assert api.get(job.id).attempt == (2 if was_killed else 1)
    assert_ran_once(data_dir, job, registry, api)


@pytest.mark.slow
def test_a_stopped_scheduler_ends_its_job_and_the_next_one_goes_on(
    *, api: JobApi, registry: Registry, data_dir: DataDir, job: Job, start: Start, runner_of: RunnerOf
) -> None:
    runner = runner_of("work", str(STEPS), str(STEP_S))
    with start(runner) as scheduler:
        wait_until(lambda: api.get(job.id).step >= 3)
        announced = json.loads((data_dir.run / "scheduler.json").read_text())
        assert announced == {"url": "", "pid": scheduler.process.pid}
        assert scheduler.stop() == 0
    assert data_dir.running("scheduler") is None
    assert not (data_dir.run / "scheduler.json").exists()
    assert api.get(job.id).state is JobState.QUEUED
    assert find_processes(None, JobMark(job.id, 10**9)) == []
    done = len(ledger(data_dir, job))
    with start(runner):
        wait_until(lambda: api.get(job.id).is_finished)
    assert done >= 3
    assert_ran_once(data_dir, job, registry, api)


def test_another_layout_is_refused_in_one_message(data_dir: DataDir) -> None:
    data_dir.version_file.write_text('{"layout": 99}')
    command = [sys.executable, "-m", "spanloop.training.run.scheduler", "--data-dir", str(data_dir.path)]
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    assert result.returncode == 4
    assert "layout 99" in result.stderr
    assert "Traceback" not in result.stderr


DIE_BEFORE_RECORDING = """
import os, signal, sys
from pathlib import Path
from spanloop.training.jobs.processes.process_launch import launch
from spanloop.training.jobs.leases import JobLease

def record(leader):
    print(leader, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

launch(JobLease("job-1", 1), ["/bin/touch", sys.argv[1]], environment=os.environ | {"SPANLOOP_JOB_ID": "gate-test"},
       log_path=Path(sys.argv[2]), header="", record=record, keep_until_s=float("inf"))
"""


def test_nothing_runs_when_the_scheduler_dies_before_it_has_recorded_the_process(tmp_path: Path) -> None:
    touched = tmp_path / "touched"
    command = [sys.executable, "-c", DIE_BEFORE_RECORDING, str(touched), str(tmp_path / "log.txt")]
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    assert result.returncode == -signal.SIGKILL
    gate = ProcessIdentity.parse(result.stdout.strip())
    assert gate is not None
    wait_until(lambda: not gate.is_running())
    assert not touched.exists()


def test_the_gate_keeps_the_identity_of_the_process_behind_it() -> None:
    with subprocess.Popen(
        ["/bin/sh", "-c", GATE, "sh", sys.executable, "-c", "print('in', flush=True); import time; time.sleep(600)"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {JOB_ID_ENV: "gate-test"},
    ) as process:
        before = ProcessIdentity.of(process.pid)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"go\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"in\n"
        assert ProcessIdentity.of(process.pid) == before
        process.kill()
