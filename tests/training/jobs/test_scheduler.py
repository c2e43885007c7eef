"""Test the scheduler in this process, with real runner processes."""

import os
import signal
import threading
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from spanloop.foundation.errors import DataDirectoryError
from spanloop.foundation.paths import DataDir
from spanloop.foundation.processes.identity import ProcessIdentity
from spanloop.training.jobs import job_queue, leases
from spanloop.training.jobs.database.control_database import ControlDatabase
from spanloop.training.jobs.database.tables import JobRow
from spanloop.training.jobs.processes.stop_signal import StopRequest
from spanloop.training.models.registry import Registry
from spanloop.training.run.job_api import Device, JobApi, JobSpec, JobState
from spanloop.training.run.scheduler import JobRunner, RunnerSettings, Scheduler, SchedulerSettings
from spanloop.training.spec.stored_spec import parse_spec

from .support import OF_ANOTHER_VERSION, DatabaseAway, FakeClock, MakeScheduler, RunnerOf, wait_until


def folder(data_dir: DataDir, job_id: str) -> Path:
    return data_dir.jobs / job_id


def identities(path: Path) -> list[ProcessIdentity]:
    return [found for pid in path.read_text().split() if (found := ProcessIdentity.of(int(pid))) is not None]


@contextmanager
def running(*schedulers: Scheduler) -> Generator[None]:
    """The schedulers run, each in a thread, as long as the block."""
    with StopRequest() as stop:
        threads = [threading.Thread(target=scheduler.run, args=(stop,)) for scheduler in schedulers]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            for thread in threads:
                thread.join()


def test_a_job_runs_reports_its_steps_and_registers_its_version(
    api: JobApi, registry: Registry, spec: JobSpec, make_scheduler: MakeScheduler, runner_of: RunnerOf
) -> None:
    job = api.submit(spec)
    with make_scheduler(runner_of("work", "3", "0.02")) as scheduler:
        wait_until(lambda: api.get(job.id).is_finished, each=scheduler.tick)
        assert scheduler.running == frozenset()
    done = api.get(job.id)
    assert (done.state, done.error, done.attempt) == (JobState.SUCCEEDED, "", 1)
    assert (done.step, done.steps_total, done.model_version) == (3, 3, "tiny@v2")
    assert done.started_at is not None
    assert done.finished_at is not None
    assert done.finished_at > done.started_at
    made = registry.get("tiny@v2")
    assert (made.job_id, made.parent) == (job.id, "tiny@v1")
    assert made.weights_sha256 != registry.get("tiny@v1").weights_sha256


def test_what_a_failed_job_printed_last_is_its_error(
    api: JobApi, spec: JobSpec, make_scheduler: MakeScheduler, runner_of: RunnerOf
) -> None:
    job = api.submit(spec)
    with make_scheduler(runner_of("fail")) as scheduler:
        wait_until(lambda: api.get(job.id).is_finished, each=scheduler.tick)
        failed = api.get(job.id)
        assert (failed.state, failed.attempt) == (JobState.FAILED, 1)
        assert failed.error == (
            "The job ended with exit status 7. Its last lines:\nloading the model\nValueError: the loss is nan"
        )
        api.retry(job.id)
        wait_until(lambda: api.get(job.id).is_finished, each=scheduler.tick)
    assert api.get(job.id).attempt == 2
    assert api.log(job.id).count("attempt 1\nloading") == api.log(job.id).count("attempt 2\nloading") == 1


def test_a_job_whose_process_is_killed_again_and_again_fails_in_the_end(
    api: JobApi, spec: JobSpec, make_scheduler: MakeScheduler, runner_of: RunnerOf
) -> None:
    job = api.submit(spec.changed(max_attempts=2))
    with make_scheduler(runner_of("die")) as scheduler:
        wait_until(lambda: api.get(job.id).is_finished, each=scheduler.tick)
    failed = api.get(job.id)
    assert (failed.state, failed.attempt) == (JobState.FAILED, 2)
    assert "killed by SIGKILL" in failed.error
    assert "started 2 times" in failed.error


