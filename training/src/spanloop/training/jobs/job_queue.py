"""The job queue: insert, find, cancel and requeue jobs, and lease the next job.

The next job is the oldest queued one that has a slot (`lease_next_job`).
"""

import secrets
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from sqlalchemy import Select, and_, case, func, or_, select
from sqlalchemy.orm import Session

from spanloop.foundation.errors import JobError
from spanloop.training.jobs.database.tables import JobRow
from spanloop.training.jobs.leases import JobLease, first_token
from spanloop.training.jobs.queued_spec import QueuedSpec
from spanloop.training.jobs.state_machine import ACTIVE_STATES, FINAL_STATES, transition
from spanloop.training.jobs.states import JobState

Accepts = Callable[[JobRow], bool]
"""Whether there is a slot for a job."""


def any_job(_row: JobRow) -> bool:
    """Accept every job."""
    return True


def insert_job(
    session: Session,
    spec: QueuedSpec,
    *,
    now: datetime,
    schedule_id: str | None = None,
    fired_for: datetime | None = None,
) -> JobRow:
    """Insert a queued job; the database rejects a second one for the same firing of a schedule."""
    row = JobRow(
        job_id=new_id(spec.kind, now),
        spec=spec.model_dump_json(),
        state=str(JobState.QUEUED),
        attempt=0,
        interruptions=0,
        created_at=_after_the_last_one(session, now),
        step=0,
        steps_total=0,
        error="",
        model_version="",
        lease_token=0,
        lease_owner="",
        runner="",
        schedule_id=schedule_id,
        fired_for=fired_for,
    )
    session.add(row)
    session.flush()
    return row


def _after_the_last_one(session: Session, now: datetime) -> datetime:
    """Return ``now``, or the next microsecond if a job has that time: SQLite's clock counts milliseconds."""
    until = now + timedelta(milliseconds=1)
    last = session.scalar(select(func.max(JobRow.created_at)).where(JobRow.created_at < until))
    return now if last is None else max(now, last + timedelta(microseconds=1))


def new_id(prefix: str, now: datetime) -> str:
    """Return a unique id that sorts by time."""
    return f"{prefix}-{now:%Y%m%d-%H%M%S}-{secrets.token_hex(4)}"


def find_job(session: Session, job_id: str) -> JobRow:
    """Return the row of ``job_id``.

    Raises:
        JobError: There is no such job.
    """
    row = session.get(JobRow, job_id, populate_existing=True)
    if row is None:
        raise JobError(f"There is no job {job_id!r}.", next_step="See them: spanloop jobs list")
    return row


class Kinds(NamedTuple):
    """Kinds of jobs, with which their ids begin; without either, every kind."""

    only: str = ""
    without: str = ""


EVERY_KIND: Final = Kinds()


def list_jobs(session: Session, *, limit: int, kinds: Kinds = EVERY_KIND) -> Sequence[JobRow]:
    """Return jobs, newest first."""
    rows = select(JobRow).order_by(JobRow.created_at.desc(), JobRow.job_id.desc())
    if kinds.only:
        rows = rows.where(JobRow.job_id.startswith(f"{kinds.only}-", autoescape=True))
    if kinds.without:
        rows = rows.where(~JobRow.job_id.startswith(f"{kinds.without}-", autoescape=True))
    return session.scalars(rows.limit(limit)).all()


def request_cancel(session: Session, job_id: str, *, now: datetime) -> None:
    """Cancel a queued job; request that the scheduler ends a running one. A finished job does not change."""
    if not transition(session, job_id, {JobState.QUEUED}, JobState.CANCELLED, values={"finished_at": now}):
        transition(session, job_id, ACTIVE_STATES, JobState.CANCELLING)


def requeue_finished(session: Session, job_id: str, *, now: datetime) -> bool:
    """Requeue a failed or cancelled job with its attempts reset; return False if it is neither.

    Its fencing token is newer than those that its files may have from before a restore of the control database.
    """
    token = first_token(now)
    values = {
        "lease_token": case((JobRow.lease_token < token, token), else_=JobRow.lease_token),
        "started_at": None,
        "finished_at": None,
        "interruptions": 0,
        "retries": 0,
        "retry_at": None,
        "ran_s": 0,
        "error": "",
        "runner": "",
        "lease_owner": "",
    }
    return transition(session, job_id, {JobState.FAILED, JobState.CANCELLED}, JobState.QUEUED, values=values)


def jobs_of_schedule(schedule_id: str) -> Select[str]:
    """Return the statement for the ids of the jobs that a schedule submitted."""
    return select(JobRow.job_id).where(JobRow.schedule_id == schedule_id)


def successor_of(session: Session, row: JobRow) -> str:
    """Return the job of the same schedule that is open, or came later and made a version; empty if there is none."""
    if row.schedule_id is None:
        return ""
    of_schedule = jobs_of_schedule(row.schedule_id).where(JobRow.job_id != row.job_id)
    open_states = [str(state) for state in JobState if state not in FINAL_STATES]
    is_later = and_(JobRow.fired_for > row.fired_for, JobRow.model_version != "")
    found = of_schedule.where(or_(JobRow.state.in_(open_states), is_later)).order_by(JobRow.created_at.desc())
    return session.scalars(found.limit(1)).first() or ""


def startable_jobs(session: Session, *, now: datetime, accepts: Accepts = any_job) -> Iterator[JobRow]:
    """Yield the queued jobs that may start now, the oldest first; does not take the write lock."""
    is_due = or_(JobRow.retry_at.is_(None), JobRow.retry_at <= now)
    queued = select(JobRow).where(JobRow.state == str(JobState.QUEUED), is_due)
    return filter(accepts, session.scalars(queued.order_by(JobRow.created_at, JobRow.job_id)))


def lease_next_job(
    session: Session, *, owner: str, now: datetime, until: datetime, accepts: Accepts = any_job
) -> JobLease | None:
    """Decide which job runs next: lease the oldest queued job that has a slot; return None if none can start now."""
    rows = startable_jobs(session, now=now, accepts=accepts)
    leased = (lease_job(session, row, owner=owner, now=now, until=until) for row in rows)
    return next((lease for lease in leased if lease is not None), None)


def lease_job(session: Session, row: JobRow, *, owner: str, now: datetime, until: datetime) -> JobLease | None:
    """Lease the queued job of ``row``; return None if it is not queued any more."""
    token = row.lease_token + 1
    values = {
        "attempt": row.attempt + 1,
        "lease_token": token,
        "lease_owner": owner,
        "lease_until": until,
        "runner": "",
        "started_at": now,
    }
    is_leased = transition(
        session, row.job_id, {JobState.QUEUED}, JobState.RUNNING, token=row.lease_token, values=values
    )
    return JobLease(row.job_id, token) if is_leased else None
