"""Leadership: which of several processes decides, as a lease in the control database.

Invariant: at each moment at most one process has a leadership, by the database's clock, and its token grows with each
new leader. What a leader writes, it writes after `check` in the same transaction; so a former leader that has not
noticed its loss changes nothing. A leader that ends in order gives its leadership up; one that died is followed when
its lease expires, and at once where its process can be seen to have ended.
"""

import logging
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy.orm import Session

from spanloop.foundation.control.clock import LeaseTime, database_time
from spanloop.foundation.errors import DataDirectoryError, JobError
from spanloop.foundation.leases import Fence, Lease, StoredLease
from spanloop.foundation.processes.identity import ProcessIdentity

from .database.control_database import ControlDatabase
from .database.tables import LeaderRow

SCHEDULER: Final = "scheduler"
"""Name of the leadership of the schedulers."""
LEADERSHIP_S: Final = 15.0
"""A leadership that was not renewed for so long is free; it is renewed three times as often."""

CheckLeader = Callable[[Session], None]
"""Raises `LeadershipLostError` inside a transaction of a process that does not lead any more."""

log = logging.getLogger("spanloop.training.run.scheduler")


def unfenced(_session: Session) -> None:
    """Check nothing: for a write that is right whoever leads."""


class LeadershipLostError(JobError):
    """Raised when another process leads; nothing was written."""


class _LeaderRow:
    """A leadership as a row of the control database, whose token grows in the transaction that takes it."""

    def __init__(
        self, database: ControlDatabase, name: str, owner: str, *, duration_s: float, lease_time: LeaseTime
    ) -> None:
        self.duration_s: Final = duration_s
        self._database = database
        self._name = name
        self._owner = owner
        self._lease_time = lease_time

    def read(self) -> StoredLease:
        """Return who leads."""
        with self._database.read() as session:
            return _stored(session.get(LeaderRow, self._name), self._lease_time(session))

    def take(self) -> int | None:
        """Take the leadership if it is still free."""
        with self._database.write() as session:
            row, now = session.get(LeaderRow, self._name), self._lease_time(session)
            if not _stored(row, now).is_free:
                return None
            if row is None:
                row = LeaderRow(name=self._name, token=0)
                session.add(row)
            row.owner, row.token, row.until = self._owner, row.token + 1, self._until(now)
            return row.token

    def renew(self, token: int) -> bool:
        """Extend it while no other process has taken it, even if it has expired."""
        with self._database.write() as session:
            row = session.get(LeaderRow, self._name)
            if row is None or row.token != token:
                return False
            row.until = self._until(self._lease_time(session))
            return True

    def release(self, token: int) -> None:
        """Make it free."""
        with self._database.write() as session:
            row = session.get(LeaderRow, self._name)
            if row is not None and row.token == token:
                row.owner, row.until = "", self._lease_time(session)

    def _until(self, now: datetime) -> datetime:
        return now + timedelta(seconds=self.duration_s)


def _stored(row: LeaderRow | None, now: datetime) -> StoredLease:
    return StoredLease("", 0.0) if row is None else StoredLease(row.owner, (row.until - now).total_seconds())


class Leadership(Lease):
    """One process's claim to a leadership.

    Args:
        database: The control database.
        name: Of the leadership.
        owner: Identity of this process.
        lease_s: Duration of the lease.
        lease_time: Returns the time that leases are compared with.
        elapsed_s: A monotonic clock in seconds.
    """

    def __init__(
        self,
        database: ControlDatabase,
        name: str,
        *,
        owner: str,
        lease_s: float = LEADERSHIP_S,
        lease_time: LeaseTime = database_time,
        elapsed_s: Callable[[], float] = time.monotonic,
    ) -> None:
        row = _LeaderRow(database, name, owner, duration_s=lease_s, lease_time=lease_time)
        super().__init__(name, row, elapsed_s=elapsed_s)

    def hold(self) -> bool:
        """Take the leadership if it is free, renew it when it is time; return whether this process leads."""
        before = self.token
        is_leading = super().hold()
        if self.token != before:
            log.info("this process %s", f"leads, with token {self.token}" if is_leading else "does not lead any more")
        return is_leading

    def check_leads(self, session: Session) -> None:
        """Check that this process leads, in the transaction that writes what it decided.

        Raises:
            LeadershipLostError: Another process leads.
        """
        check_leader(session, self._name, self.token)


@contextmanager
def one_at_a_time(database: ControlDatabase, name: str) -> Generator[None]:
    """Wait until no other process, on any machine, is in a block of this name, and keep others out.

    Raises:
        DataDirectoryError: The control database is unreachable.
    """
    leadership = Leadership(database, name, owner=str(ProcessIdentity.current()))
    leadership.wait()
    try:
        with leadership.renewing(LEADERSHIP_S / 3, tolerated=DataDirectoryError):
            yield
    finally:
        leadership.release()


def check_leader(session: Session, name: str, token: int | None) -> None:
    """Check that ``token`` is the current leader's.

    Raises:
        LeadershipLostError: It is not.
    """
    row = session.get(LeaderRow, name, populate_existing=True)

    def stale(refused: int | None, _newest: int | None) -> LeadershipLostError:
        current = "nobody's" if row is None else str(row.token)
        return LeadershipLostError(
            f"The leadership {name!r} with token {refused} is lost: the current token is {current}; nothing was "
            "written.",
            next_step="Let this process wait until it leads again; it does so by itself.",
        )

    Fence(lambda: row.token if row is not None and row.owner else None, stale).check(token)
