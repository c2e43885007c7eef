"""Rounds of loops that schedules begin, and which of them have no recorded end yet.

Invariant: the ticks of a schedule are the ledger of its rounds. The tick that begins a round is stored before a process
runs it, and another one records the end. So the scheduler may be killed at any instant: the next one finds the round
here and continues it.
"""

from typing import NamedTuple

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from spanloop.training.jobs.database.tables import LoopRoundRow, ScheduleRow, TickRow
from spanloop.training.jobs.schedules.outcome import TickOutcome
from spanloop.training.jobs.schedules.schedule_settings import LoopFile, ScheduleSettings

_PREFIX = "round-"
_LEDGER = (TickOutcome.SUBMITTED.value, TickOutcome.ENDED.value)


class ScheduledRound(NamedTuple):
    """A round that a schedule began and that has no recorded end."""

    schedule_id: str
    loop: LoopFile
    name: str
    """``round-3``."""


def next_round(session: Session, model: str) -> str:
    """Return the name of the open round of a model's loop, else of the one after its last."""
    newest = select(LoopRoundRow).where(LoopRoundRow.model == model).order_by(LoopRoundRow.number.desc()).limit(1)
    row = session.scalars(newest).first()
    return f"{_PREFIX}{1 if row is None else row.number + (row.ended_at is not None)}"


def find_begun(session: Session, schedule_id: str) -> str | None:
    """Return the round that a schedule began and whose end is not recorded."""
    ledger = select(TickRow).where(TickRow.schedule_id == schedule_id, TickRow.verdict.in_(_LEDGER))
    newest = session.scalars(ledger.order_by(TickRow.tick_id.desc()).limit(1)).first()
    is_begun = newest is not None and newest.verdict == TickOutcome.SUBMITTED and newest.job_id.startswith(_PREFIX)
    return newest.job_id if newest is not None and is_begun else None


def begun_rounds(session: Session) -> list[ScheduledRound]:
    """Return the rounds without a recorded end of all schedules that are not paused, the oldest schedule first."""
    has_loop = ScheduleRow.settings.contains('"loop"')
    schedules = select(ScheduleRow).where(ScheduleRow.paused_at.is_(None), has_loop).order_by(ScheduleRow.created_at)
    rounds: list[ScheduledRound] = []
    for row in session.scalars(schedules):
        name = find_begun(session, row.schedule_id)
        if name is not None:
            loop = ScheduleSettings.model_validate_json(row.settings).loop
            assert loop is not None  # noqa: S101 - only a schedule of a loop begins rounds
            rounds.append(ScheduledRound(row.schedule_id, loop, name))
    return rounds


def end_of_round(session: Session, begun: ScheduledRound) -> str | None:
    """Return how a round ended, and why; None while it is open or has not begun."""
    row = session.get(LoopRoundRow, (begun.loop.model, int(begun.name.removeprefix(_PREFIX))))
    return None if row is None or row.ended_at is None else f"{row.outcome}: {row.reason}"


def is_known(session: Session, schedule_id: str) -> bool:
    """Whether a schedule was not removed."""
    return bool(session.scalar(select(func.count()).where(ScheduleRow.schedule_id == schedule_id)))
