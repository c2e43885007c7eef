"""Attempts that runs offer to runners, in the control database.

Invariant: an offer is one start of an attempt, and its episode id names it. Its runner writes only with the token of
its lease and while the offer is there. A run removes an offer whose lease has ended before it offers the attempt again,
under another episode id; so a runner that hung and comes back changes nothing.
"""

import json
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final, NamedTuple, cast

from sqlalchemy import ColumnElement, CursorResult, and_, delete, func, or_, select, update
from sqlalchemy.orm import Session

from spanloop.evaluation.runner.attempt import TaskAttempt
from spanloop.evaluation.tasks import Task
from spanloop.foundation.control.clock import LeaseTime, database_time
from spanloop.foundation.leases import StoredLease
from spanloop.training.jobs.database.control_database import ControlDatabase
from spanloop.training.jobs.database.tables import OfferRow, PooledRunRow, RefusalRow

_AT_ONCE: Final = 200


class OfferState(StrEnum):
    """The progress of an offer."""

    OFFERED = "offered"
    LEASED = "leased"
    ENDED = "ended"
    """Its result is stored."""
    INTERRUPTED = "interrupted"
    """Its runner gave it back after the agent was started."""
    RETURNED = "returned"
    """Its runner gave it back before the agent was started."""


class LeasedOffer(NamedTuple):
    """The right to make one attempt."""

    attempt: TaskAttempt
    token: int


class Finished(NamedTuple):
    """An offer that its runner is done with."""

    episode_id: str
    state: OfferState
    result: str


class Refusal(NamedTuple):
    """A runner that cannot make the attempts."""

    host: str
    reason: str
    is_final: bool = True
    """Whether it holds while the run's command runs."""


