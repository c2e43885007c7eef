"""Leases: who may run a job, and the fencing token that every write of a runner must carry.

The invariant: a job's token only grows, and grows with every change of hands. A write is applied only when it carries
the job's present token while the job is leased; a stale runner gets ``LeaseLostError`` and must stop.
"""

from datetime import datetime
from typing import Any, NamedTuple, cast

from sqlalchemy import ColumnElement, CursorResult, and_, select, update
from sqlalchemy.orm import Session

from spanloop.semconv.enums import JobState
from spanloop.semconv.errors import JobError
from spanloop.training.control.states import LEASED_STATES, move
from spanloop.training.control.tables import JobRow


class LeaseLostError(JobError):
    """The job was given to another runner, or is no longer running: nothing was written."""


class Lease(NamedTuple):
    """The right to run one job."""

    job_id: str
    token: int


class AbandonedLease(NamedTuple):
    """A lease that somebody else holds, or held."""

    job_id: str
    token: int
    owner: str
    runner: str
    until: datetime | None


def any_queued(session: Session) -> bool:
    """Whether ``take_next`` has something to take; needs no writer's lock."""
    queued = select(JobRow.job_id).where(JobRow.state == str(JobState.QUEUED))
    return session.scalars(queued.limit(1)).first() is not None


def take_next(session: Session, *, owner: str, now: datetime, until: datetime) -> Lease | None:
    """Lease the oldest queued job; None when there is none."""
    queued = select(JobRow).where(JobRow.state == str(JobState.QUEUED)).order_by(JobRow.created_at, JobRow.job_id)
    for row in session.scalars(queued.limit(8)).all():
        values = {
            "attempt": row.attempt + 1,
            "lease_token": row.lease_token + 1,
            "lease_owner": owner,
            "lease_until": until,
            "runner": "",
            "started_at": now,
        }
        if move(session, row.job_id, {JobState.QUEUED}, JobState.RUNNING, token=row.lease_token, values=values):
            return Lease(row.job_id, row.lease_token)
    return None


def leased_by_others(session: Session, *, mine: frozenset[Lease]) -> list[AbandonedLease]:
    """All leases but ``mine``; whether they are abandoned is for the caller to say."""
    leased = select(JobRow).where(JobRow.state.in_([str(state) for state in LEASED_STATES]))
    rows = session.scalars(leased.order_by(JobRow.created_at)).all()
    return [
        AbandonedLease(row.job_id, row.lease_token, row.lease_owner, row.runner, row.lease_until)
        for row in rows
        if Lease(row.job_id, row.lease_token) not in mine
    ]


def take_over(session: Session, abandoned: AbandonedLease, *, owner: str, until: datetime) -> Lease | None:
    """Take an abandoned lease, which fences its runner off at once; None when another scheduler was faster.

    The row keeps naming the old runner, so that a crash before it is ended forgets nothing.
    """
    token = abandoned.token + 1
    values = {"lease_token": token, "lease_owner": owner, "lease_until": until}
    taken = _update_leased(session, Lease(abandoned.job_id, abandoned.token), values)
    return Lease(abandoned.job_id, token) if taken else None


def record_runner(session: Session, lease: Lease, runner: str) -> None:
    """Note the process group that runs the job.

    Raises:
        LeaseLostError: The lease is another's by now.
    """
    _require(_update_leased(session, lease, {"runner": runner}), lease)


def renew(session: Session, lease: Lease, *, until: datetime) -> JobState:
    """Heartbeat; the job's state, so that the caller sees a wish to cancel.

    Raises:
        LeaseLostError: The lease is another's by now.
    """
    _require(_update_leased(session, lease, {"lease_until": until}), lease)
    return state_of(session, lease)


def state_of(session: Session, lease: Lease) -> JobState:
    """The job's state under a lease that still stands: running or cancelling.

    Raises:
        LeaseLostError: The lease is another's by now.
    """
    state = session.scalars(select(JobRow.state).where(_held(lease))).first()
    if state is None:
        raise _lost(lease)
    return JobState(state)


def record_progress(session: Session, lease: Lease, *, step: int, total: int) -> None:
    """Note how many optimiser steps are done, of how many.

    Raises:
        LeaseLostError: The lease is another's by now.
    """
    _require(_update_leased(session, lease, {"step": step, "steps_total": total}), lease)


def _held(lease: Lease) -> ColumnElement[bool]:
    return and_(
        JobRow.job_id == lease.job_id,
        JobRow.lease_token == lease.token,
        JobRow.state.in_([str(state) for state in LEASED_STATES]),
    )


def _update_leased(session: Session, lease: Lease, values: dict[str, Any]) -> bool:
    statement = update(JobRow).where(_held(lease)).values(**values)
    return cast("CursorResult[Any]", session.execute(statement)).rowcount == 1


def _require(held: bool, lease: Lease) -> None:  # noqa: FBT001
    if not held:
        raise _lost(lease)


def _lost(lease: Lease) -> LeaseLostError:
    return LeaseLostError(
        f"Job {lease.job_id}: the lease with token {lease.token} is lost: another runner has the job, or it has ended.",
        next_step="Stop this process; nothing that it writes counts any more.",
    )
