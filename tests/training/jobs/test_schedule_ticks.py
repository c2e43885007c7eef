"""Test ticks: pause, budget, history, and any order of ticks, arrivals, kills and retries against a model."""

from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from sqlalchemy.orm import Session

from spanloop.foundation.errors import ConfigurationError, JobError
from spanloop.foundation.paths import DataDir
from spanloop.training.jobs import job_outcomes, job_queue
from spanloop.training.jobs.database.control_database import ControlDatabase
from spanloop.training.jobs.database.tables import JobRow, ModelVersionRow
from spanloop.training.jobs.paths import ControlPaths
from spanloop.training.jobs.schedules import schedule_ticks
from spanloop.training.jobs.schedules.outcome import TickOutcome
from spanloop.training.jobs.schedules.schedule_settings import CHECK_INTERVAL, interval_text, parse_interval
from spanloop.training.jobs.schedules.schedule_ticks import AFTER_FAILURE, Decision, run_due_ticks
from spanloop.training.jobs.state_machine import FINAL_STATES
from spanloop.training.models.lineage import trainings_of_schedule
from spanloop.training.models.registry import Registry
from spanloop.training.run.job_api import (
    Budget,
    FailureTrigger,
    JobApi,
    JobSpec,
    JobState,
    Schedule,
    ScheduleSettings,
    Tick,
)
from spanloop.training.spec.stored_spec import parse_spec

from .support import FakeClock, delete_all_rows

if TYPE_CHECKING:
    from spanloop.training.jobs.leases import JobLease

SPEC = JobSpec.of(kind="sft", base="tiny@v1", max_attempts=100)
HOURLY = ScheduleSettings(every_minutes=60)
NEW = Decision(TickOutcome.SUBMITTED, "new data")


def tick(data_dir: DataDir, clock: FakeClock, decision: Decision = NEW) -> Tick | None:
    """What a scheduler does now; return what it recorded last about the newest schedule."""
    run_due_ticks(
        ControlDatabase(ControlPaths.of(data_dir)), lambda _: decision, parse_spec, recurring=True, clock=clock
    )
    api = JobApi(data_dir)
    return next(iter(api.ticks(api.schedules()[-1].id)), None)


def finish(
    database: ControlDatabase, clock: FakeClock, state: JobState = JobState.SUCCEEDED, *, minutes: int = 0
) -> None:
    """Start the queued job and let it end after some minutes."""
    with database.write() as session:
        lease = job_queue.lease_next_job(session, owner="one", now=clock.now, until=clock.now)
        assert lease is not None
        clock.forward(minutes=minutes)
        if state is JobState.SUCCEEDED:
            job_outcomes.mark_succeeded(session, lease, now=clock.now)
        else:
            job_outcomes.mark_failed(session, lease, now=clock.now, error="wrong")


@pytest.mark.parametrize("text", ["1m", "30m", "90m", "6h", "1d", "1.5h"])
def test_an_interval_is_shown_as_it_is_written(text: str) -> None:
    assert parse_interval(interval_text(parse_interval(text))) == parse_interval(text)


@pytest.mark.parametrize("text", ["", "6", "0m", "10s", "h", "-1h", "99999d"])
def test_what_is_no_interval_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="30m, 6h or 1d"):
        parse_interval(text)


@pytest.mark.parametrize("text", ["timeout above 20% of 50", "unknown_tool of my planner above 2.5% of 100"])
def test_a_condition_on_failures_is_shown_as_it_is_written(text: str) -> None:
    assert FailureTrigger.parse(str(FailureTrigger.parse(text))) == FailureTrigger.parse(text)


@pytest.mark.parametrize("text", ["", "timeout", "timeout above 100% of 50", "timeout above 5% of 0", "above 5% of 5"])
def test_what_is_no_condition_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="CLASS of AGENT above 20% of 50"):
        FailureTrigger.parse(text)


@pytest.mark.parametrize("text", ["3 jobs/week", "600 minutes/month", "1 job a week", "0 jobs/week", "many", "3 jobs"])
def test_a_budget_is_a_number_in_a_period(text: str) -> None:
    if text in {"0 jobs/week", "many", "3 jobs"}:
        with pytest.raises(ConfigurationError, match="3 jobs/week"):
            Budget.parse(text)
    else:
        assert Budget.parse(str(Budget.parse(text))) == Budget.parse(text)


def test_a_schedule_has_exactly_one_trigger(api: JobApi, spec: JobSpec, clock: FakeClock) -> None:
    for arguments in ({}, {"cron": "0 3 * * *", "at": clock.now}, {"cron": "0 3 * * *", "settings": HOURLY}):
        with pytest.raises(ConfigurationError, match="exactly one trigger"):
            api.schedule(spec, **arguments)  # type: ignore[arg-type]
    budget = ScheduleSettings(budget=Budget.parse("1 job/week"))
    with pytest.raises(ConfigurationError, match="more than one job"):
        api.schedule(spec, at=clock.now, settings=budget)
    assert api.schedules() == ()