def test_a_runner_that_cannot_be_started_fails_the_job(
    api: JobApi, spec: JobSpec, make_scheduler: MakeScheduler
) -> None:
    job = api.submit(spec)
    with make_scheduler(("/no/such/program",)) as scheduler:
        wait_until(lambda: api.get(job.id).is_finished, each=scheduler.tick)
    assert api.get(job.id).state is JobState.FAILED
    assert "/no/such/program" in api.get(job.id).error


def test_a_job_of_another_version_fails_and_the_next_one_runs(
    api: JobApi, spec: JobSpec, database: ControlDatabase, make_scheduler: MakeScheduler, runner_of: RunnerOf
) -> None:
    foreign, own = api.submit(spec), api.submit(spec)
    with database.write() as session:
        session.get_one(JobRow, foreign.id).spec = OF_ANOTHER_VERSION
    with make_scheduler(runner_of("work", "1", "0.02")) as scheduler:
        wait_until(lambda: api.get(own.id).is_finished, each=scheduler.tick)
    assert api.get(own.id).state == JobState.SUCCEEDED
    with database.read() as session:
        row = session.get_one(JobRow, foreign.id)
        assert row.state == JobState.FAILED
        assert "quantum" in row.error


def test_a_job_of_another_version_whose_scheduler_is_gone_fails(
    api: JobApi, spec: JobSpec, database: ControlDatabase, make_scheduler: MakeScheduler, clock: FakeClock
) -> None:
    job = api.submit(spec)
    with database.write() as session:
        job_queue.lease_next_job(session, owner="elsewhere", now=clock.now, until=clock.now)
        session.get_one(JobRow, job.id).spec = OF_ANOTHER_VERSION
    clock.forward(seconds=1)
    with make_scheduler(("no-runner",), clock=clock) as scheduler:
        scheduler.tick()
    with database.read() as session:
        row = session.get_one(JobRow, job.id)
        assert row.state == JobState.FAILED
        assert "ended unexpectedly" in row.error
        assert "quantum" in row.error


def test_a_folder_that_cannot_be_made_fails_the_job(
    api: JobApi, spec: JobSpec, data_dir: DataDir, make_scheduler: MakeScheduler, runner_of: RunnerOf
) -> None:
    job = api.submit(spec)
    data_dir.jobs.write_text("in the way")
    with make_scheduler(runner_of("sleep")) as scheduler:
        scheduler.tick()
    assert api.get(job.id).state is JobState.FAILED
    assert "could not be started" in api.get(job.id).error


@pytest.mark.parametrize("behaviour", ["sleep", "stubborn", "family"])
def test_a_cancelled_job_ends_within_seconds_with_all_its_processes(
    *,
    api: JobApi,
    spec: JobSpec,
    data_dir: DataDir,
    make_scheduler: MakeScheduler,
    runner_of: RunnerOf,
    behaviour: str,
) -> None:
    job = api.submit(spec)
    with make_scheduler(runner_of(behaviour), grace_s=0.3) as scheduler:
        wait_until((folder(data_dir, job.id) / "ready").exists, each=scheduler.tick)
        started = identities(folder(data_dir, job.id) / "pid")
        if behaviour == "family":
            started += identities(folder(data_dir, job.id) / "family")
        assert len(started) == (3 if behaviour == "family" else 1)
        api.cancel(job.id)
        wait_until(lambda: api.get(job.id).is_finished, each=scheduler.tick)
    assert api.get(job.id).state is JobState.CANCELLED
    assert [process for process in started if process.is_running()] == []


