"""Schedule rows, and firing them.

The invariant: a firing moves ``next_at`` on and inserts its job in one transaction, on the condition that ``next_at``
is still the firing that was due. So each firing gives exactly one job, whoever else is looking, and a crash in between
gives none and loses none. Firings missed while no scheduler ran are caught up by one job.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, cast

from sqlalchemy import CursorResult, delete, select, update
from sqlalchemy.orm import Session

from spanloop.semconv.errors import JobError
from spanloop.training.control.job_rows import insert_job, new_id
from spanloop.training.control.records import readable, spec_of
from spanloop.training.control.tables import ScheduleRow
from spanloop.training.job_spec import JobSpec
from spanloop.training.schedules import next_firing


def insert_schedule(session: Session, spec: JobSpec, *, cron: str, next_at: datetime, now: datetime) -> ScheduleRow:
    """A schedule whose first firing is ``next_at``."""
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


def all_schedules(session: Session) -> Sequence[ScheduleRow]:
    """All schedules, oldest first."""
    return session.scalars(select(ScheduleRow).order_by(ScheduleRow.created_at, ScheduleRow.schedule_id)).all()


def delete_schedule(session: Session, schedule_id: str) -> None:
    """Forget a schedule; the jobs that it submitted stay.

    Raises:
        JobError: There is no such schedule.
    """
    result = session.execute(delete(ScheduleRow).where(ScheduleRow.schedule_id == schedule_id))
    if cast("CursorResult[Any]", result).rowcount == 0:
        raise JobError(f"There is no schedule {schedule_id!r}.", next_step="See them: spanloop jobs schedules")


def any_due(session: Session, *, now: datetime) -> bool:
    """Whether ``fire_due`` has something to do; needs no writer's lock."""
    due = select(ScheduleRow.schedule_id).where(ScheduleRow.next_at.is_not(None), ScheduleRow.next_at <= now)
    return session.scalars(due.limit(1)).first() is not None


def fire_due(session: Session, *, now: datetime) -> list[str]:
    """Submit one job for each schedule that is due; their ids. What another version wrote stays due."""
    due = select(ScheduleRow).where(ScheduleRow.next_at.is_not(None), ScheduleRow.next_at <= now)
    rows = session.scalars(due.order_by(ScheduleRow.next_at)).all()
    fired = [_fire(session, row, spec, now=now) for row, spec in readable(rows, lambda row: (row, spec_of(row)))]
    return [job_id for job_id in fired if job_id]


def _fire(session: Session, row: ScheduleRow, spec: JobSpec, *, now: datetime) -> str:
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
