"""Recover jobs whose scheduler ended: fence off their runners, end their processes, requeue them.

Invariant: the lease is taken over first, which rejects every write of the former runner; then its processes are ended;
then the job is requeued. The same steps recover from a crash in between.
"""

import logging
from datetime import datetime, timedelta

from spanloop.processes.identity import ProcessIdentity
from spanloop.processes.marked import end_processes
from spanloop.training.control import job_outcomes, leases
from spanloop.training.control.clock import Clock, LeaseTime, database_time
from spanloop.training.control.database import ControlDatabase
from spanloop.training.control.job_processes import JobMark
from spanloop.training.control.leases import Lease, OtherLease

log = logging.getLogger("spanloop.training.scheduler")


class Recovery:
    """Finds abandoned leases and requeues their jobs.

    Args:
        database: The control database.
        owner: Identity of this scheduler process.
        lease_s: Duration of a lease that is taken over.
        grace_s: Time between SIGTERM and SIGKILL of orphaned processes.
        clock: Returns the current time.
        lease_time: Returns the time that leases are compared with.
    """

    def __init__(
        self,
        database: ControlDatabase,
        *,
        owner: str,
        lease_s: float,
        grace_s: float,
        clock: Clock,
        lease_time: LeaseTime = database_time,
    ) -> None:
        self._database = database
        self._owner = owner
        self._lease = timedelta(seconds=lease_s)
        self._grace_s = grace_s
        self._clock = clock
        self._lease_time = lease_time

    def recover(self, *, mine: frozenset[Lease]) -> None:
        """Recover all jobs whose lease has expired or whose scheduler has certainly ended."""
        with self._database.read() as session:
            now = self._lease_time(session)
            other_leases = leases.list_other_leases(session, mine=mine)
        for other in other_leases:
            if _is_abandoned(other, now):
                self._take_over(other, now)

    def _take_over(self, other: OtherLease, now: datetime) -> None:
        with self._database.write() as session:
            lease = leases.take_over(session, other, owner=self._owner, until=now + self._lease)
        if lease is None:
            return
        leader = ProcessIdentity.parse(other.runner)
        process_count = end_processes(leader, JobMark(other.job_id, other.token), grace_s=self._grace_s)
        with self._database.write() as session:
            error = "The scheduler that ran the job ended unexpectedly."
            state = job_outcomes.requeue_interrupted(session, lease, now=self._clock(), error=error)
        log.warning(
            "job %s: its scheduler ended; ended %d of the job's processes; now %s", other.job_id, process_count, state
        )


def _is_abandoned(lease: OtherLease, now: datetime) -> bool:
    owner = ProcessIdentity.parse(lease.owner)
    return lease.until is None or lease.until < now or (owner is not None and owner.has_ended())