def test_nothing_is_left_of_a_job_that_ends_without_its_children(
    api: JobApi, spec: JobSpec, data_dir: DataDir, make_scheduler: MakeScheduler, runner_of: RunnerOf
) -> None:
    job = api.submit(spec)
    with make_scheduler(runner_of("family", "leave")) as scheduler:
        family = folder(data_dir, job.id) / "family"
        scheduler.tick()
        wait_until(lambda: family.exists() and len(family.read_text().split()) == 2)
        children = identities(family)
        wait_until(lambda: api.get(job.id).is_finished, each=scheduler.tick)
    assert api.get(job.id).state is JobState.SUCCEEDED
    assert [child for child in children if child.is_running()] == []


def test_a_job_on_the_cpu_does_not_wait_for_a_gpu(
    api: JobApi, spec: JobSpec, make_scheduler: MakeScheduler, runner_of: RunnerOf
) -> None:
    on_gpu = [api.submit(spec) for _ in range(2)]
    on_cpu = api.submit(spec.changed(device=Device.CPU))
    with make_scheduler(runner_of("sleep"), slots=3, gpu_slots=1) as scheduler:
        scheduler.tick()
        scheduler.tick()
        states = [api.get(job.id).state for job in (*on_gpu, on_cpu)]
        assert states == [JobState.RUNNING, JobState.QUEUED, JobState.RUNNING]


def test_jobs_run_one_at_a_time_in_order_unless_there_are_slots(
    api: JobApi, spec: JobSpec, make_scheduler: MakeScheduler, runner_of: RunnerOf
) -> None:
    jobs = [api.submit(spec) for _ in range(3)]
    with make_scheduler(runner_of("sleep")) as scheduler:
        for _ in range(3):
            scheduler.tick()
            assert len(scheduler.running) == 1
        (running,) = [job for job in jobs if api.get(job.id).state is JobState.RUNNING]
        assert running == min(jobs, key=lambda job: (job.created_at, job.id))
    with make_scheduler(runner_of("sleep"), slots=3) as scheduler:
        scheduler.tick()
        assert len(scheduler.running) == 3


def test_a_scheduler_that_stops_queues_its_job_again_without_blame(
    api: JobApi, spec: JobSpec, data_dir: DataDir, make_scheduler: MakeScheduler, runner_of: RunnerOf
) -> None:
    job = api.submit(spec.changed(max_attempts=1))
    for attempt in (1, 2, 3):
        with make_scheduler(runner_of("sleep")) as scheduler:
            scheduler.tick()
            wait_until(lambda: api.get(job.id).state is JobState.RUNNING)
            (process,) = [lease for lease in scheduler.running if lease.job_id == job.id]
            assert process.token == attempt
        assert (api.get(job.id).state, api.get(job.id).attempt) == (JobState.QUEUED, attempt)
        wait_until(lambda: not any(found.is_running() for found in _recorded(data_dir, job.id)))


def test_a_job_that_ended_well_just_when_the_scheduler_stops_has_succeeded(
    api: JobApi, spec: JobSpec, data_dir: DataDir, make_scheduler: MakeScheduler, runner_of: RunnerOf
) -> None:
    job = api.submit(spec)
    with make_scheduler(runner_of("work", "1", "0")) as scheduler:
        scheduler.tick()
        wait_until(lambda: bool(_recorded(data_dir, job.id)))
        (runner,) = _recorded(data_dir, job.id)
        wait_until(lambda: not runner.is_running())
    assert (api.get(job.id).state, api.get(job.id).model_version) == (JobState.SUCCEEDED, "tiny@v2")
    assert (folder(data_dir, job.id) / "ledger").read_text() == "1\n"


def test_a_job_without_its_log_still_ends(
    api: JobApi, spec: JobSpec, data_dir: DataDir, make_scheduler: MakeScheduler
) -> None:
    job = api.submit(spec)
    with make_scheduler(("/bin/sh", "-c", 'rm -r "$1"; exit 1', "sh", str(data_dir.jobs))) as scheduler:
        wait_until(lambda: api.get(job.id).is_finished, each=scheduler.tick)
    assert api.get(job.id).state is JobState.FAILED
    assert "log.txt was removed" in api.get(job.id).error


def _recorded(data_dir: DataDir, job_id: str) -> list[ProcessIdentity]:
    path = folder(data_dir, job_id) / "pid"
    return identities(path) if path.exists() else []


