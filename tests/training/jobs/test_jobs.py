"""Test the job API: submit, cancel, retry and schedule jobs."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from spanloop.foundation.errors import ConfigurationError, DataDirectoryError, JobError
from spanloop.foundation.paths import DataDir
from spanloop.training.jobs import job_outcomes, job_queue, leases
from spanloop.training.jobs.database.control_database import ControlDatabase
from spanloop.training.jobs.database.tables import JobRow, ScheduleRow
from spanloop.training.jobs.progress import report_progress
from spanloop.training.run.job_api import JobApi, JobLeaseLostError, JobSpec, JobState

from .support import OF_ANOTHER_VERSION, FakeClock

HOUR = timedelta(hours=1)


def start(database: ControlDatabase, now: datetime) -> leases.JobLease:
    with database.write() as session:
        lease = job_queue.lease_next_job(session, owner="somebody", now=now, until=now + HOUR)
    assert lease is not None
    return lease


def test_a_submitted_job_is_queued_and_found_again(api: JobApi, spec: JobSpec, data_dir: DataDir) -> None:
    job = api.submit(spec)
    assert (job.state, job.attempt, job.step, job.steps_total) == (JobState.QUEUED, 0, 0, 3)
    assert JobApi(data_dir.path).get(job.id) == job
    assert api.list() == (job,)
    assert not job.is_finished


def test_an_unknown_base_is_refused_with_the_next_step(api: JobApi, spec: JobSpec) -> None:
    with pytest.raises(JobError, match=r"no model version 'tiny@v9'(?s:.*)spanloop models"):
        api.submit(spec.changed(base="tiny@v9"))
    assert api.list() == ()


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        ("nobody", "No selection is called 'nobody'"),
        ("tests.training.dataset.test_dataset_selector:at_least:token=3", "no option 'token' .* did you mean 'tokens'"),
    ],
)
def test_a_job_whose_selector_cannot_be_used_is_not_queued(
    api: JobApi, spec: JobSpec, selector: str, message: str
) -> None:
    for refused in ({"selector": selector}, {"then": (f"kind=sft selector={selector}",)}):
        wrong = spec.changed(**refused)
        with pytest.raises(JobError, match=message):
            api.submit(wrong)
        with pytest.raises(JobError, match=message):
            api.schedule(wrong, cron="0 3 * * *")
    assert (api.list(), api.schedules()) == ((), ())


@pytest.mark.parametrize(
    ("evaluation", "message"),
    [
        ('grader = "exact"\ngrader_options = { expcted = "a" }', "did you mean 'expected'"),
        ('reader = "csv"\nreader_options = { delimeter = ";" }', "did you mean 'delimiter'"),
        ('grader = "guess"', "No grader is called 'guess'"),
    ],
)
def test_a_job_that_deploys_needs_a_reader_and_a_grader_that_can_be_used(
    api: JobApi, spec: JobSpec, data_dir: DataDir, evaluation: str, message: str
) -> None:
    text = f'[evaluation]\ntasks = "tasks.csv"\nagent = "echo"\n{evaluation}\n'
    (data_dir.path / "spanloop.toml").write_text(text)
    with pytest.raises(ConfigurationError, match=message):
        api.submit(spec.changed(deploy=True))
    assert api.list() == ()
    assert api.submit(spec).state is JobState.QUEUED


def test_unknown_jobs_and_schedules_are_refused(api: JobApi) -> None:
    for ask in (api.get, api.cancel, api.retry, api.log, api.unschedule):
        with pytest.raises(JobError, match="'nothing'"):
            ask("nothing")


def test_jobs_are_listed_newest_first(api: JobApi, spec: JobSpec, clock: FakeClock) -> None:
    first = api.submit(spec)
    clock.forward(seconds=1)
    second = api.submit(spec)
    assert [job.id for job in api.list()] == [second.id, first.id]
    assert [job.id for job in api.list(limit=1)] == [second.id]


def test_a_queued_job_is_cancelled_at_once(api: JobApi, spec: JobSpec, clock: FakeClock) -> None:
    job = api.cancel(api.submit(spec).id)
    assert (job.state, job.finished_at) == (JobState.CANCELLED, clock.now)
    assert api.cancel(job.id) == job


def test_a_running_job_is_asked_to_end(api: JobApi, spec: JobSpec, database: ControlDatabase, clock: FakeClock) -> None:
    job = api.submit(spec)
    lease = start(database, clock.now)
    assert api.get(job.id).state is JobState.RUNNING
    assert api.cancel(job.id).state is JobState.CANCELLING
    with database.write() as session:
        assert job_outcomes.mark_failed(session, lease, now=clock.now, error="killed") is JobState.CANCELLED
    assert api.get(job.id).error == ""


def test_only_failed_and_cancelled_jobs_are_retried(
    api: JobApi, spec: JobSpec, database: ControlDatabase, clock: FakeClock
) -> None:
    job = api.submit(spec)
    with pytest.raises(JobError, match="is queued"):
        api.retry(job.id)
    lease = start(database, clock.now)
    with pytest.raises(JobError, match="is running"):
        api.retry(job.id)
    with database.write() as session:
        job_outcomes.mark_failed(session, lease, now=clock.now, error="the loss is nan")
    assert (api.get(job.id).error, api.get(job.id).state) == ("the loss is nan", JobState.FAILED)
    retried = api.retry(job.id)
    assert (retried.state, retried.error, retried.finished_at, retried.attempt) == (JobState.QUEUED, "", None, 1)
    lease = start(database, clock.now)
    with database.write() as session:
        job_outcomes.mark_succeeded(session, lease, now=clock.now)
    with pytest.raises(JobError, match="is succeeded"):
        api.retry(job.id)


def test_progress_is_reported_under_the_present_token_only(
    api: JobApi, spec: JobSpec, database: ControlDatabase, data_dir: DataDir, clock: FakeClock
) -> None:
    job = api.submit(spec)
    lease = start(database, clock.now)
    report_progress(data_dir, job.id, lease.token, 2, 5)
    assert (api.get(job.id).step, api.get(job.id).steps_total) == (2, 5)
    for stale in (lease.token - 1, lease.token + 1):
        with pytest.raises(JobLeaseLostError, match=job.id):
            report_progress(data_dir, job.id, stale, 3, 5)
    with pytest.raises(ValueError, match="step 6 of 5"):
        report_progress(data_dir, job.id, lease.token, 6, 5)
    with database.write() as session:
        job_outcomes.mark_succeeded(session, lease, now=clock.now)
    with pytest.raises(JobLeaseLostError):
        report_progress(data_dir, job.id, lease.token, 4, 5)
    assert api.get(job.id).step == 2


def test_the_log_is_cut_at_its_beginning(api: JobApi, spec: JobSpec, data_dir: DataDir) -> None:
    job = api.submit(spec)
    assert api.log(job.id) == ""
    log = Path(data_dir.jobs) / job.id / "log.txt"
    log.parent.mkdir(parents=True)
    log.write_bytes("é".encode() * 10)
    assert api.log(job.id) == "é" * 10
    assert api.log(job.id, tail_bytes=3) == "\N{REPLACEMENT CHARACTER}é"


def test_a_schedule_says_when_it_fires_next(api: JobApi, spec: JobSpec, clock: FakeClock) -> None:
    nightly = api.schedule(spec, cron=" 0  3 * * * ")
    assert (nightly.cron, nightly.next_at) == ("0 3 * * *", datetime(2026, 11, 21, 3, tzinfo=UTC))
    once = api.schedule(spec, at=clock.now + HOUR)
    assert (once.cron, once.next_at) == (None, clock.now + HOUR)
    assert [found.id for found in api.schedules()] == sorted([nightly.id, once.id])
    api.unschedule(nightly.id)
    assert api.schedules() == (once,)


@pytest.mark.parametrize("cron", ["", "* * * *", "* * * * * *", "61 * * * *", "often", "0 0 30 2 *"])
def test_a_cron_expression_that_never_fires_is_refused(api: JobApi, spec: JobSpec, cron: str) -> None:
    with pytest.raises(ConfigurationError):
        api.schedule(spec, cron=cron)
    assert api.schedules() == ()


def test_a_time_without_a_zone_is_refused(api: JobApi, spec: JobSpec) -> None:
    with pytest.raises(ConfigurationError, match=r"no time zone(?s:.*)\+00:00"):
        api.schedule(spec, at=datetime(2026, 1, 1))  # noqa: DTZ001 - the point


def test_a_spec_of_another_version_is_refused_and_costs_its_neighbours_nothing(
    api: JobApi, spec: JobSpec, database: ControlDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    before, job, after = (api.submit(spec) for _ in range(3))
    kept, nightly = (api.schedule(spec, cron="0 3 * * *") for _ in range(2))
    with database.write() as session:
        session.get_one(JobRow, job.id).spec = OF_ANOTHER_VERSION
        session.get_one(ScheduleRow, nightly.id).spec = OF_ANOTHER_VERSION
    with pytest.raises(
        DataDirectoryError, match=rf"{job.id} cannot be read(?s:.*)quantum: Extra(?s:.*)version of spanloop"
    ):
        api.get(job.id)
    assert {found.id for found in api.list()} == {before.id, after.id}
    assert api.schedules() == (kept,)
    api.list()
    assert [job.id in text for text in caplog.messages] == [True, False]
    assert nightly.id in caplog.messages[1]


def test_a_job_has_run_since_the_start_of_its_last_attempt(
    api: JobApi, spec: JobSpec, database: ControlDatabase, clock: FakeClock
) -> None:
    job = api.submit(spec)
    assert api.get(job.id).started_at is None

    lease = start(database, clock.now)
    assert api.get(job.id).started_at == clock.now
    clock.forward(hours=1)
    with database.write() as session:
        job_outcomes.requeue_interrupted(session, lease, now=clock.now, error="killed", max_attempts=3)
    assert api.get(job.id).started_at is None
    lease = start(database, clock.now)
    with database.write() as session:
        job_outcomes.mark_failed(session, lease, now=clock.now, error="diverged")
    failed = api.get(job.id)
    assert failed.started_at == failed.finished_at == clock.now
    assert api.retry(job.id).started_at is None
    start(database, clock.now)
    assert api.get(job.id).attempt == 3
