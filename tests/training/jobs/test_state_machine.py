"""Test the job state machine exhaustively and against a model."""

from collections.abc import Generator
from contextlib import contextmanager
from datetime import timedelta
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy.orm import Session

from spanloop.foundation.errors import JobError
from spanloop.training.jobs import job_outcomes, job_queue, leases
from spanloop.training.jobs.database.control_database import ControlDatabase
from spanloop.training.jobs.entities import job_from_row
from spanloop.training.jobs.leases import JobLease, JobLeaseLostError, OtherLease
from spanloop.training.jobs.paths import ControlPaths
from spanloop.training.jobs.state_machine import FINAL_STATES, LEASED_STATES, LEGAL_TRANSITIONS, transition
from spanloop.training.run.job_api import JobSpec, JobState
from spanloop.training.spec.stored_spec import parse_spec

from .support import FakeClock, delete_all_rows

MAX_ATTEMPTS = 2
SPEC = JobSpec.of(kind="sft", base="tiny@v1", max_attempts=MAX_ATTEMPTS)


@pytest.mark.parametrize("origin", list(JobState))
def test_every_move_is_legal_or_refused(database: ControlDatabase, clock: FakeClock, origin: JobState) -> None:
    for target in JobState:
        with database.write() as session:
            row = job_queue.insert_job(session, SPEC, now=clock.now)
            row.state = str(origin)
            session.flush()
            if target in LEGAL_TRANSITIONS[origin]:
                assert transition(session, row.job_id, {origin}, target)
            else:
                with pytest.raises(ValueError, match="illegal transition"):
                    transition(session, row.job_id, {origin}, target)
            expected = target if target in LEGAL_TRANSITIONS[origin] else origin
            assert job_queue.find_job(session, row.job_id).state == expected, target


@pytest.mark.parametrize("origin", list(JobState))
def test_a_move_from_another_state_changes_nothing(
    database: ControlDatabase, clock: FakeClock, origin: JobState
) -> None:
    for actual, target in product(JobState, LEGAL_TRANSITIONS[origin]):
        with database.write() as session:
            row = job_queue.insert_job(session, SPEC, now=clock.now)
            row.state = str(actual)
            session.flush()
            moved = transition(session, row.job_id, {origin}, target, values={"error": "moved"})
            assert moved is (origin is actual), (actual, target)
            assert job_queue.find_job(session, row.job_id).error == ("moved" if moved else "")


def test_every_state_is_reachable_and_every_state_can_end() -> None:
    reachable = {JobState.QUEUED}
    while more := {target for state in reachable for target in LEGAL_TRANSITIONS[state]} - reachable:
        reachable |= more
    assert reachable == set(JobState)
    assert {state for state in JobState if not LEGAL_TRANSITIONS[state] & FINAL_STATES} <= FINAL_STATES
    assert not LEGAL_TRANSITIONS[JobState.SUCCEEDED]


