"""Test schedules: one job for each tick with any number of schedulers, and one for all missed ticks."""

import threading
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.exc import IntegrityError

from spanloop.foundation.errors import DataDirectoryError
from spanloop.foundation.paths import DataDir
from spanloop.training.jobs import job_queue
from spanloop.training.jobs.database.control_database import ControlDatabase
from spanloop.training.jobs.database.tables import ScheduleRow
from spanloop.training.jobs.paths import ControlPaths
from spanloop.training.jobs.schedules.outcome import TickOutcome
from spanloop.training.jobs.schedules.schedule_ticks import Decision, record_tick, run_due_ticks
from spanloop.training.jobs.schedules.stored_schedules import next_firing
from spanloop.training.run.job_api import JobApi, JobSpec, Schedule
from spanloop.training.spec.stored_spec import parse_spec

from .support import OF_ANOTHER_VERSION, FakeClock, MakeScheduler, RunnerOf

instants = st.datetimes(datetime(2020, 1, 1), datetime(2035, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
crons = st.sampled_from(["* * * * *", "*/7 * * * *", "0 3 * * *", "30 2 * * 0", "0 0 29 2 *", "15 14 1 * *"])


def new_data(_: Schedule) -> Decision:
    """As if there were new data at every tick."""
    return Decision(TickOutcome.SUBMITTED, "new data")


def fire(data_dir: DataDir, now: datetime, *, finish: bool = True) -> list[str]:
    """What a scheduler that was started just now does; return the new jobs, which end at once unless told otherwise."""
    api, database = JobApi(data_dir), ControlDatabase(ControlPaths.of(data_dir))
    known = {job.id for job in api.list()}
    for recurring in (False, True):
        run_due_ticks(database, new_data, parse_spec, recurring=recurring, clock=lambda: now)
    found = [job.id for job in api.list() if job.id not in known]
    for job_id in found if finish else ():
        api.cancel(job_id)
    return found


@given(crons, instants)
def test_the_next_firing_is_later_on_a_minute_and_in_utc(cron: str, after: datetime) -> None:
    found = next_firing(cron, after)
    assert found > after
    assert (found.second, found.microsecond, found.utcoffset()) == (0, 0, timedelta(0))
    assert next_firing(cron, found - timedelta(microseconds=1)) == found


def test_cron_counts_in_utc_wherever_the_clock_is() -> None:
    tokyo = timezone(timedelta(hours=9))
    after = datetime(2026, 6, 1, 11, 30, tzinfo=tokyo)
    assert next_firing("0 3 * * *", after) == datetime(2026, 6, 1, 3, tzinfo=UTC)


def test_a_firing_submits_one_job_across_restarts(
    api: JobApi, spec: JobSpec, data_dir: DataDir, clock: FakeClock
) -> None:
    schedule = api.schedule(spec, cron="0 * * * *")
    assert fire(data_dir, clock.now) == []
    clock.forward(hours=1)
    (job_id,) = fire(data_dir, clock.now)
    assert fire(data_dir, clock.now) == []
    (found,) = api.schedules()
    assert (found.last_at, found.last_job_id) == (clock.now, job_id)
    assert found.next_at == clock.now + timedelta(hours=1)
    assert (api.get(job_id).schedule_id, api.get(job_id).spec) == (schedule.id, spec)


@pytest.mark.parametrize("missed", [1, 2, 61, 1440, 525_600])
def test_missed_firings_are_caught_up_by_one_job(
    api: JobApi, spec: JobSpec, data_dir: DataDir, clock: FakeClock, missed: int
) -> None:
    api.schedule(spec, cron="* * * * *")
    clock.forward(minutes=missed, seconds=30)
    assert len(fire(data_dir, clock.now)) == 1
    assert fire(data_dir, clock.now) == []
    clock.forward(minutes=1)
    assert len(fire(data_dir, clock.now)) == 1


def test_a_single_time_fires_once_and_then_never(
    api: JobApi, spec: JobSpec, data_dir: DataDir, clock: FakeClock
) -> None:
    api.schedule(spec, at=clock.now + timedelta(minutes=5))
    clock.forward(minutes=4, seconds=59)
    assert fire(data_dir, clock.now) == []
    clock.forward(days=30)
    assert len(fire(data_dir, clock.now)) == 1
    clock.forward(days=365)
    assert fire(data_dir, clock.now) == []
    assert api.schedules()[0].next_at is None


def test_a_crash_while_it_fires_loses_and_doubles_nothing(
    api: JobApi, spec: JobSpec, database: ControlDatabase, data_dir: DataDir, clock: FakeClock
) -> None:
    schedule = api.schedule(spec, cron="0 * * * *")
    clock.forward(hours=1)

    def fire_and_die() -> None:
        with database.write() as session:
            assert record_tick(session, schedule, new_data(schedule), now=clock.now) is not None
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fire_and_die()
    assert api.list() == ()
    assert len(fire(data_dir, clock.now)) == 1


def test_a_schedule_of_another_version_stays_due_and_holds_up_nobody(
    api: JobApi, spec: JobSpec, database: ControlDatabase, data_dir: DataDir, clock: FakeClock
) -> None:
    foreign, own = api.schedule(spec, cron="0 * * * *"), api.schedule(spec, cron="0 * * * *")
    with database.write() as session:
        session.get_one(ScheduleRow, foreign.id).spec = OF_ANOTHER_VERSION
    clock.forward(hours=1)
    (job_id,) = fire(data_dir, clock.now)
    assert api.get(job_id).schedule_id == own.id
    with database.read() as session:
        assert session.get_one(ScheduleRow, foreign.id).next_at == foreign.next_at


def test_many_schedulers_at_once_submit_one_job(
    api: JobApi, spec: JobSpec, data_dir: DataDir, clock: FakeClock
) -> None:
    api.schedule(spec, cron="0 * * * *")
    clock.forward(hours=1)
    fired: list[str] = []
    threads = [threading.Thread(target=lambda: fired.extend(fire(data_dir, clock.now, finish=False))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(fired)) == len(api.list()) == 1


def test_the_database_itself_refuses_a_second_job_for_a_firing(
    spec: JobSpec, database: ControlDatabase, clock: FakeClock
) -> None:
    def submit() -> None:
        with database.write() as session:
            job_queue.insert_job(session, spec, now=clock.now, schedule_id="nightly", fired_for=clock.now)

    submit()
    with pytest.raises(DataDirectoryError, match=r"(?i)unique constraint") as caught:
        submit()
    assert isinstance(caught.value.__cause__, IntegrityError)


def test_a_scheduler_runs_what_its_schedule_submits(
    api: JobApi, spec: JobSpec, clock: FakeClock, make_scheduler: MakeScheduler, runner_of: RunnerOf
) -> None:
    api.schedule(spec, at=clock.now + timedelta(seconds=1))
    with make_scheduler(runner_of("sleep"), clock=clock) as scheduler:
        scheduler.tick()
        assert (scheduler.running, api.list()) == (frozenset(), ())
        clock.forward(seconds=1)
        scheduler.tick()
        assert [lease.job_id for lease in scheduler.running] == [job.id for job in api.list()]
        scheduler.tick()
        assert len(api.list()) == 1
