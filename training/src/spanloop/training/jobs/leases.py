"""Leases: the right to run a job, and the fencing token that every write of its runner carries.

Invariant: a job's token grows with every new holder. A write is applied only if it carries the job's current token
while the job is leased; a stale runner gets ``JobLeaseLostError`` and must stop.
"""

from datetime import datetime
from typing import Any, Final, NamedTuple, cast

from sqlalchemy import ColumnElement, CursorResult, and_, select, update
from sqlalchemy.orm import Session

from spanloop.foundation.errors import JobError
from spanloop.training.jobs.database.tables import JobRow
from spanloop.training.jobs.state_machine import LEASED_STATES, transition
from spanloop.training.jobs.states import JobState

_LEASES_A_SECOND_BITS: Final = 20


class JobLeaseLostError(JobError):
    """Raised when another runner holds the job, or the job no longer runs; nothing was written."""


class JobLease(NamedTuple):
    """The right to run one job."""

    job_id: str
    token: int


def first_token(now: datetime) -> int:
    """Return a fencing token that is newer than all that were given before ``now``, also by a database that is lost.

    A job's token grows by one with each lease, so it never reaches the token of a later second by itself.
    """
    return int(now.timestamp()) << _LEASES_A_SECOND_BITS


class OtherLease(NamedTuple):
    """A stored lease of another scheduler, which may have ended."""

    job_id: str
    token: int
    owner: str
    runner: str
    until: datetime | None


def list_other_leases(session: Session, *, mine: frozenset[JobLease]) -> list[OtherLease]:
    """Return all leases except ``mine``; the caller decides which of them are abandoned."""
    leased = select(JobRow).where(JobRow.state.in_([str(state) for state in LEASED_STATES]))
    rows = session.scalars(leased.order_by(JobRow.created_at)).all()
    return [
        OtherLease(row.job_id, row.lease_token, row.lease_owner, row.runner, row.lease_until)
        for row in rows
        if JobLease(row.job_id, row.lease_token) not in mine
    ]


def take_over(session: Session, abandoned: OtherLease, *, owner: str, until: datetime) -> JobLease | None:
    """Take over an abandoned lease, which fences off its runner; return None if another scheduler was faster.

    The row keeps the old runner, so that it is still known after a crash before the runner is ended.
    """
    token = abandoned.token + 1
    values = {"lease_token": token, "lease_owner": owner, "lease_until": until}
    is_taken = _update_leased(session, JobLease(abandoned.job_id, abandoned.token), values)
    return JobLease(abandoned.job_id, token) if is_taken else None


def record_runner(session: Session, lease: JobLease, runner: str) -> None:
    """Store the leader of the process group that runs the job.

    Raises:
        JobLeaseLostError: Another runner holds the lease.
    """
    _require(_update_leased(session, lease, {"runner": runner}), lease)


def renew(session: Session, lease: JobLease, *, until: datetime) -> JobState:
    """Renew the lease (heartbeat) and return the job's state, which shows a cancellation request.

    Raises:
        JobLeaseLostError: Another runner holds the lease.
    """
    _require(_update_leased(session, lease, {"lease_until": until}), lease)
    return state_of(session, lease)


def state_of(session: Session, lease: JobLease) -> JobState:
    """Return the state of a job whose lease is valid: running, evaluating or cancelling.

    Raises:
        JobLeaseLostError: Another runner holds the lease.
    """
    state = session.scalars(select(JobRow.state).where(_is_valid(lease))).first()
    if state is None:
        raise _lost(lease)
    return JobState(state)


def begin_evaluation(session: Session, lease: JobLease) -> None:
    """Record that the job has trained and is evaluated now; a cancellation request stays one.

    Raises:
        JobLeaseLostError: Another runner holds the lease.
    """
    if not transition(session, lease.job_id, {JobState.RUNNING}, JobState.EVALUATING, token=lease.token):
        state_of(session, lease)


def record_progress(session: Session, lease: JobLease, *, step: int, total: int) -> None:
    """Store how many of ``total`` optimiser steps are completed; what failed before and passed is forgotten.

    Raises:
        JobLeaseLostError: Another runner holds the lease.
    """
    _require(_update_leased(session, lease, {"step": step, "steps_total": total, "retries": 0}), lease)


def _is_valid(lease: JobLease) -> ColumnElement[bool]:
    return and_(
        JobRow.job_id == lease.job_id,
        JobRow.lease_token == lease.token,
        JobRow.state.in_([str(state) for state in LEASED_STATES]),
    )


def _update_leased(session: Session, lease: JobLease, values: dict[str, Any]) -> bool:
    statement = update(JobRow).where(_is_valid(lease)).values(**values)
    return cast("CursorResult[Any]", session.execute(statement)).rowcount == 1


def _require(is_valid: bool, lease: JobLease) -> None:  # noqa: FBT001
    if not is_valid:
        raise _lost(lease)


def _lost(lease: JobLease) -> JobLeaseLostError:
    return JobLeaseLostError(
        f"Job {lease.job_id}: the lease with token {lease.token} is lost: another runner has the job, or it has ended.",
        next_step="Stop this process; its writes are rejected.",
    )