def test_an_interval_is_counted_from_its_first_tick_and_missed_ticks_are_one(
    api: JobApi, spec: JobSpec, data_dir: DataDir, clock: FakeClock
) -> None:
    begin = clock.now
    schedule = api.schedule(spec, settings=HOURLY)
    assert schedule.next_at == begin
    tick(data_dir, clock)
    assert api.get_schedule(schedule.id).next_at == begin + timedelta(hours=1)
    clock.forward(hours=7, minutes=13)
    tick(data_dir, clock)
    assert api.get_schedule(schedule.id).next_at == begin + timedelta(hours=8)
    assert sum(each.times for each in api.ticks(schedule.id)) == 2


def test_a_paused_schedule_does_not_tick_and_makes_up_for_nothing(
    api: JobApi, spec: JobSpec, data_dir: DataDir, clock: FakeClock
) -> None:
    schedule = api.schedule(spec, cron="0 * * * *")
    paused = api.pause(schedule.id)
    assert paused.paused_at == clock.now
    clock.forward(days=2, minutes=30)
    assert tick(data_dir, clock) is None
    resumed = api.resume(schedule.id)
    assert (resumed.paused_at, resumed.next_at) == (None, clock.now + timedelta(minutes=30))
    assert tick(data_dir, clock) is None
    assert api.list() == ()
    clock.forward(minutes=30)
    assert tick(data_dir, clock) is not None
    assert len(api.list()) == 1
    for act in (api.pause, api.resume, api.unschedule, api.get_schedule):
        with pytest.raises(JobError, match="no schedule 'nothing'"):
            act("nothing")


def test_a_budget_of_jobs_skips_ticks_until_the_period_has_passed(
    api: JobApi, spec: JobSpec, data_dir: DataDir, clock: FakeClock, database: ControlDatabase
) -> None:
    api.schedule(spec, settings=HOURLY.model_copy(update={"budget": Budget.parse("2 jobs/week")}))
    for _ in range(2):
        tick(data_dir, clock)
        finish(database, clock)
        clock.forward(hours=1)
    skipped = tick(data_dir, clock)
    assert skipped is not None
    assert skipped.outcome is TickOutcome.SKIPPED
    assert "budget of 2 jobs/week is used up: 2 jobs since" in skipped.reason
    clock.forward(days=7)
    tick(data_dir, clock)
    assert len(api.list()) == 3


def test_a_budget_of_minutes_counts_the_run_time_of_all_attempts(
    api: JobApi, spec: JobSpec, data_dir: DataDir, clock: FakeClock, database: ControlDatabase
) -> None:
    api.schedule(spec, settings=HOURLY.model_copy(update={"budget": Budget.parse("90 minutes/month")}))
    tick(data_dir, clock)
    finish(database, clock, minutes=60)
    tick(data_dir, clock)
    finish(database, clock, minutes=60)
    skipped = tick(data_dir, clock)
    assert skipped is not None
    assert "120 minutes since" in skipped.reason
    assert len(api.list()) == 2


def test_a_schedule_that_waits_for_data_waits_a_day_after_a_failed_job(
    api: JobApi, spec: JobSpec, data_dir: DataDir, clock: FakeClock, database: ControlDatabase
) -> None:
    api.schedule(spec, settings=ScheduleSettings(after_transitions=1))
    tick(data_dir, clock)
    finish(database, clock, JobState.FAILED)
    clock.now += CHECK_INTERVAL
    skipped = tick(data_dir, clock)
    assert skipped is not None
    assert "ended as failed, so it waits until 2026-11-21 12:00 UTC" in skipped.reason
    clock.now += AFTER_FAILURE
    tick(data_dir, clock)
    assert len(api.list()) == 2


def test_the_history_counts_repetitions_and_is_bounded(
    api: JobApi, spec: JobSpec, data_dir: DataDir, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule_ticks, "KEPT_TICKS", 3)
    schedule = api.schedule(spec, settings=HOURLY)
    for number in range(5):
        for _ in range(2):
            tick(data_dir, clock, Decision(TickOutcome.SKIPPED, f"reason {number}"))
            clock.forward(hours=1)
    ticks = api.ticks(schedule.id, limit=1000)
    assert [str(each) for each in ticks] == [f"skipped (2 times): reason {number}" for number in (4, 3, 2)]
    for left in (3, 2):
        last = tick(data_dir, clock, Decision(TickOutcome.WAITING, f"{left} are missing"))
        clock.forward(hours=1)
    assert last is not None
    assert (last.times, last.reason) == (2, "2 are missing")
    api.unschedule(schedule.id)
    assert api.ticks(schedule.id) == ()


def test_a_schedule_whose_decision_fails_holds_up_no_other(
    api: JobApi, spec: JobSpec, data_dir: DataDir, clock: FakeClock
) -> None:
    broken, sound = (api.schedule(spec, settings=HOURLY) for _ in range(2))

    def decide(schedule: Schedule) -> Decision:
        if schedule.id == broken.id:
            raise ZeroDivisionError("in a selection")
        return NEW

    assert run_due_ticks(ControlDatabase(ControlPaths.of(data_dir)), decide, parse_spec, recurring=True, clock=clock)
    assert "ZeroDivisionError: in a selection" in api.ticks(broken.id)[0].reason
    assert api.ticks(sound.id)[0].outcome is TickOutcome.SUBMITTED


