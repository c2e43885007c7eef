"""Outcomes of a job's attempt, written by the holder of its lease.

Invariant: each outcome sets the job's next state and releases the lease in one statement, under the fencing token. A
cancellation request that arrived meanwhile overrides every outcome.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final

from sqlalchemy.orm import Session

from spanloop.training.jobs.job_queue import find_job
from spanloop.training.jobs.leases import JobLease, JobLeaseLostError
from spanloop.training.jobs.state_machine import ACTIVE_STATES, FINAL_STATES, transition
from spanloop.training.jobs.states import JobState

TRANSIENT_RETRIES: Final = 10
"""With the pauses below, a service may be away for three hours."""
FIRST_PAUSE: Final = timedelta(seconds=30)
LONGEST_PAUSE: Final = timedelta(minutes=30)


def mark_succeeded(session: Session, lease: JobLease, *, now: datetime) -> JobState:
    """Record that the runner succeeded.

    Raises:
        JobLeaseLostError: Another runner holds the lease.
    """
    return _record(session, lease, JobState.SUCCEEDED, now=now, error="")


def mark_failed(session: Session, lease: JobLease, *, now: datetime, error: str) -> JobState:
    """Record that the runner exited with an error; the job is not restarted, because the error would recur.

    Raises:
        JobLeaseLostError: Another runner holds the lease.
    """
    return _record(session, lease, JobState.FAILED, now=now, error=error)


def requeue_transient(session: Session, lease: JobLease, *, now: datetime, error: str) -> JobState:
    """Requeue the job because a service was away or the disk was full; it starts again after a growing pause.

    These attempts do not count towards ``max_attempts``; the job fails after ``TRANSIENT_RETRIES`` of them in a row.

    Raises:
        JobLeaseLostError: Another runner holds the lease.
    """
    retries = find_job(session, lease.job_id).retries + 1
    if retries > TRANSIENT_RETRIES:
        error = f"{error}\nIt was tried again {TRANSIENT_RETRIES} times. When the cause is gone: jobs retry."
        return _record(session, lease, JobState.FAILED, now=now, error=error, columns={"retries": retries})
    pause = min(FIRST_PAUSE * 2 ** (retries - 1), LONGEST_PAUSE)
    error = (
        f"It is tried again at {now + pause:%Y-%m-%d %H:%M:%S} UTC ({retries} of {TRANSIENT_RETRIES} times), because "
        f"the cause passes. {error}"
    )
    columns = {"retries": retries, "retry_at": now + pause}
    return _record(session, lease, JobState.QUEUED, now=now, error=error, columns=columns)


def requeue_released(session: Session, lease: JobLease, *, now: datetime) -> JobState:
    """Requeue the job because the scheduler stops; this attempt does not count towards ``max_attempts``.

    Raises:
        JobLeaseLostError: Another runner holds the lease.
    """
    return _record(session, lease, JobState.QUEUED, now=now, error="")


def requeue_interrupted(session: Session, lease: JobLease, *, now: datetime, error: str, max_attempts: int) -> JobState:
    """Requeue the job after its runner or scheduler was killed; it fails after ``max_attempts`` interruptions.

    Raises:
        JobLeaseLostError: Another runner holds the lease.
    """
    count = find_job(session, lease.job_id).interruptions + 1
    counted = {"interruptions": count}
    if count < max_attempts:
        return _record(session, lease, JobState.QUEUED, now=now, error=error, columns=counted)
    error = f"{error}\nIt was started {count} times, the maximum that max_attempts allows."
    return _record(session, lease, JobState.FAILED, now=now, error=error, columns=counted)


def _record(
    session: Session,
    lease: JobLease,
    target: JobState,
    *,
    now: datetime,
    error: str,
    columns: Mapping[str, object] = MappingProxyType({}),
) -> JobState:
    row = find_job(session, lease.job_id)
    ran = now - (row.started_at or now)
    values: dict[str, object] = {
        "lease_owner": "",
        "lease_until": None,
        "runner": "",
        "retry_at": None,
        "ran_s": row.ran_s + max(0, round(ran.total_seconds())),
    }
    ended: dict[str, object] = {"error": error, "finished_at": now if target in FINAL_STATES else None}
    if target is JobState.QUEUED:
        ended["started_at"] = None
    written = values | ended | dict(columns)
    if transition(session, lease.job_id, ACTIVE_STATES, target, token=lease.token, values=written):
        return target
    cancelled = values | {"finished_at": now}
    if transition(
        session, lease.job_id, {JobState.CANCELLING}, JobState.CANCELLED, token=lease.token, values=cancelled
    ):
        return JobState.CANCELLED
    raise JobLeaseLostError(
        f"Job {lease.job_id}: the lease with token {lease.token} is lost; its outcome was not written."
    )
