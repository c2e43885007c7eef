"""Recover jobs whose runner is gone: fence them off, end their processes, requeue them.

Invariant: the lease is taken over first, which rejects every write of the former runner; then the job's processes on
this machine are ended; then the job is requeued. On another machine they have ended before: their reaper kills them
before the lease expires. The same steps recover from a crash in between.
"""

import logging
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy.orm import Session

from spanloop.foundation.control.clock import Clock, LeaseTime, database_time
from spanloop.foundation.errors import DataDirectoryError
from spanloop.foundation.leases import has_ended
from spanloop.foundation.processes.identity import ProcessIdentity
from spanloop.foundation.processes.marked import end_processes
from spanloop.training.jobs import job_outcomes, leases
from spanloop.training.jobs.database.control_database import ControlDatabase
from spanloop.training.jobs.entities import read_spec
from spanloop.training.jobs.job_queue import find_job
from spanloop.training.jobs.leadership import CheckLeader
from spanloop.training.jobs.leases import JobLease, OtherLease
from spanloop.training.jobs.processes.job_processes import JobMark
from spanloop.training.jobs.queued_spec import ParseSpec, QueuedSpec
from spanloop.training.jobs.states import JobState

RETURN: Final = timedelta(seconds=5)
"""Time for runners to report after the control database was away."""

log = logging.getLogger("spanloop.training.run.scheduler")


class Recovery:
    """Finds abandoned leases and requeues their jobs.

    Args:
        database: The control database.
        owner: Identity of this scheduler's process.
        lease_s: Duration of a lease that is taken over.
        grace_s: Time between SIGTERM and SIGKILL of orphaned processes.
        parse_spec: Reads the specifications of jobs.
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
        parse_spec: ParseSpec[QueuedSpec],
        clock: Clock,
        lease_time: LeaseTime = database_time,
    ) -> None:
        self._database = database
        self._owner = owner
        self._lease = timedelta(seconds=lease_s)
        self._grace_s = grace_s
        self._parse_spec = parse_spec
        self._clock = clock
        self._lease_time = lease_time
        self._was_away = False
        self._not_expired_before: datetime | None = None

    def recover(self, *, mine: frozenset[JobLease], check: CheckLeader) -> None:
        """Recover all jobs whose lease has expired or whose runner has certainly ended.

        Raises:
            LeadershipLostError: Another scheduler leads.
        """
        with self._database.read() as session:
            now = self._lease_time(session)
            other_leases = leases.list_other_leases(session, mine=mine)
        if self._was_away:
            self._was_away, self._not_expired_before = False, now + RETURN
        may_expire = self._not_expired_before is None or now >= self._not_expired_before
        for other in other_leases:
            if has_ended(other.owner) or (may_expire and _has_expired(other, now)):
                self._take_over(other, now, check)

    def wait_for_runners(self) -> None:
        """After the database was away: its leases have expired, and their runners are about to say what happened."""
        self._was_away = True

    def _take_over(self, other: OtherLease, now: datetime, check: CheckLeader) -> None:
        with self._database.write() as session:
            check(session)
            lease = leases.take_over(session, other, owner=self._owner, until=now + self._lease)
        if lease is None:
            return
        leader = ProcessIdentity.parse(other.runner)
        process_count = end_processes(leader, JobMark(other.job_id, other.token), grace_s=self._grace_s)
        with self._database.write() as session:
            state = self._requeue(session, lease)
        log.warning(
            "job %s: its runner ended; ended %d of the job's processes; now %s", other.job_id, process_count, state
        )

    def _requeue(self, session: Session, lease: JobLease) -> JobState:
        now, error = self._clock(), "The runner of the job ended unexpectedly."
        try:
            spec = read_spec(find_job(session, lease.job_id), self._parse_spec)
        except DataDirectoryError as spec_error:
            # The next start would fail for this reason.
            return job_outcomes.mark_failed(session, lease, now=now, error=f"{error}\n{spec_error}")
        return job_outcomes.requeue_interrupted(session, lease, now=now, error=error, max_attempts=spec.max_attempts)


def _has_expired(lease: OtherLease, now: datetime) -> bool:
    return lease.until is None or lease.until < now
