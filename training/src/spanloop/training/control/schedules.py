"""Schedules: cron expressions or single times, always UTC, that submit jobs when they are due.

Invariant: a firing advances ``next_at`` and inserts its job in one transaction, on the condition that ``next_at`` is
still the due firing. So each firing submits exactly one job, whatever other schedulers do, and a crash in between
neither loses nor duplicates it. One job makes up for all firings that were missed while no scheduler ran.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final, cast

from croniter import CroniterError, croniter
from sqlalchemy import CursorResult, delete, select, update
from sqlalchemy.orm import Session

from spanloop.semconv.errors import ConfigurationError, JobError
from spanloop.training.control.entities import parse_spec, skip_unreadable
from spanloop.training.control.job_queue import insert_job, new_id
from spanloop.training.control.tables import ScheduleRow
from spanloop.training.job_spec import JobSpec

CRON_FIELDS: Final = 5


def check_cron(cron: str) -> str:
    """Return ``cron`` with single spaces between its fields.

    Raises:
        ConfigurationError: It is not a valid cron expression of five fields.
    """
    fields = cron.split()
    normalised = " ".join(fields)
    if len(fields) != CRON_FIELDS or not croniter.is_valid(normalised):
        raise ConfigurationError(
            f"{cron!r} is not a cron expression of five fields (minute hour day month weekday, in UTC).",
            next_step="Try '0 3 * * *' for every night at three.",
        )
    return normalised


def next_firing(cron: str, after: datetime) -> datetime:
    """Return the first firing of ``cron`` strictly after ``after``, in UTC.

    Raises:
        ConfigurationError: The expression never fires, such as the 30th of February.
    """
    try:
        firing: datetime = croniter(cron, after.astimezone(UTC), ret_type=datetime).get_next()
    except CroniterError as error:
        raise ConfigurationError(
            f"The cron expression {cron!r} never fires: {error}.", next_step="Choose a day that exists."
        ) from error
    return firing.astimezone(UTC)


def check_instant(at: datetime) -> datetime:
    """Return ``at`` in UTC.

    Raises:
        ConfigurationError: It has no time zone.
    """
    if at.tzinfo is None:
        raise ConfigurationError(
            f"The time {at.isoformat()} has no time zone.", next_step=f"Write {at.isoformat()}+00:00 for UTC."
        )
    return at.astimezone(UTC)


def insert_schedule(session: Session, spec: JobSpec, *, cron: str, next_at: datetime, now: datetime) -> ScheduleRow:
    """Insert a schedule whose first firing is ``next_at``."""
    row = ScheduleRow(
        schedule_id=new_id("schedule", now),
        spec=spec.model_dump_json(),
        cron=cron,
        created_at=now,
        next_at=next_at,
        last_job_id="",
    )
    session.add(row)
    session.flush()
    return row


def list_schedules(session: Session) -> Sequence[ScheduleRow]:
    """Return all schedules, oldest first."""
    return session.scalars(select(ScheduleRow).order_by(ScheduleRow.created_at, ScheduleRow.schedule_id)).all()


def delete_schedule(session: Session, schedule_id: str) -> None:
    """Delete a schedule; the jobs that it submitted stay.

    Raises:
        JobError: There is no such schedule.
    """
    result = session.execute(delete(ScheduleRow).where(ScheduleRow.schedule_id == schedule_id))
    if cast("CursorResult[Any]", result).rowcount == 0:
        raise JobError(f"There is no schedule {schedule_id!r}.", next_step="See them: spanloop jobs schedules")


def has_due_schedule(session: Session, *, now: datetime) -> bool:
    """Whether a schedule is due for ``submit_due_jobs``; does not take the write lock."""
    due = select(ScheduleRow.schedule_id).where(ScheduleRow.next_at.is_not(None), ScheduleRow.next_at <= now)
    return session.scalars(due.limit(1)).first() is not None


def submit_due_jobs(session: Session, *, now: datetime) -> list[str]:
    """Submit one job for each due schedule; return the job ids. Specs of another spanloop version stay due."""
    due = select(ScheduleRow).where(ScheduleRow.next_at.is_not(None), ScheduleRow.next_at <= now)
    rows = session.scalars(due.order_by(ScheduleRow.next_at)).all()
    job_ids = [
        _submit_job(session, row, spec, now=now)
        for row, spec in skip_unreadable(rows, lambda row: (row, parse_spec(row)))
    ]
    return [job_id for job_id in job_ids if job_id]


def _submit_job(session: Session, row: ScheduleRow, spec: JobSpec, *, now: datetime) -> str:
    following = next_firing(row.cron, now) if row.cron else None
    claim = update(ScheduleRow).where(ScheduleRow.schedule_id == row.schedule_id, ScheduleRow.next_at == row.next_at)
    result = session.execute(
        claim.values(next_at=following, last_at=now), execution_options={"synchronize_session": False}
    )
    if cast("CursorResult[Any]", result).rowcount == 0:
        return ""
    job = insert_job(session, spec, now=now, schedule_id=row.schedule_id, fired_for=row.next_at)
    set_last = update(ScheduleRow).where(ScheduleRow.schedule_id == row.schedule_id).values(last_job_id=job.job_id)
    session.execute(set_last, execution_options={"synchronize_session": False})
    return job.job_id
