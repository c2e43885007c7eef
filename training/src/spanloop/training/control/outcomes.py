"""How an attempt ends, written by whoever holds the lease.

The invariant: each outcome settles the job and gives the lease back in one statement, under the fencing token. A wish
to cancel that came in meanwhile wins over every outcome.
"""

from datetime import datetime

from sqlalchemy.orm import Session

from spanloop.semconv.enums import JobState
from spanloop.semconv.errors import DataDirectoryError
from spanloop.training.control.job_rows import find_job
from spanloop.training.control.leases import Lease, LeaseLostError
from spanloop.training.control.records import spec_of
from spanloop.training.control.states import FINAL_STATES, move


def succeed(session: Session, lease: Lease, *, now: datetime) -> JobState:
    """The runner ended well.

    Raises:
        LeaseLostError: The lease is another's by now.
    """
    return _settle(session, lease, JobState.SUCCEEDED, now=now, error="")


def fail(session: Session, lease: Lease, *, now: datetime, error: str) -> JobState:
    """The runner ended by itself with an error: the same would happen again.

    Raises:
        LeaseLostError: The lease is another's by now.
    """
    return _settle(session, lease, JobState.FAILED, now=now, error=error)


def release(session: Session, lease: Lease, *, now: datetime) -> JobState:
    """The scheduler stops: the job is queued again, and this attempt is not held against it.

    Raises:
        LeaseLostError: The lease is another's by now.
    """
    return _settle(session, lease, JobState.QUEUED, now=now, error="")


def interrupted(session: Session, lease: Lease, *, now: datetime, error: str) -> JobState:
    """The runner or its scheduler was killed: queued again, or failed when that has happened too often.

    Raises:
        LeaseLostError: The lease is another's by now.
    """
    row = find_job(session, lease.job_id)
    count = row.interruptions + 1
    try:
        allowed = spec_of(row).max_attempts
    except DataDirectoryError as unreadable:
        # Starting it again would fail for this reason.
        return _settle(session, lease, JobState.FAILED, now=now, error=f"{error}\n{unreadable}", interruptions=count)
    if count < allowed:
        return _settle(session, lease, JobState.QUEUED, now=now, error=error, interruptions=count)
    error = f"{error}\nIt was started {count} times, which is all that max_attempts allows."
    return _settle(session, lease, JobState.FAILED, now=now, error=error, interruptions=count)


def _settle(
    session: Session,
    lease: Lease,
    target: JobState,
    *,
    now: datetime,
    error: str,
    interruptions: int | None = None,
) -> JobState:
    values: dict[str, object] = {"lease_owner": "", "lease_until": None, "runner": ""}
    ended: dict[str, object] = {"error": error, "finished_at": now if target in FINAL_STATES else None}
    if target is JobState.QUEUED:
        ended["started_at"] = None
    counted = {} if interruptions is None else {"interruptions": interruptions}
    if move(session, lease.job_id, {JobState.RUNNING}, target, token=lease.token, values=values | ended | counted):
        return target
    cancelled = values | {"finished_at": now}
    if move(session, lease.job_id, {JobState.CANCELLING}, JobState.CANCELLED, token=lease.token, values=cancelled):
        return JobState.CANCELLED
    raise LeaseLostError(
        f"Job {lease.job_id}: the lease with token {lease.token} is lost; its outcome was not written."
    )