def test_a_wish_to_cancel_survives_the_scheduler(
    api: JobApi, spec: JobSpec, make_scheduler: MakeScheduler, runner_of: RunnerOf
) -> None:
    job = api.submit(spec)
    with make_scheduler(runner_of("sleep")) as scheduler:
        scheduler.tick()
        assert api.cancel(job.id).state is JobState.CANCELLING
    assert api.get(job.id).state is JobState.CANCELLED


def test_an_expired_lease_is_taken_over_and_the_former_scheduler_gives_up(
    *,
    api: JobApi,
    spec: JobSpec,
    data_dir: DataDir,
    clock: FakeClock,
    make_scheduler: MakeScheduler,
    runner_of: RunnerOf,
) -> None:
    """What happens when a scheduler, or its machine, hangs for longer than its lease and then comes back."""
    job = api.submit(spec)
    with (
        make_scheduler(runner_of("sleep"), clock=clock) as former,
        make_scheduler(runner_of("sleep"), clock=clock) as latter,
    ):
        wait_until((folder(data_dir, job.id) / "ready").exists, each=former.tick)
        (first,) = identities(folder(data_dir, job.id) / "pid")
        latter.tick()
        assert latter.running == frozenset(), "a lease that stands is left alone"
        clock.forward(seconds=31)
        latter.tick()
        assert not first.is_running(), "the former runner is ended before the job goes on"
        (lease,) = latter.running
        assert (lease.job_id, api.get(job.id).attempt) == (job.id, 2)
        former.tick()
        assert former.running == frozenset()
        latter.tick()
        assert latter.running == {lease}, "and the present runner is left alone"


def test_a_lease_that_is_renewed_is_not_taken(
    api: JobApi, spec: JobSpec, clock: FakeClock, make_scheduler: MakeScheduler, runner_of: RunnerOf
) -> None:
    api.submit(spec)
    with make_scheduler(runner_of("sleep"), clock=clock) as one, make_scheduler(runner_of("sleep"), clock=clock) as two:
        one.tick()
        for _ in range(10):
            clock.forward(seconds=11)
            one.tick()
            two.tick()
            assert (len(one.running), len(two.running)) == (1, 0)


def test_a_lease_of_another_machine_is_taken_only_when_it_has_expired(
    *,
    api: JobApi,
    spec: JobSpec,
    database: ControlDatabase,
    clock: FakeClock,
    make_scheduler: MakeScheduler,
    runner_of: RunnerOf,
) -> None:
    """Its process group has our own pid here: it must not be mistaken for ours."""
    job = api.submit(spec)
    elsewhere = str(ProcessIdentity.current()._replace(machine="another"))
    with database.write() as session:
        until = clock.now + timedelta(seconds=30)
        lease = job_queue.lease_next_job(session, owner=elsewhere, now=clock.now, until=until)
        assert lease is not None
        leases.record_runner(session, lease, elsewhere)
    with make_scheduler(runner_of("sleep"), clock=clock) as scheduler:
        scheduler.tick()
        assert api.get(job.id).attempt == 1
        clock.forward(seconds=31)
        scheduler.tick()
        assert api.get(job.id).attempt == 2


@pytest.mark.slow
def test_two_schedulers_never_run_one_job_twice(
    *, api: JobApi, spec: JobSpec, data_dir: DataDir, runner_of: RunnerOf
) -> None:
    jobs = [api.submit(spec) for _ in range(6)]
    command, settings = runner_of("work", "2", "0.01"), RunnerSettings(slots=2)
    schedulers = [
        Scheduler(
            data_dir,
            parse_spec,
            jobs=JobRunner(data_dir, parse_spec, command=command, settings=settings),
            settings=SchedulerSettings(poll_s=0.01),
        )
        for _ in range(2)
    ]
    with running(*schedulers):
        wait_until(lambda: all(api.get(job.id).is_finished for job in jobs), timeout_s=90)
    for job in jobs:
        assert (api.get(job.id).state, api.get(job.id).attempt) == (JobState.SUCCEEDED, 1)
        assert (folder(data_dir, job.id) / "ledger").read_text() == "1\n2\n"
        assert not (folder(data_dir, job.id) / "violation").exists()
        assert api.log(job.id).count("===") == 1


