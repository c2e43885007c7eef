"""The registration of a running pipeline: a lease with a fencing token in the control database.

Invariant: what a pipeline holds, it holds under its token. When its lease ends, or its process is seen to have ended,
another pipeline frees what it held and removes its row; the token is then refused for good.
"""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import inspect, select, update
from sqlalchemy.orm import Session

from spanloop.foundation.control.clock import LeaseTime, database_time
from spanloop.foundation.control.pipelines import Base, PipelineRow
from spanloop.foundation.control.sessions import ControlSessions
from spanloop.foundation.errors import DataDirectoryError
from spanloop.foundation.leases import Heartbeat, Lease, LeaseLostError, StoredLease, has_ended

from .. import run_lease
from .tables import BatchRow, ClaimRow, PlanRow


class _RegistrationRow:
    """The lease of a pipeline as its row; only the process that inserted it renews it."""

    def __init__(self, sessions: ControlSessions, owner: str, duration_s: float, lease_time: LeaseTime) -> None:
        self.duration_s: Final = duration_s
        self.activity = "idle"
        self.spans = 0
        self._sessions = sessions
        self._owner = owner
        self._lease_time = lease_time

    def read(self) -> StoredLease:
        """Return a free lease: each registration has a row of its own."""
        return StoredLease("", 0.0)

    def take(self) -> int | None:
        """Insert a row; its key is the token."""
        with self._sessions.write() as session:
            now = self._lease_time(session)
            row = PipelineRow(owner=self._owner, until=self._until(now), started_at=now, activity=self.activity)
            session.add(row)
            session.flush()
            return row.token

    def renew(self, token: int) -> bool:
        """Extend the lease while the row exists."""
        with self._sessions.write() as session:
            row = session.get(PipelineRow, token)
            if row is None:
                return False
            row.until = self._until(self._lease_time(session))
            row.activity, row.spans = self.activity, self.spans
            return True

    def release(self, token: int) -> None:
        """Remove the row and free what it holds."""
        with self._sessions.write() as session:
            _remove(session, token)

    def _until(self, now: datetime) -> datetime:
        return now + timedelta(seconds=self.duration_s)


class Registration(Lease):
    """The lease of one pipeline.

    Args:
        sessions: The control database.
        owner: Identity of the process and its thread.
        lease_time: Returns the time that leases are compared with.
    """

    def __init__(
        self, sessions: ControlSessions, *, owner: str | None = None, lease_time: LeaseTime = database_time
    ) -> None:
        self._row = _RegistrationRow(sessions, owner or run_lease.this_owner(), run_lease.LEASE_TIMEOUT_S, lease_time)
        self._sessions = sessions
        self._lease_time = lease_time
        super().__init__("pipeline", self._row, margin_s=self._row.duration_s * run_lease.MARGIN)

    @property
    def spans(self) -> int:
        """New spans that this pipeline has converted."""
        return self._row.spans

    @contextmanager
    def renewed_by_thread(self) -> Generator[None]:
        """Renew the lease in a thread while the block runs; register again by `ensure`."""

        def beat() -> bool:
            try:
                if self.token is not None:
                    self.renew()
            except (LeaseLostError, DataDirectoryError):
                return True
            return True

        with Heartbeat(beat, run_lease.RENEW_S, name="pipeline-registration"):
            yield

    def ensure(self) -> int:
        """Register if that has not been done, or the registration was removed; return the token.

        Raises:
            DataDirectoryError: The control database is unreachable.
        """
        if self.token is None:
            _create_tables(self._sessions)
            self.acquire()
        token = self.token
        if token is None:
            raise LeaseLostError("The registration of this pipeline was removed while it was made.")
        return token

    def describe(self, activity: str, *, more_spans: int = 0) -> None:
        """State what this pipeline does, for `running_pipelines`; the next renewal stores it."""
        self._row.activity = activity
        self._row.spans += more_spans

    def has_others(self) -> bool:
        """Return whether another pipeline is registered and its lease has not ended."""
        with self._sessions.read() as session:
            now = self._lease_time(session)
            rows = session.execute(select(PipelineRow.token, PipelineRow.until, PipelineRow.owner)).all()
        return any(token != self.token and until > now and not has_ended(owner) for token, until, owner in rows)

    def require(self, session: Session, token: int) -> datetime:
        """Check in a transaction that this pipeline is registered under ``token``; free what ended ones held.

        Returns:
            The time that leases are compared with.

        Raises:
            LeaseLostError: The registration was removed.
        """
        now = self._lease_time(session)
        if session.get(PipelineRow, token) is None:
            raise LeaseLostError(f"The pipeline with token {token} is not registered any more; nothing was written.")
        for row in _ended(session, now, but=token):
            _remove(session, row.token)
        return now


def _create_tables(sessions: ControlSessions) -> None:
    names = set(Base.metadata.tables)
    with sessions.read() as session:
        is_complete = names <= set(inspect(session.connection()).get_table_names())
    if not is_complete:
        with sessions.write() as session:
            Base.metadata.create_all(session.connection())


def _ended(session: Session, now: datetime, *, but: int) -> Iterator[PipelineRow]:
    """Yield pipelines whose leases have ended; shorten the lease of one whose process has ended."""
    for row in session.scalars(select(PipelineRow).where(PipelineRow.token != but)).all():
        if row.until <= now:
            yield row
        elif has_ended(row.owner):
            row.until = min(row.until, now + timedelta(seconds=run_lease.SETTLE_S))


def _remove(session: Session, token: int) -> None:
    for claim in session.scalars(select(ClaimRow).where(ClaimRow.holder == token, ClaimRow.ended.is_(None))).all():
        end_claim(session, claim)
    session.execute(update(BatchRow).where(BatchRow.holder == token).values(holder=None))
    row = session.get(PipelineRow, token)
    if row is not None:
        session.delete(row)
    session.flush()


def end_claim(session: Session, claim: ClaimRow) -> int:
    """End a claim, and return the number of its end; 0 where its plan is gone."""
    plan = session.get(PlanRow, claim.plan_id)
    if plan is None:
        session.delete(claim)
        return 0
    plan.ended_claims += 1
    claim.ended = plan.ended_claims
    session.flush()
    return plan.ended_claims