class ScheduleLife(RuleBasedStateMachine):
    """Any order of arrivals, ticks, kills, retries and pauses, against a model of what was trained on."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = TemporaryDirectory()
        path = Path(self._folder.name)
        self._data_dir = DataDir(path).open()
        self._clock = FakeClock()
        self._database = ControlDatabase(ControlPaths.of(self._data_dir))
        self._api = JobApi(self._data_dir, clock=self._clock)
        self._schedule = self._api.schedule(SPEC, settings=HOURLY)
        self._arrived = 0
        self._datasets: dict[str, frozenset[int]] = {}
        """Episodes of each job that has begun; a manifest never changes."""
        self._trained: list[int] = []
        """Episodes of all versions."""
        self._lease: JobLease | None = None

    def teardown(self) -> None:
        delete_all_rows(self._database)
        self._folder.cleanup()

    def _new(self) -> frozenset[int]:
        """What the query for a dataset returns: what no training of the schedule consumed."""
        jobs = self._api.jobs_of_schedule(self._schedule.id)
        consumed = {training.job_id for training in trainings_of_schedule(Registry(self._data_dir), jobs)}
        used = frozenset[int]().union(*(self._datasets[job] for job in consumed))
        return frozenset(range(self._arrived)) - used

    def _decide(self, _: Schedule) -> Decision:
        count = len(self._new())
        return Decision(TickOutcome.SUBMITTED if count else TickOutcome.SKIPPED, f"{count} new")

    @rule(count=st.integers(1, 5))
    def arrive(self, count: int) -> None:
        self._arrived += count

    @rule(hours=st.integers(0, 5))
    def wait(self, hours: int) -> None:
        self._clock.forward(hours=hours)

    @rule()
    def tick(self) -> None:
        before, had_new = len(self._api.list()), bool(self._new())
        run_due_ticks(self._database, self._decide, parse_spec, recurring=True, clock=self._clock)
        made = len(self._api.list()) - before
        assert made <= int(had_new)

    @rule()
    def a_scheduler_dies_while_it_ticks(self) -> None:
        def die(_: Schedule) -> Decision:
            raise KeyboardInterrupt

        before = self._api.list()
        with suppress(KeyboardInterrupt):
            run_due_ticks(self._database, die, parse_spec, recurring=True, clock=self._clock)
        assert self._api.list() == before

    @rule()
    @precondition(lambda self: self._lease is None)
    def start(self) -> None:
        with self._database.write() as session:
            self._lease = job_queue.lease_next_job(session, owner="one", now=self._clock.now, until=self._clock.now)
        if self._lease is not None:
            self._datasets.setdefault(self._lease.job_id, self._new())

    @rule(outcome=st.sampled_from(["succeed", "fail", "kill", "away", "release"]))
    @precondition(lambda self: self._lease is not None)
    def end(self, outcome: str) -> None:
        lease, now = self._lease, self._clock.now
        assert lease is not None
        self._lease = None
        with self._database.write() as session:
            match outcome:
                case "succeed":
                    self._register(session, lease.job_id)
                    job_outcomes.mark_succeeded(session, lease, now=now)
                case "fail":
                    job_outcomes.mark_failed(session, lease, now=now, error="wrong")
                case "kill":
                    job_outcomes.requeue_interrupted(session, lease, now=now, error="killed", max_attempts=3)
                case "away":
                    job_outcomes.requeue_transient(session, lease, now=now, error="away")
                case _:
                    job_outcomes.requeue_released(session, lease, now=now)

    def _register(self, session: Session, job_id: str) -> None:
        number = len(Registry(self._data_dir).list()) + 1
        version = ModelVersionRow(
            name="tiny", number=number, job_id=job_id, created_at=self._clock.now, weights_sha256="", size_bytes=0
        )
        session.add(version)
        session.get_one(JobRow, job_id).model_version = f"tiny@v{number}"
        self._trained += self._datasets[job_id]

    @rule(data=st.data())
    def retry(self, data: Any) -> None:
        ended = [job.id for job in self._api.list() if job.state is JobState.FAILED]
        if not ended:
            return
        # another job of the schedule may have its episodes
        with suppress(JobError):
            self._api.retry(data.draw(st.sampled_from(ended)))

    @rule()
    def pause(self) -> None:
        self._api.pause(self._schedule.id)

    @rule()
    def resume(self) -> None:
        self._api.resume(self._schedule.id)

    @invariant()
    def no_episode_is_trained_on_twice(self) -> None:
        assert len(self._trained) == len(set(self._trained))

    @invariant()
    def at_most_one_job_is_open(self) -> None:
        assert sum(job.state not in FINAL_STATES for job in self._api.list()) <= 1

    @invariant()
    def no_job_is_without_data(self) -> None:
        assert all(self._datasets.values())


@pytest.mark.usefixtures("data_dir")
def test_any_order_of_ticks_arrivals_and_kills_trains_on_nothing_twice() -> None:
    run_state_machine_as_test(
        ScheduleLife,
        settings=settings(
            max_examples=10, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
        ),
    )
