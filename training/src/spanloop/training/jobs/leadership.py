"""Leadership: which of several processes decides, as a lease in the control database.

Invariant: at each moment at most one process has a leadership, by the database's clock, and its token grows with each
new leader. What a leader writes, it writes after `check` in the same transaction; so a former leader that has not
noticed its loss changes nothing. A leader that ends in order gives its leadership up; one that died is followed when
its lease expires, and at once where its process can be seen to have ended.
"""

import logging
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy.orm import Session

from spanloop.foundation.errors import DataDirectoryError, JobError
from spanloop.foundation.processes.identity import ProcessIdentity

from .database.clock import LeaseTime, database_time
from .database.control_database import ControlDatabase
from .database.tables import LeaderRow

SCHEDULER: Final = "scheduler"
"""Name of the leadership of the schedulers."""
LEADERSHIP_S: Final = 15.0
"""A leadership that was not renewed for so long is free; it is renewed three times as often."""

_WAIT_S: Final = 0.2

Fence = Callable[[Session], None]
"""Raises `LeadershipLostError` inside a transaction of a process that does not lead any more."""

log = logging.getLogger("spanloop.training.run.scheduler")


def unfenced(_session: Session) -> None:
    """Check nothing: for a write that is right whoever leads."""


class LeadershipLostError(JobError):
    """Raised when another process leads; nothing was written."""


class Leadership:
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
        self._database = database
        self._name = name
        self._owner = owner
        self._lease = timedelta(seconds=lease_s)
        self._lease_time = lease_time
        self._elapsed_s = elapsed_s
        self._renewed_s = 0.0
        self._token: int | None = None

    @property
    def token(self) -> int | None:
        """The fencing token; None while another process leads."""
        return self._token

    @property
    def is_held(self) -> bool:
        """Whether this process leads, by its own clock: the lease that it renewed last has not expired."""
        return self._token is not None and self._elapsed_s() - self._renewed_s < self._lease.total_seconds()

    def hold(self) -> bool:
        """Take the leadership if it is free, renew it when it is time; return whether this process leads."""
        if self._token is not None and self._elapsed_s() - self._renewed_s < self._lease.total_seconds() / 3:
            return True
        if self._token is None:
            with self._database.read() as session:
                if not self._may_take(session.get(LeaderRow, self._name), self._lease_time(session)):
                    return False
        began_s = self._elapsed_s()
        with self._database.write() as session:
            token = self._take(session)
        if token != self._token:
            log.info("this process %s", "does not lead any more" if token is None else f"leads, with token {token}")
        self._token, self._renewed_s = token, began_s
        return token is not None

    def check(self, session: Session) -> None:
        """Check that this process leads, in the transaction that writes what it decided.

        Raises:
            LeadershipLostError: Another process leads.
        """
        check_leader(session, self._name, self._token)

    def lose(self) -> None:
        """Forget the leadership, after `check` has found that another process leads."""
        self._token = None

    def give_up(self) -> None:
        """Let another process lead at once; does nothing when this one does not lead."""
        token, self._token = self._token, None
        if token is None:
            return
        with self._database.write() as session:
            row = session.get(LeaderRow, self._name)
            if row is not None and row.token == token:
                row.owner, row.until = "", self._lease_time(session)

    def _take(self, session: Session) -> int | None:
        row = session.get(LeaderRow, self._name)
        now = self._lease_time(session)
        if row is None:
            row = LeaderRow(name=self._name, owner="", token=0, until=now)
            session.add(row)
        if row.token != self._token:
            if not self._may_take(row, now):
                return None
            row.owner, row.token = self._owner, row.token + 1
        row.until = now + self._lease
        return row.token

    def _may_take(self, row: LeaderRow | None, now: datetime) -> bool:
        if row is None or not row.owner or row.until <= now:
            return True
        owner = ProcessIdentity.parse(row.owner)
        return owner is not None and owner.has_ended()


@contextmanager
def one_at_a_time(database: ControlDatabase, name: str) -> Generator[None]:
    """Wait until no other process, on any machine, is in a block of this name, and keep others out.

    Raises:
        DataDirectoryError: The control database is unreachable.
    """
    leadership = Leadership(database, name, owner=str(ProcessIdentity.current()))
    while not leadership.hold():
        time.sleep(_WAIT_S)
    ended = threading.Event()
    renewal = threading.Thread(target=_renew, args=(leadership, ended), name=name, daemon=True)
    renewal.start()
    try:
        yield
    finally:
        ended.set()
        renewal.join()
        leadership.give_up()


def _renew(leadership: Leadership, ended: threading.Event) -> None:
    while not ended.wait(LEADERSHIP_S / 6):
        try:
            leadership.hold()
        except DataDirectoryError:
            continue


def check_leader(session: Session, name: str, token: int | None) -> None:
    """Check that ``token`` is the current leader's.

    Raises:
        LeadershipLostError: It is not.
    """
    row = session.get(LeaderRow, name, populate_existing=True)
    if row is None or token is None or row.token != token or not row.owner:
        current = "nobody's" if row is None else str(row.token)
        raise LeadershipLostError(
            f"The leadership {name!r} with token {token} is lost: the current token is {current}; nothing was written.",
            next_step="Let this process wait until it leads again; it does so by itself.",
        )
