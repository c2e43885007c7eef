"""Test that kill -9 of the scheduler and of its ticks' process, at many instants, neither loses nor doubles a job."""

import random
import shlex
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from spanloop.foundation.paths import DataDir
from spanloop.training.jobs.schedules.outcome import TickOutcome
from spanloop.training.jobs.state_machine import FINAL_STATES
from spanloop.training.models.registry import Registry
from spanloop.training.run.job_api import JobApi, JobSpec, JobState, ScheduleSettings

from .support import RunnerOf, wait_until

TICKS = """
import sys
from spanloop.training.jobs.schedules.outcome import TickOutcome
from spanloop.training.jobs.database.control_database import ControlDatabase
from spanloop.training.jobs.paths import ControlPaths
from spanloop.training.jobs.schedules.schedule_ticks import Decision, run_due_ticks
from spanloop.foundation.paths import DataDir
from spanloop.training.spec.stored_spec import parse_spec
new_data = Decision(TickOutcome.SUBMITTED, "new data")
database = ControlDatabase(ControlPaths.of(DataDir(sys.argv[-1]).open()))
run_due_ticks(database, lambda _: new_data, parse_spec, recurring=True)
"""
LIFE = """
import shlex, signal, sys
from spanloop.foundation.paths import DataDir
from spanloop.training.run.scheduler import JobRunner, Scheduler, SchedulerSettings, StopRequest
from spanloop.training.spec.stored_spec import parse_spec
data_dir, runner, ticks = DataDir(sys.argv[1]).open(), shlex.split(sys.argv[2]), shlex.split(sys.argv[3])
with StopRequest(signal.SIGTERM) as stop:
    jobs = JobRunner(data_dir, parse_spec, command=runner)
    settings = SchedulerSettings(poll_s=0.02)
    Scheduler(data_dir, parse_spec, jobs=jobs, tick_command=ticks, settings=settings).run(stop)
"""
KILLS = 8


def kill_tree(process: subprocess.Popen[bytes], rng: random.Random) -> None:
    """Kill the scheduler, and at times what it had started: a job's runner or the ticks' process."""
    children = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait()
    for child in children:
        if rng.random() < 0.5:
            try:
                child.kill()
            except psutil.NoSuchProcess:
                continue


@pytest.mark.slow
def test_kill_9_at_any_instant_neither_loses_nor_doubles_a_job_of_a_schedule(
    api: JobApi, registry: Registry, data_dir: DataDir, runner_of: RunnerOf, tmp_path: Path
) -> None:
    rng = random.Random(17)
    live = JobApi(data_dir)
    spec = JobSpec.of(kind="sft", base="tiny@v1", steps=2, max_attempts=100)
    schedule = live.schedule(spec, settings=ScheduleSettings(every_minutes=0.01))
    ticks = shlex.join((sys.executable, "-c", TICKS, "--"))
    command = [sys.executable, "-c", LIFE, str(data_dir.path), shlex.join(runner_of("work", "2", "0.05")), ticks]
    for _ in range(KILLS):
        before = len(api.ticks(schedule.id, limit=1000))
        with (tmp_path / "log").open("ab") as log:
            process = subprocess.Popen(command, stderr=log)
        wait_until(lambda before=before: len(api.ticks(schedule.id, limit=1000)) > before)  # type: ignore[misc]
        time.sleep(rng.uniform(0, 1.5))
        kill_tree(process, rng)
        assert sum(job.state not in FINAL_STATES for job in api.list()) <= 1
    api.pause(schedule.id)
    with (tmp_path / "log").open("ab") as log:
        process = subprocess.Popen(command, stderr=log)
    wait_until(lambda: all(job.is_finished for job in api.list()))
    process.terminate()
    assert process.wait(timeout=60) == 0
    jobs = api.list()
    assert {job.state for job in jobs} == {JobState.SUCCEEDED}
    # each job made one version, and each version is of one job
    versions = [version.job_id for version in registry.list() if version.job_id]
    assert sorted(versions) == sorted(job.id for job in jobs)
    # one recorded end of each tick that submitted a job
    submitted = [tick for tick in api.ticks(schedule.id, limit=1000) if tick.outcome is TickOutcome.SUBMITTED]
    assert sorted(tick.job_id or "" for tick in submitted) == sorted(job.id for job in jobs)
    assert not list(data_dir.jobs.glob("*/violation"))
