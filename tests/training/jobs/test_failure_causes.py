"""Test that failures are handled by their cause, that limits end a job, and that leases follow the database's clock."""

import errno
from datetime import datetime, timedelta

import pytest

from spanloop.foundation.control.clock import database_time, utc_now
from spanloop.foundation.errors import DataDirectoryError, JobError, NotRunningError, StoreError
from spanloop.foundation.paths import DataDir
from spanloop.foundation.settings.roles import RunnerSettings
from spanloop.training.jobs import job_queue
from spanloop.training.jobs.database.control_database import ControlDatabase
from spanloop.training.jobs.database.tables import JobRow
from spanloop.training.jobs.job_outcomes import FIRST_PAUSE, LONGEST_PAUSE, TRANSIENT_RETRIES, requeue_transient
from spanloop.training.jobs.leases import record_progress
from spanloop.training.jobs.processes.job_runner import JobRunner
from spanloop.training.run.job_api import Job, JobApi, JobSpec, JobState
from spanloop.training.run.transient import is_transient
from spanloop.training.spec.stored_spec import parse_spec

from .support import FakeClock, MakeScheduler, RunnerOf, wait_until


def raised_from(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


def test_a_cause_passes_when_the_error_or_what_it_was_raised_from_says_so() -> None:
    away, full = NotRunningError("no gateway"), OSError(errno.ENOSPC, "full")
    for error in (
        away,
        full,
        StoreError("unreachable", is_transient=True),
        raised_from(JobError("registered, not deployed"), away),
        raised_from(JobError("a"), raised_from(DataDirectoryError("b"), full)),
    ):
        assert is_transient(error)
    for error in (JobError("bad"), StoreError("rejected"), OSError(errno.ENOENT, "gone"), ValueError()):
        assert not is_transient(error)


def test_a_job_whose_service_is_away_is_tried_again_with_growing_pauses_and_fails_in_the_end(
    *,
    api: JobApi,
    spec: JobSpec,
    clock: FakeClock,
    make_scheduler: MakeScheduler,
    runner_of: RunnerOf,
    database: ControlDatabase,
) -> None:
    job = api.submit(spec.changed(max_attempts=1))
    with make_scheduler(runner_of("away"), clock=clock) as scheduler:
        wait_until(lambda: api.get(job.id).retry_at is not None, each=scheduler.tick)
        waiting = api.get(job.id)
        assert (waiting.state, waiting.attempt) == (JobState.QUEUED, 1)
        assert waiting.retry_at == clock.now + FIRST_PAUSE
        assert "tried again at 2026-11-20 12:00:30 UTC (1 of 10 times)" in waiting.error
        assert "ClickHouse is unreachable" in waiting.error
        scheduler.tick()
        assert scheduler.running == frozenset()
        clock.now += FIRST_PAUSE
        scheduler.tick()
        assert len(scheduler.running) == 1
    pauses = [pause_of(database, api.get(job.id), clock) for _ in range(TRANSIENT_RETRIES - 1)]
    assert pauses == sorted(pauses)
    assert pauses[-1] == LONGEST_PAUSE
    pause_of(database, api.get(job.id), clock)
    failed = api.get(job.id)
    assert failed.state is JobState.FAILED
    assert "tried again 10 times" in failed.error
    api.retry(job.id)
    assert pause_of(database, api.get(job.id), clock) == FIRST_PAUSE


def pause_of(database: ControlDatabase, job: Job, clock: FakeClock) -> timedelta:
    """Let the job fail once more because a service is away; return for how long it waits then."""
    with database.write() as session:
        clock.now = job.retry_at or clock.now
        lease = job_queue.lease_next_job(session, owner="one", now=clock.now, until=clock.now)
        assert lease is not None
        requeue_transient(session, lease, now=clock.now, error="away")
        return (session.get_one(JobRow, job.id, populate_existing=True).retry_at or clock.now) - clock.now


def test_progress_forgets_that_a_service_was_away(
    api: JobApi, spec: JobSpec, clock: FakeClock, database: ControlDatabase
) -> None:
    job = api.submit(spec)
    assert pause_of(database, job, clock) == FIRST_PAUSE
    with database.write() as session:
        clock.now += FIRST_PAUSE
        lease = job_queue.lease_next_job(session, owner="one", now=clock.now, until=clock.now)
        assert lease is not None
        record_progress(session, lease, step=1, total=3)
        requeue_transient(session, lease, now=clock.now, error="away")
    assert api.get(job.id).retry_at == clock.now + FIRST_PAUSE


def test_a_job_ends_when_its_attempts_together_ran_for_its_limit(
    *, api: JobApi, spec: JobSpec, clock: FakeClock, make_scheduler: MakeScheduler, runner_of: RunnerOf
) -> None:
    job = api.submit(spec.changed(max_runtime_minutes=10))
    with make_scheduler(runner_of("sleep"), clock=clock) as scheduler:
        scheduler.tick()
        clock.forward(minutes=6)
    assert (api.get(job.id).state, api.get(job.id).ran_s) == (JobState.QUEUED, 360)
    with make_scheduler(runner_of("sleep"), clock=clock, grace_s=0.3) as scheduler:
        scheduler.tick()
        clock.forward(minutes=3, seconds=59)
        scheduler.tick()
        assert api.get(job.id).state is JobState.RUNNING
        clock.forward(seconds=1)
        wait_until(lambda: api.get(job.id).is_finished, each=scheduler.tick)
    failed = api.get(job.id)
    assert (failed.state, failed.ran_s) == (JobState.FAILED, 600)
    assert "ran for max_runtime_minutes, 10 minutes" in failed.error


def test_a_job_with_a_stopped_process_is_started_again(
    api: JobApi, spec: JobSpec, make_scheduler: MakeScheduler, runner_of: RunnerOf
) -> None:
    job = api.submit(spec.changed(max_attempts=2))
    with make_scheduler(runner_of("stopped"), grace_s=0.1, stopped_s=0.2) as scheduler:
        wait_until(lambda: api.get(job.id).is_finished, each=scheduler.tick)
    failed = api.get(job.id)
    assert (failed.state, failed.attempt) == (JobState.FAILED, 2)
    assert "was stopped (SIGSTOP)" in failed.error


def test_the_clocks_of_the_machines_do_not_matter_to_a_lease(
    api: JobApi,
    spec: JobSpec,
    database: ControlDatabase,
    make_scheduler: MakeScheduler,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A scheduler whose machine is a day ahead leaves the valid lease of another one alone."""
    with database.read() as session:
        assert abs(database_time(session) - utc_now()) < timedelta(seconds=10)
    job = api.submit(spec)
    with database.write() as session:
        until = database_time(session) + timedelta(seconds=30)
        job_queue.lease_next_job(session, owner="elsewhere:1:1", now=utc_now(), until=until)
    ahead = FakeClock(utc_now() + timedelta(days=1))
    for module in ("scheduler_loop", "job_runner"):
        monkeypatch.setattr(f"spanloop.training.jobs.processes.{module}.utc_now", ahead)
    with make_scheduler(("no-runner",)) as scheduler:
        scheduler.tick()
    assert api.get(job.id).state is JobState.RUNNING


def test_a_clock_that_is_set_back_does_not_delay_the_renewal_of_a_lease(
    *,
    api: JobApi,
    spec: JobSpec,
    data_dir: DataDir,
    database: ControlDatabase,
    runner_of: RunnerOf,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def lease_until() -> datetime:
        with database.read() as session:
            until = session.get_one(JobRow, job.id, populate_existing=True).lease_until
        assert until is not None
        return until

    job = api.submit(spec)
    clock = FakeClock(utc_now())
    monkeypatch.setattr("spanloop.training.jobs.processes.job_runner.utc_now", clock)
    runner = JobRunner(
        data_dir, parse_spec, command=runner_of("sleep"), settings=RunnerSettings(lease_s=3, grace_s=0.1)
    )
    runner.tick()
    leased_until = lease_until()
    runner.tick()
    assert lease_until() == leased_until
    clock.forward(hours=-1)
    wait_until(lambda: lease_until() > leased_until, timeout_s=3, each=runner.tick)
    assert runner.running
    runner.close()