class JobLife(RuleBasedStateMachine):
    """Any order of what people, schedulers and stale runners may do, against a model of one job."""

    present = Bundle("present")
    known = Bundle("known")
    """Every lease there ever was."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = TemporaryDirectory()
        self._clock = FakeClock()
        self._database = ControlDatabase(ControlPaths.of(Path(self._folder.name)))
        with self._write() as session:
            self._id = job_queue.insert_job(session, SPEC, now=self._clock.now).job_id
        self._state = JobState.QUEUED
        self._token = 0
        self._attempt = 0
        self._interruptions = 0
        self._version = ""

    def teardown(self) -> None:
        delete_all_rows(self._database)
        self._folder.cleanup()

    @contextmanager
    def _write(self) -> Generator[Session]:
        with self._database.write() as session:
            yield session

    @rule(targets=(present, known))
    @precondition(lambda self: self._state is JobState.QUEUED)
    def take(self) -> JobLease:
        with self._write() as session:
            until = self._clock.now + timedelta(seconds=30)
            lease = job_queue.lease_next_job(session, owner="one", now=self._clock.now, until=until)
        assert lease is not None
        assert lease.token > self._token
        self._state, self._token, self._attempt = JobState.RUNNING, lease.token, self._attempt + 1
        return lease

    @rule()
    @precondition(lambda self: self._state is not JobState.QUEUED)
    def nobody_takes_what_is_not_queued(self) -> None:
        with self._write() as session:
            assert job_queue.lease_next_job(session, owner="two", now=self._clock.now, until=self._clock.now) is None

    @rule()
    def cancel(self) -> None:
        with self._write() as session:
            job_queue.request_cancel(session, self._id, now=self._clock.now)
        self._state = {
            JobState.QUEUED: JobState.CANCELLED,
            JobState.RUNNING: JobState.CANCELLING,
            JobState.EVALUATING: JobState.CANCELLING,
        }.get(self._state, self._state)

    @rule(lease=known)
    def evaluate(self, lease: JobLease) -> None:
        if lease.token != self._token or self._state not in LEASED_STATES:
            self._refused(lease, "evaluate")
            return
        with self._write() as session:
            leases.begin_evaluation(session, lease)
        self._state = JobState.EVALUATING if self._state is JobState.RUNNING else self._state

    @rule()
    def retry(self) -> None:
        with self._write() as session:
            was_requeued = job_queue.requeue_finished(session, self._id, now=self._clock.now)
        assert was_requeued is (self._state in {JobState.FAILED, JobState.CANCELLED})
        if was_requeued:
            self._state, self._interruptions = JobState.QUEUED, 0
            self._token = max(self._token, leases.first_token(self._clock.now))

    @rule(lease=consumes(present), kind=st.sampled_from(["succeed", "fail", "release", "interrupted"]))
    def settle(self, lease: JobLease, kind: str) -> None:
        if lease.token != self._token:
            self._refused(lease, kind)
            return
        with self._write() as session:
            state = _settle(session, lease, kind, self._clock)
        if self._state is JobState.CANCELLING:
            self._state = JobState.CANCELLED
        elif kind == "interrupted":
            self._interruptions += 1
            self._state = JobState.FAILED if self._interruptions >= MAX_ATTEMPTS else JobState.QUEUED
        else:
            after = {"succeed": JobState.SUCCEEDED, "fail": JobState.FAILED, "release": JobState.QUEUED}
            self._state = after[kind]
        assert state is self._state

    @rule(targets=(present, known), lease=consumes(present))
    @precondition(lambda self: self._state in LEASED_STATES)
    def take_over(self, lease: JobLease) -> JobLease:
        if lease.token != self._token:
            return lease
        with self._write() as session:
            abandoned = OtherLease(lease.job_id, lease.token, "one", "", None)
            taken = leases.take_over(session, abandoned, owner="two", until=self._clock.now)
            assert leases.take_over(session, abandoned, owner="three", until=self._clock.now) is None
        assert taken is not None
        assert taken.token > self._token
        self._token = taken.token
        return taken

    @rule(
        lease=known, kind=st.sampled_from(["succeed", "fail", "release", "interrupted", "runner", "evaluate", "renew"])
    )
    def a_stale_lease_writes_nothing(self, lease: JobLease, kind: str) -> None:
        if lease.token != self._token or self._state not in LEASED_STATES:
            self._refused(lease, kind)

    def _refused(self, lease: JobLease, kind: str) -> None:
        with pytest.raises(JobLeaseLostError), self._write() as session:
            _settle(session, lease, kind, self._clock)

    @invariant()
    def the_row_is_what_the_model_says(self) -> None:
        with self._database.read() as session:
            row = job_queue.find_job(session, self._id)
            job = job_from_row(row, parse_spec)
        assert (job.state, job.attempt, row.lease_token) == (self._state, self._attempt, self._token)
        assert row.interruptions == self._interruptions
        assert (job.finished_at is not None) is job.is_finished
        assert (row.lease_owner != "") is (self._state in LEASED_STATES)


def _settle(session: Session, lease: JobLease, kind: str, clock: FakeClock) -> JobState | None:
    match kind:
        case "succeed":
            return job_outcomes.mark_succeeded(session, lease, now=clock.now)
        case "fail":
            return job_outcomes.mark_failed(session, lease, now=clock.now, error="wrong")
        case "release":
            return job_outcomes.requeue_released(session, lease, now=clock.now)
        case "interrupted":
            return job_outcomes.requeue_interrupted(
                session, lease, now=clock.now, error="killed", max_attempts=MAX_ATTEMPTS
            )
        case "evaluate":
            leases.begin_evaluation(session, lease)
        case "runner":
            leases.record_runner(session, lease, "machine:1:1")
        case _:
            leases.renew(session, lease, until=clock.now)
    return None


@pytest.mark.usefixtures("data_dir")
def test_a_job_follows_its_model_whatever_happens_in_whatever_order() -> None:
    run_state_machine_as_test(
        JobLife,
        settings=settings(
            max_examples=15, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
        ),
    )


def test_a_job_that_is_gone_is_an_error(database: ControlDatabase) -> None:
    with database.read() as session, pytest.raises(JobError):
        job_queue.find_job(session, "nothing")


def test_only_one_of_many_takes_a_job(database: ControlDatabase, clock: FakeClock) -> None:
    with database.write() as session:
        for _ in range(3):
            job_queue.insert_job(session, SPEC, now=clock.now)
            clock.forward(seconds=1)
    taken: list[JobLease] = []
    for owner in range(5):
        with database.write() as session:
            lease = job_queue.lease_next_job(session, owner=str(owner), now=clock.now, until=clock.now)
        taken += [lease] if lease else []
    assert len({lease.job_id for lease in taken}) == len(taken) == 3
