"""Jobs whose scheduler went away: fenced off, ended, and queued again.

The invariant: the lease is taken over first, which refuses every write of the former runner; only then its processes
are ended, and only after that the job is queued again. A crash in between is recovered in the same way.
"""

import logging
from datetime import datetime, timedelta

from spanloop.training.control import leases, outcomes
from spanloop.training.control.clock import Clock
from spanloop.training.control.database import ControlDatabase
from spanloop.training.control.job_processes import JobMark, end_members
from spanloop.training.control.leases import AbandonedLease, Lease
from spanloop.training.control.processes import ProcessIdentity

log = logging.getLogger("spanloop.training.scheduler")


class Recovery:
    """Finds abandoned leases and brings their jobs back.

    Args:
        database: The control database.
        owner: Identity of the scheduler that does it.
        lease_s: For how long it holds what it takes over.
        grace_s: Between SIGTERM and SIGKILL of orphans.
        clock: Gives the present instant.
    """

    def __init__(self, database: ControlDatabase, *, owner: str, lease_s: float, grace_s: float, clock: Clock) -> None:
        self._database = database
        self._owner = owner
        self._lease = timedelta(seconds=lease_s)
        self._grace_s = grace_s
        self._clock = clock

    def recover(self, *, mine: frozenset[Lease]) -> None:
        """Bring back all jobs whose lease has expired, or whose scheduler has surely ended."""
        now = self._clock()
        with self._database.read() as session:
            others = leases.leased_by_others(session, mine=mine)
        for other in others:
            if _is_abandoned(other, now):
                self._take_over(other, now)

    def _take_over(self, other: AbandonedLease, now: datetime) -> None:
        with self._database.write() as session:
            lease = leases.take_over(session, other, owner=self._owner, until=now + self._lease)
        if lease is None:
            return
        leader = ProcessIdentity.parse(other.runner)
        ended = end_members(leader, JobMark(other.job_id, other.token), grace_s=self._grace_s)
        with self._database.write() as session:
            error = "The scheduler that ran the job went away."
            state = outcomes.interrupted(session, lease, now=self._clock(), error=error)
        log.warning("job %s: its scheduler went away; ended %d processes of it; now %s", other.job_id, ended, state)


def _is_abandoned(lease: AbandonedLease, now: datetime) -> bool:
    owner = ProcessIdentity.parse(lease.owner)
    return lease.until is None or lease.until < now or (owner is not None and owner.is_gone())
