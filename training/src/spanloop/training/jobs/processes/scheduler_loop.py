"""The scheduler's loop: recover abandoned jobs, submit scheduled ones, run scheduled rounds of loops.

One scheduler of several is active.

Invariant: only the leader decides (`leadership`), everything that it writes carries its token, and the database holds
everything that it knows. So a scheduler may be killed at any instant, or may hang and come back: another one goes on,
and what the former leader then writes is refused. A scheduler may embed a job runner, which does not need to lead.
"""

import logging
import os
import time
from collections.abc import Sequence
from typing import Final

from spanloop.foundation.control.clock import Clock, LeaseTime, database_time, utc_now
from spanloop.foundation.errors import DataDirectoryError
from spanloop.foundation.processes.identity import ProcessIdentity
from spanloop.foundation.settings.roles import SchedulerSettings
from spanloop.training.jobs.database.control_database import ControlDatabase
from spanloop.training.jobs.leadership import SCHEDULER, Leadership, LeadershipLostError
from spanloop.training.jobs.leases import JobLease
from spanloop.training.jobs.paths import ControlPaths, HasPath
from spanloop.training.jobs.processes.job_runner import JobRunner
from spanloop.training.jobs.processes.poll_loop import poll
from spanloop.training.jobs.processes.recovery import Recovery
from spanloop.training.jobs.processes.round_process import DEFAULT_LOOP_COMMAND, RoundProcess
from spanloop.training.jobs.processes.stop_signal import StopRequest
from spanloop.training.jobs.queued_spec import ParseSpec, QueuedSpec
from spanloop.training.jobs.schedules.outcome import TickOutcome
from spanloop.training.jobs.schedules.schedule_ticks import Decision, list_due, run_due_ticks
from spanloop.training.jobs.schedules.tick_process import DEFAULT_TICK_COMMAND, TickProcess

log = logging.getLogger("spanloop.training.run.scheduler")

_AT_ITS_TIME: Final = Decision(TickOutcome.SUBMITTED, "its time has come")


class Scheduler:
    """Decides about the jobs and schedules of one control database while it leads.

    Args:
        data_dir: The data directory, or its path; it must exist.
        parse_spec: Reads the specifications of jobs and schedules.
        jobs: A job runner that this process embeds; None runs no jobs here.
        tick_command: Program and arguments that decide about due ticks; ``--data-dir D`` is appended.
        loop_command: Program and arguments that run a loop; ``FILE --data-dir D`` is appended.
        settings: Intervals and lease durations.
        clock: Returns the current time; None is the machine's clock, and the database's for leases.
    """

    def __init__(
        self,
        data_dir: str | os.PathLike[str] | HasPath,
        parse_spec: ParseSpec[QueuedSpec],
        *,
        jobs: JobRunner | None = None,
        tick_command: Sequence[str] = DEFAULT_TICK_COMMAND,
        loop_command: Sequence[str] = DEFAULT_LOOP_COMMAND,
        settings: SchedulerSettings = SchedulerSettings(),
        clock: Clock | None = None,
    ) -> None:
        paths = ControlPaths.of(data_dir)
        self.database = ControlDatabase(paths)
        self.jobs = jobs
        self._parse_spec = parse_spec
        self._settings = settings
        self._clock = clock or utc_now
        lease_time: LeaseTime = database_time if clock is None else lambda _: clock()
        owner = str(ProcessIdentity.current())
        self._leadership = Leadership(
            self.database,
            SCHEDULER,
            owner=owner,
            lease_s=settings.leadership_s,
            lease_time=lease_time,
            elapsed_s=time.monotonic if clock is None else lambda: clock().timestamp(),
        )
        self._recovery = Recovery(
            self.database,
            owner=owner,
            lease_s=settings.lease_s,
            grace_s=settings.grace_s,
            parse_spec=parse_spec,
            clock=self._clock,
            lease_time=lease_time,
        )
        self._ticks = TickProcess(paths, tick_command)
        self._rounds = RoundProcess(paths, self.database, loop_command, clock=self._clock)

    @property
    def running(self) -> frozenset[JobLease]:
        """The leases of the jobs that the embedded runner runs now."""
        return frozenset() if self.jobs is None else self.jobs.running

    def is_leading(self) -> bool:
        """Return whether this scheduler is the active one, by its own clock."""
        return self._leadership.is_held

    def run(self, stop: StopRequest) -> None:
        """Tick until ``stop`` is set, then give the leadership up; end and requeue the jobs of the embedded runner."""
        try:
            poll(self.tick, stop, poll_s=self._settings.poll_s)
        finally:
            self.close()

    def tick(self) -> None:
        """Watch the embedded runner's jobs; while leading recover jobs and submit scheduled ones; start queued jobs."""
        try:
            if self.jobs is not None:
                self.jobs.watch()
            if self._leadership.hold():
                self._lead()
            else:
                self._close_processes()
        except LeadershipLostError:
            self._leadership.lose()
            self._close_processes()
        except DataDirectoryError:
            self._recovery.wait_for_runners()
            raise
        if self.jobs is not None:
            self.jobs.start()

    def close(self) -> None:
        """Give the leadership up, then close the embedded runner."""
        self._close_processes()
        try:
            self._leadership.release()
        except DataDirectoryError as error:
            # It expires by itself.
            log.error("the leadership could not be given up: %s", error)  # noqa: TRY400
        if self.jobs is not None:
            self.jobs.close()

    def _close_processes(self) -> None:
        self._ticks.close()
        self._rounds.close()

    def _lead(self) -> None:
        self._recovery.recover(mine=self.running, check=self._leadership.check_leads)
        with self.database.read() as session:
            due = list_due(session, self._parse_spec, now=self._clock())
        if not all(schedule.is_recurring for schedule in due):
            run_due_ticks(
                self.database,
                lambda _: _AT_ITS_TIME,
                self._parse_spec,
                recurring=False,
                clock=self._clock,
                check=self._leadership.check_leads,
            )
        # A process decides about recurring schedules, because it reads the store, which may be slow or away.
        self._ticks.look(is_due=any(schedule.is_recurring for schedule in due), leader=self._leadership.token)
        self._rounds.look(self._leadership.check_leads)
