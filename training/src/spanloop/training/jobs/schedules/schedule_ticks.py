"""Ticks of schedules: what is due, what stands in the way of a job, and the record of what a tick did.

Invariant: a tick advances ``next_at``, is recorded, and inserts its job in one transaction, on the condition that
``next_at`` is still the tick that was decided about. So each tick is decided once, whatever other schedulers do, and a
crash neither loses nor doubles a job. A schedule has at most one job, or round of a loop, that has not ended.
"""

import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias, cast

from sqlalchemy import CursorResult, Select, delete, func, select, update
from sqlalchemy.orm import Session

from spanloop.foundation.control.clock import Clock, utc_now
from spanloop.foundation.errors import SpanloopError
from spanloop.training.jobs.database.control_database import ControlDatabase
from spanloop.training.jobs.database.tables import JobRow, ScheduleRow, TickRow
from spanloop.training.jobs.entities import StoredSchedule, schedule_from_row, skip_unreadable
from spanloop.training.jobs.job_queue import insert_job
from spanloop.training.jobs.leadership import CheckLeader, unfenced
from spanloop.training.jobs.queued_spec import ParseSpec, QueuedSpec, SpecT
from spanloop.training.jobs.schedules.outcome import TickOutcome
from spanloop.training.jobs.schedules.schedule_settings import Budget, BudgetUnit
from spanloop.training.jobs.schedules.scheduled_rounds import find_begun, next_round
from spanloop.training.jobs.schedules.stored_schedules import next_tick
from spanloop.training.jobs.state_machine import FINAL_STATES
from spanloop.training.jobs.states import JobState

KEPT_TICKS: Final = 100
"""Recorded ticks of a schedule; older ones are removed."""
AFTER_FAILURE: Final = timedelta(days=1)
"""How long a schedule that waits for data waits after a job that failed or was cancelled; the next one would come
within minutes."""


_WITHOUT_RESULT: Final = frozenset({JobState.FAILED, JobState.CANCELLED})

log = logging.getLogger("spanloop.training.run.scheduler")


class Decision(NamedTuple):
    """What a tick does, and why."""

    outcome: TickOutcome
    reason: str


Decide: TypeAlias = Callable[[StoredSchedule[SpecT]], Decision]


def list_due(session: Session, parse_spec: ParseSpec[SpecT], *, now: datetime) -> list[StoredSchedule[SpecT]]:
    """Return the schedules whose tick is due, the longest due first; does not take the write lock.

    Those of another version of spanloop stay due, and are left out.
    """
    due = select(ScheduleRow).where(
        ScheduleRow.next_at.is_not(None), ScheduleRow.next_at <= now, ScheduleRow.paused_at.is_(None)
    )
    rows = session.scalars(due.order_by(ScheduleRow.next_at, ScheduleRow.schedule_id)).all()
    return skip_unreadable(rows, partial(schedule_from_row, parse_spec=parse_spec))


def run_due_ticks(
    database: ControlDatabase,
    decide: Decide[SpecT],
    parse_spec: ParseSpec[SpecT],
    *,
    recurring: bool,
    check: CheckLeader = unfenced,
    clock: Clock = utc_now,
) -> bool:
    """Decide about each due tick and do it; return whether all could be decided.

    Args:
        database: The control database.
        decide: Returns what a tick does; raises a ``SpanloopError`` when a service that it needs is away. The tick then
            stays due.
        parse_spec: Reads the specifications of schedules.
        recurring: Tick recurring schedules; otherwise those that submit once.
        check: Called in each transaction that writes.
        clock: Returns the current time.

    Raises:
        LeadershipLostError: ``check`` says that another scheduler leads.
    """
    with database.read() as session:
        due = list_due(session, parse_spec, now=clock())
    is_complete = True
    for schedule in due:
        if schedule.is_recurring is not recurring:
            continue
        try:
            decision = decide(schedule)
        except SpanloopError as error:
            is_complete = False
            log.warning("%s: %s", schedule.id, error)
            waiting = Decision(TickOutcome.WAITING, f"it is tried again: {error.what}")
            with database.write() as session:
                check(session)
                add_to_history(session, schedule.id, waiting, now=clock())
            continue
        except Exception as error:
            # Border: what is wrong with one schedule, such as a selection of the user's, must not hold up the others.
            log.exception("%s: its tick could not be decided", schedule.id)
            reason = f"it could not be decided: {type(error).__name__}: {error}"
            decision = Decision(TickOutcome.SKIPPED, reason)
        with database.write() as session:
            check(session)
            done = record_tick(session, schedule, decision, now=clock())
        if done is not None:
            log.info("%s: %s: %s %s", schedule.id, done[0].outcome, done[0].reason, done[1] or "")
    return is_complete


