"""Schedules: when each of them ticks, always in UTC; stored, listed, paused and removed.

Invariant: ``next_at`` is the next tick. Ticks that were missed, while no scheduler ran or the schedule was paused, are
not made up for: one tick stands for all of them (`schedule_ticks` says what a tick does).
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from croniter import CroniterError, croniter
from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from spanloop.foundation.errors import ConfigurationError, JobError
from spanloop.training.jobs.database.tables import ScheduleRow, TickRow
from spanloop.training.jobs.job_queue import new_id
from spanloop.training.jobs.queued_spec import QueuedSpec
from spanloop.training.jobs.schedules.schedule_settings import ScheduleSettings

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


def next_tick(cron: str, settings: ScheduleSettings, *, due_at: datetime, now: datetime) -> datetime | None:
    """Return the first tick of a schedule after ``now``; None for a single time.

    Args:
        cron: The cron expression; empty without one.
        settings: The schedule's settings.
        due_at: A tick before; an interval is counted from it.
        now: The current time.
    """
    if cron:
        return next_firing(cron, now)
    interval = settings.interval
    if interval is None:
        return None
    return due_at + interval * (max(now - due_at, -interval) // interval + 1)


def insert_schedule(
    session: Session, spec: QueuedSpec, *, cron: str, settings: ScheduleSettings, next_at: datetime, now: datetime
) -> ScheduleRow:
    """Insert a schedule whose first tick is ``next_at``."""
    row = ScheduleRow(
        schedule_id=new_id("schedule", now),
        spec=spec.model_dump_json(),
        cron=cron,
        created_at=now,
        next_at=next_at,
        last_job_id="",
        settings=settings.model_dump_json(exclude_none=True),
    )
    session.add(row)
    session.flush()
    return row


def list_schedules(session: Session) -> Sequence[ScheduleRow]:
    """Return all schedules, oldest first."""
    return session.scalars(select(ScheduleRow).order_by(ScheduleRow.created_at, ScheduleRow.schedule_id)).all()


def find_schedule(session: Session, schedule_id: str) -> ScheduleRow:
    """Return the row of a schedule.

    Raises:
        JobError: There is no such schedule.
    """
    row = session.get(ScheduleRow, schedule_id, populate_existing=True)
    if row is None:
        raise JobError(f"There is no schedule {schedule_id!r}.", next_step="See them: spanloop schedules list")
    return row


def pause_schedule(row: ScheduleRow, *, now: datetime) -> None:
    """Let a schedule tick no more; a paused one does not change."""
    row.paused_at = row.paused_at or now


def resume_schedule(row: ScheduleRow, settings: ScheduleSettings, *, now: datetime) -> None:
    """Let a paused schedule tick again, from its next time on."""
    if row.paused_at is None:
        return
    row.paused_at = None
    if row.next_at is not None and row.next_at <= now:
        row.next_at = next_tick(row.cron, settings, due_at=row.next_at, now=now) or row.next_at


def delete_schedule(session: Session, schedule_id: str) -> None:
    """Delete a schedule and its ticks; the jobs that it submitted stay.

    Raises:
        JobError: There is no such schedule.
    """
    session.delete(find_schedule(session, schedule_id))
    session.execute(delete(TickRow).where(TickRow.schedule_id == schedule_id))