class Offers:
    """The offers in one control database.

    Args:
        database: The control database.
        lease_time: Returns the time that leases are compared with.
    """

    def __init__(self, database: ControlDatabase, *, lease_time: LeaseTime = database_time) -> None:
        self._database: Final = database
        self._lease_time: Final = lease_time

    def open_run(self, run_id: str, request: str, parallel: int) -> None:
        """Store what the runners need to know of a run; runners that refused it may try again."""
        with self._database.write() as session:
            session.merge(PooledRunRow(run_id=run_id, request=request, parallel=parallel))
            session.execute(delete(RefusalRow).where(RefusalRow.run_id == run_id))

    def close_run(self, run_id: str) -> frozenset[str]:
        """Remove a run and its offers; return the episode ids of those that a runner had begun."""
        with self._database.write() as session:
            begun = select(OfferRow.episode_id).where(_of(run_id), OfferRow.state != OfferState.OFFERED)
            found = frozenset(session.scalars(begun).all())
            session.execute(delete(OfferRow).where(_of(run_id)))
            session.execute(delete(RefusalRow).where(RefusalRow.run_id == run_id))
            session.execute(delete(PooledRunRow).where(PooledRunRow.run_id == run_id))
        return found

    def offer(self, run_id: str, attempts: Sequence[TaskAttempt]) -> None:
        """Offer attempts; one that is offered already, by a call whose outcome was not known, stays as it is."""
        ids = [attempt.episode_id for attempt in attempts]
        with self._database.write() as session:
            stored = set(session.scalars(select(OfferRow.episode_id).where(OfferRow.episode_id.in_(ids))).all())
            session.add_all(
                OfferRow(run_id=run_id, episode_id=each.episode_id, attempt=_document(each), state=OfferState.OFFERED)
                for each in attempts
                if each.episode_id not in stored
            )

    def episode_ids(self, run_id: str) -> frozenset[str]:
        """Return the episode ids of a run's offers."""
        with self._database.read() as session:
            return frozenset(session.scalars(select(OfferRow.episode_id).where(_of(run_id))).all())

    def finished(self, run_id: str) -> list[Finished]:
        """Return offers that their runners are done with, a few hundred at most."""
        is_done = OfferRow.state.in_([OfferState.ENDED, OfferState.INTERRUPTED, OfferState.RETURNED])
        chosen = select(OfferRow).where(_of(run_id), is_done).order_by(OfferRow.offer_id).limit(_AT_ONCE)
        with self._database.read() as session:
            return [Finished(row.episode_id, OfferState(row.state), row.result) for row in session.scalars(chosen)]

    def remove(self, episode_ids: Iterable[str]) -> None:
        """Remove offers, whoever has them."""
        ids = list(episode_ids)
        if not ids:
            return
        with self._database.write() as session:
            for start in range(0, len(ids), _AT_ONCE):
                some = ids[start : start + _AT_ONCE]  # databases limit the parameters of a statement
                session.execute(delete(OfferRow).where(OfferRow.episode_id.in_(some)))

    def take_back(self, run_id: str) -> list[str]:
        """Remove the offers whose lease has ended, or whose process has; return their episode ids."""
        leased = select(OfferRow).where(_of(run_id), OfferRow.state == OfferState.LEASED)
        with self._database.read() as session:
            now = self._lease_time(session)
            if not any(_is_free(row, now) for row in session.scalars(leased)):
                return []
        with self._database.write() as session:
            now = self._lease_time(session)
            rows = [row for row in session.scalars(leased) if _is_free(row, now)]
            lost = [row.episode_id for row in rows]
            for row in rows:
                session.delete(row)
        return lost

    def refusals(self, run_id: str) -> list[Refusal]:
        """Return the runners that cannot make a run's attempts."""
        chosen = select(RefusalRow).where(RefusalRow.run_id == run_id).order_by(RefusalRow.host)
        with self._database.read() as session:
            return [Refusal(row.host, row.reason, row.until is None) for row in session.scalars(chosen)]

    def is_being_made(self, run_id: str) -> bool:
        """Whether a runner has an attempt of a run."""
        with self._database.read() as session:
            leased = select(OfferRow.offer_id).where(_of(run_id), OfferRow.state == OfferState.LEASED)
            return session.scalars(leased.limit(1)).first() is not None

    def waiting_runs(self, runner: str) -> list[str]:
        """Return the runs with offers that this runner may take, the longest waiting one first."""
        with self._database.read() as session:
            now = self._lease_time(session)
            refused = select(RefusalRow.run_id).where(
                RefusalRow.runner == runner, or_(RefusalRow.until.is_(None), RefusalRow.until > now)
            )
            waiting = (
                select(OfferRow.run_id)
                .where(OfferRow.state == OfferState.OFFERED, OfferRow.run_id.not_in(refused))
                .group_by(OfferRow.run_id)
                .order_by(func.min(OfferRow.offer_id))
            )
            return [run_id for run_id in session.scalars(waiting) if _has_room(session, run_id)]

    def request_of(self, run_id: str) -> str | None:
        """Return the request of a run; None when it is over."""
        with self._database.read() as session:
            return session.scalars(select(PooledRunRow.request).where(PooledRunRow.run_id == run_id)).first()

    def lease(self, run_id: str, owner: str, lease_s: float) -> LeasedOffer | None:
        """Lease the oldest offer of a run; None when there is none, or as many as the run allows are being made."""
        chosen = select(OfferRow).where(_of(run_id), OfferRow.state == OfferState.OFFERED).order_by(OfferRow.offer_id)
        with self._database.read() as session:
            if session.scalars(chosen.limit(1)).first() is None:
                return None
        with self._database.write() as session:
            row = session.scalars(chosen.limit(1)).first()
            if row is None or not _has_room(session, run_id):
                return None
            row.state, row.lease_token, row.lease_owner = OfferState.LEASED, row.lease_token + 1, owner
            row.lease_until = self._lease_time(session) + timedelta(seconds=lease_s)
            return LeasedOffer(_attempt(row.attempt, row.episode_id), row.lease_token)

    def renew(self, run_id: str, owner: str, lease_s: float) -> frozenset[str]:
        """Renew all leases of a process on a run's offers; return the episode ids that it still has."""
        is_mine = and_(_of(run_id), OfferRow.state == OfferState.LEASED, OfferRow.lease_owner == owner)
        with self._database.write() as session:
            until = self._lease_time(session) + timedelta(seconds=lease_s)
            session.execute(update(OfferRow).where(is_mine).values(lease_until=until))
            return frozenset(session.scalars(select(OfferRow.episode_id).where(is_mine)).all())

    def finish(self, leased: LeasedOffer, state: OfferState, result: str = "") -> bool:
        """Record what became of a leased offer; return False, and change nothing, when the lease is lost."""
        is_held = and_(
            OfferRow.episode_id == leased.attempt.episode_id,
            OfferRow.state == OfferState.LEASED,
            OfferRow.lease_token == leased.token,
        )
        values = {"state": state, "result": result, "lease_owner": "", "lease_until": None}
        with self._database.write() as session:
            changed = session.execute(update(OfferRow).where(is_held).values(**values))
            return cast("CursorResult[Any]", changed).rowcount == 1

    def refuse(self, run_id: str, runner: str, refusal: Refusal, *, retry_s: float | None) -> None:
        """Record that a runner cannot make a run's attempts: for some seconds, or while the run's command runs."""
        with self._database.write() as session:
            if session.get(PooledRunRow, run_id) is None:
                return
            until = None if retry_s is None else self._lease_time(session) + timedelta(seconds=retry_s)
            session.merge(
                RefusalRow(run_id=run_id, runner=runner, host=refusal.host, reason=refusal.reason, until=until)
            )


def _of(run_id: str) -> ColumnElement[bool]:
    return OfferRow.run_id == run_id


def _has_room(session: Session, run_id: str) -> bool:
    """Whether one more attempt of the run may be made at this time."""
    allowed = session.scalars(select(PooledRunRow.parallel).where(PooledRunRow.run_id == run_id)).first()
    leased = select(func.count()).select_from(OfferRow).where(_of(run_id), OfferRow.state == OfferState.LEASED)
    return allowed is not None and session.execute(leased).scalar_one() < allowed


def _is_free(row: OfferRow, now: datetime) -> bool:
    left_s = 0.0 if row.lease_until is None else (row.lease_until - now).total_seconds()
    return StoredLease(row.lease_owner, left_s).is_free


def _document(attempt: TaskAttempt) -> str:
    task = attempt.task
    fixed = [attempt.task_number, task.id, dict(task.fields), task.digest, attempt.number, attempt.interrupted]
    return json.dumps([*fixed, attempt.seed])


def _attempt(document: str, episode_id: str) -> TaskAttempt:
    task_number, task_id, fields, digest, number, interrupted, seed = json.loads(document)
    task = Task(task_id, fields, digest)
    return TaskAttempt(task_number, task, number, episode_id, tuple(interrupted), seed)