def find_obstacle(session: Session, schedule: StoredSchedule[QueuedSpec], *, now: datetime) -> str:
    """Return why the schedule may not submit a job now, whatever data there is; empty if it may."""
    jobs = select(JobRow).where(JobRow.schedule_id == schedule.id)
    open_states = [str(state) for state in JobState if state not in FINAL_STATES]
    open_job = session.scalars(jobs.where(JobRow.state.in_(open_states)).limit(1)).first()
    if open_job is not None:
        return f"its job {open_job.job_id} is {open_job.state}, and it has one job at a time"
    if (begun := find_begun(session, schedule.id)) is not None:
        return f"its {begun} has not ended, and it has one round at a time"
    last = session.get(JobRow, schedule.last_job_id) if schedule.last_job_id else None
    if schedule.settings.waits_for_data and last is not None and last.state in _WITHOUT_RESULT:
        until = (last.finished_at or last.created_at) + AFTER_FAILURE
        if now < until:
            return f"its job {last.job_id} ended as {last.state}, so it waits until {until:%Y-%m-%d %H:%M} UTC"
    budget = schedule.settings.budget
    return "" if budget is None else _over_budget(session, schedule.id, budget, now)


def record_tick(
    session: Session, schedule: StoredSchedule[QueuedSpec], decision: Decision, *, now: datetime
) -> tuple[Decision, str | None] | None:
    """Do what was decided about the tick ``schedule.next_at``; return what was done, and the job.

    What stands in the way of a job is looked at again. Returns None, and does nothing, when the schedule has ticked,
    was paused or was removed meanwhile.
    """
    if schedule.next_at is None:
        return None
    cron = schedule.cron or ""
    claim = update(ScheduleRow).where(
        ScheduleRow.schedule_id == schedule.id,
        ScheduleRow.next_at == schedule.next_at,
        ScheduleRow.paused_at.is_(None),
    )
    following = next_tick(cron, schedule.settings, due_at=schedule.next_at, now=now)
    claimed = session.execute(claim.values(next_at=following), execution_options={"synchronize_session": False})
    if cast("CursorResult[Any]", claimed).rowcount == 0:
        return None
    obstacle = find_obstacle(session, schedule, now=now) if decision.outcome is TickOutcome.SUBMITTED else ""
    if obstacle:
        decision = Decision(TickOutcome.SKIPPED, obstacle)
    job_id = None
    if decision.outcome is TickOutcome.SUBMITTED:
        job_id = (
            insert_job(session, schedule.spec, now=now, schedule_id=schedule.id, fired_for=schedule.next_at).job_id
            if schedule.settings.loop is None
            else next_round(session, schedule.settings.loop.model)
        )
        submitted = update(ScheduleRow).where(ScheduleRow.schedule_id == schedule.id)
        session.execute(
            submitted.values(last_at=now, last_job_id=job_id), execution_options={"synchronize_session": False}
        )
    add_to_history(session, schedule.id, decision, now=now, job_id=job_id)
    return decision, job_id


def add_to_history(
    session: Session, schedule_id: str, decision: Decision, *, now: datetime, job_id: str | None = None
) -> None:
    """Record a tick; one that repeats the last one counts there, and so does one that still waits."""
    last = session.scalars(list_ticks(schedule_id).limit(1)).first()
    is_waiting = last is not None and last.verdict == decision.outcome == TickOutcome.WAITING
    if last is not None and job_id is None and (is_waiting or (last.verdict, last.reason) == decision):
        last.ticked_at, last.times, last.reason = now, last.times + 1, decision.reason
        return
    row = TickRow(
        schedule_id=schedule_id,
        ticked_at=now,
        times=1,
        verdict=decision.outcome.value,
        reason=decision.reason,
        job_id=job_id or "",
    )
    session.add(row)
    session.flush()
    old = list_ticks(schedule_id).with_only_columns(TickRow.tick_id).offset(KEPT_TICKS).limit(KEPT_TICKS)
    session.execute(delete(TickRow).where(TickRow.tick_id.in_(session.scalars(old).all())))


def list_ticks(schedule_id: str) -> Select[TickRow]:
    """Return the statement for the ticks of a schedule, newest first."""
    return select(TickRow).where(TickRow.schedule_id == schedule_id).order_by(TickRow.tick_id.desc())


def _over_budget(session: Session, schedule_id: str, budget: Budget, now: datetime) -> str:
    since = now - budget.period.length
    used = select(func.count(), func.coalesce(func.sum(JobRow.ran_s), 0)).where(
        JobRow.schedule_id == schedule_id, JobRow.created_at > since
    )
    jobs, seconds = session.execute(used).one()
    amount = jobs if budget.unit is BudgetUnit.JOBS else seconds // 60
    if amount < budget.amount:
        return ""
    return f"its budget of {budget} is used up: {amount} {budget.unit} since {since:%Y-%m-%d %H:%M} UTC"