def test_the_loop_outlives_a_database_that_is_away_for_a_while(
    *,
    api: JobApi,
    spec: JobSpec,
    database_away: DatabaseAway,
    make_scheduler: MakeScheduler,
    runner_of: RunnerOf,
    caplog: pytest.LogCaptureFixture,
) -> None:
    job = api.submit(spec)
    with make_scheduler(runner_of("work", "1", "0")) as scheduler, ExitStack() as away:
        away.enter_context(database_away())
        with running(scheduler):
            wait_until(lambda: "control database:" in caplog.text)
            time.sleep(0.2)
            away.close()
            wait_until(lambda: api.get(job.id).is_finished)
    assert api.get(job.id).state is JobState.SUCCEEDED
    errors = [message for message in caplog.messages if message.startswith("control database:")]
    assert all(first != second for first, second in pairwise(errors)), "said once for each trouble, not at every look"


def test_an_outcome_waits_for_a_database_that_is_away(
    *,
    api: JobApi,
    spec: JobSpec,
    data_dir: DataDir,
    database_away: DatabaseAway,
    make_scheduler: MakeScheduler,
    runner_of: RunnerOf,
) -> None:
    job = api.submit(spec)
    with make_scheduler(runner_of("fail")) as scheduler:
        scheduler.tick()
        with database_away():
            wait_until(lambda: "loss is nan" in (folder(data_dir, job.id) / "log.txt").read_text())
            for _ in range(20):
                with pytest.raises(DataDirectoryError):
                    scheduler.tick()
                time.sleep(0.02)
        wait_until(lambda: api.get(job.id).is_finished, each=scheduler.tick)
    assert api.get(job.id).state is JobState.FAILED
    assert "exit status 7" in api.get(job.id).error


def test_a_job_whose_scheduler_is_gone_can_still_be_cancelled(
    *,
    api: JobApi,
    spec: JobSpec,
    database: ControlDatabase,
    clock: FakeClock,
    make_scheduler: MakeScheduler,
    runner_of: RunnerOf,
) -> None:
    job = api.submit(spec)
    gone = str(ProcessIdentity.current()._replace(start_ticks=1))
    with database.write() as session:
        assert job_queue.lease_next_job(session, owner=gone, now=clock.now, until=clock.now + timedelta(days=1))
    assert api.cancel(job.id).state is JobState.CANCELLING
    with make_scheduler(runner_of("sleep"), clock=clock) as scheduler:
        scheduler.tick()
    assert (api.get(job.id).state, api.get(job.id).attempt) == (JobState.CANCELLED, 1)


@pytest.mark.parametrize(("status", "attempts"), [(1, 1), (3, 1), (130, 2), (143, 2)])
def test_a_runner_that_says_that_it_was_ended_from_outside_is_started_again(
    api: JobApi, spec: JobSpec, make_scheduler: MakeScheduler, status: int, attempts: int
) -> None:
    job = api.submit(spec.changed(max_attempts=2))
    with make_scheduler(("/bin/sh", "-c", f"exit {status}", "sh")) as scheduler:
        wait_until(lambda: api.get(job.id).is_finished, each=scheduler.tick)
    assert (api.get(job.id).state, api.get(job.id).attempt) == (JobState.FAILED, attempts)


def test_a_stop_request_answers_to_its_signal() -> None:
    former = signal.getsignal(signal.SIGUSR1)
    with StopRequest(signal.SIGUSR1) as stop:
        assert not stop.wait(0)
        os.kill(os.getpid(), signal.SIGUSR1)
        assert stop.wait(60)
    assert signal.getsignal(signal.SIGUSR1) == former
