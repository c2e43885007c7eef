"""The scheduler's loop: recover, fire, start, watch.

The invariant: at each moment a job has at most one process group that can still write, and what the loop knows is in
the database too. So it may be killed at any instant; the next one finds the lease, ends what is left of the process
group, and goes on.
"""

import logging
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from spanloop.datadir import write_atomically
from spanloop.semconv.enums import JobState
from spanloop.semconv.environment import DATA_DIR_ENV
from spanloop.semconv.errors import DataDirectoryError
from spanloop.training.control import leases, outcomes, schedule_rows
from spanloop.training.control.clock import Clock, utc_now
from spanloop.training.control.database import ControlDatabase
from spanloop.training.control.job_processes import JOB_ID_ENV, JOB_TOKEN_ENV
from spanloop.training.control.job_rows import find_job
from spanloop.training.control.launch import RunningJob, launch
from spanloop.training.control.leases import Lease, LeaseLostError
from spanloop.training.control.paths import ControlPaths, HasPath
from spanloop.training.control.processes import ProcessIdentity
from spanloop.training.control.records import Job, job_of
from spanloop.training.control.recovery import Recovery
from spanloop.training.control.stop import StopRequest

log = logging.getLogger("spanloop.training.scheduler")

SHELL_SIGNAL_BASE: Final = 128
KILLED_STATUSES: Final = frozenset(
    SHELL_SIGNAL_BASE + number for number in (signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGTERM)
)
"""How a runner says that it was ended from outside when it caught the signal, or its child was."""

DEFAULT_RUNNER: Final = (sys.executable, "-m", "spanloop.training.run_job")


@dataclass(frozen=True, slots=True)
class SchedulerSettings:
    """How the scheduler behaves."""

    poll_s: float = 1.0
    """Between two looks at the database and at the running jobs: the delay of starts and cancellations."""
    slots: int = 1
    """Jobs that run at a time."""
    lease_s: float = 30.0
    """A lease that was not renewed for this long is abandoned. Renewed three times as often."""
    grace_s: float = 8.0
    """Between SIGTERM and SIGKILL of a job; below the 10 s in which a service must stop."""


class Scheduler:
    """Runs the queued jobs of one control database.

    Args:
        data_dir: A ``DataDir`` or the path of one; it must exist.
        runner: Program and arguments that run a job; ``--data-dir D --job ID`` is appended.
        settings: How it behaves.
        clock: Gives the present instant, for schedules and leases.
    """

    def __init__(
        self,
        data_dir: str | os.PathLike[str] | HasPath,
        *,
        runner: Sequence[str] = DEFAULT_RUNNER,
        settings: SchedulerSettings = SchedulerSettings(),
        clock: Clock = utc_now,
    ) -> None:
        self._paths = ControlPaths.of(data_dir)
        self._database = ControlDatabase(self._paths)
        self._runner = tuple(runner)
        self._settings = settings
        self._clock = clock
        self._owner = str(ProcessIdentity.own())
        self._recovery = Recovery(
            self._database, owner=self._owner, lease_s=settings.lease_s, grace_s=settings.grace_s, clock=clock
        )
        self._running: dict[Lease, RunningJob] = {}
        self._renewed_at: dict[Lease, datetime] = {}

    @property
    def running(self) -> frozenset[Lease]:
        """The leases of the jobs that it runs now."""
        return frozenset(self._running)

    def run(self, stop: StopRequest) -> None:
        """Tick until ``stop`` is set, then end the running jobs and queue them again."""
        trouble = ""
        try:
            while not stop.wait(0):
                try:
                    self.tick()
                    trouble = ""
                except DataDirectoryError as error:
                    # The named tolerance: a full disk or a database that restarts must not end the running jobs.
                    if str(error) != trouble:
                        log.error("control database: %s", error)  # noqa: TRY400 - the text is for a person
                    trouble = str(error)
                stop.wait(self._settings.poll_s)
        finally:
            self.close()

    def tick(self) -> None:
        """One look at everything."""
        for running in list(self._running.values()):
            self._watch(running)
        self._recovery.recover(mine=self.running)
        with self._database.read() as session:
            is_due = schedule_rows.any_due(session, now=self._clock())
        if is_due:
            with self._database.write() as session:
                for job_id in schedule_rows.fire_due(session, now=self._clock()):
                    log.info("job %s: submitted by its schedule", job_id)
        while len(self._running) < self._settings.slots and self._start_next():
            pass

    def close(self) -> None:
        """End the running jobs and queue them again; a wish to cancel is honoured instead."""
        for running in self._running.values():
            running.ask_end(grace_s=self._settings.grace_s)
        for lease, running in list(self._running.items()):
            status = running.end(grace_s=self._settings.grace_s)
            self._forget(lease)
            self._release(lease, status)

    def _release(self, lease: Lease, status: int) -> None:
        # A runner that ended well while we stopped has done its work; every other status may be our own doing.
        settle = outcomes.succeed if status == 0 else outcomes.release
        try:
            with self._database.write() as session:
                state = settle(session, lease, now=self._clock())
        except LeaseLostError:
            log.warning("job %s: another scheduler has it", lease.job_id)
        except DataDirectoryError as error:
            # The other jobs are to be released all the same; the next scheduler finds this lease without an owner.
            log.error("job %s: not released: %s", lease.job_id, error)  # noqa: TRY400
        else:
            log.info("job %s: %s, because the scheduler stops", lease.job_id, state)

    def _start_next(self) -> bool:
        now = self._clock()
        with self._database.read() as session:
            if not leases.any_queued(session):
                return False
        with self._database.write() as session:
            lease = leases.take_next(session, owner=self._owner, now=now, until=self._lease_until(now))
            if lease is None:
                return False
            try:
                job = job_of(find_job(session, lease.job_id))
            except DataDirectoryError as error:
                # Another version's spec: the jobs behind it must not wait for it.
                outcomes.fail(session, lease, now=now, error=str(error))
                log.error("job %s: %s", lease.job_id, error)  # noqa: TRY400
                return True
        try:
            self._running[lease] = self._launch(lease, job, now)
        except OSError as error:
            with self._database.write() as session:
                outcomes.fail(session, lease, now=now, error=f"The job's process could not be started: {error}.")
            log.error("job %s: could not be started: %s", job.id, error)  # noqa: TRY400
        except LeaseLostError:
            log.warning("job %s: lost before its process was started", job.id)
        else:
            self._renewed_at[lease] = now
            log.info("job %s: attempt %d started, pid %d", job.id, job.attempt, self._running[lease].leader.pid)
        return True

    def _launch(self, lease: Lease, job: Job, now: datetime) -> RunningJob:
        spec_path = self._paths.job_spec(job.id)
        spec_path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(spec_path, job.spec.model_dump_json(indent=2))
        return launch(
            lease,
            [*self._runner, "--data-dir", str(self._paths.root), "--job", job.id],
            environment=self._environment(lease),
            log_path=self._paths.job_log(job.id),
            header=f"=== {now:%Y-%m-%d %H:%M:%S} UTC: job {job.id}, attempt {job.attempt}",
            record=lambda leader: self._record(lease, leader),
        )

    def _environment(self, lease: Lease) -> Mapping[str, str]:
        return os.environ | {
            DATA_DIR_ENV: str(self._paths.root),
            JOB_ID_ENV: lease.job_id,
            JOB_TOKEN_ENV: str(lease.token),
            "PYTHONUNBUFFERED": "1",
        }

    def _record(self, lease: Lease, leader: ProcessIdentity) -> None:
        with self._database.write() as session:
            leases.record_runner(session, lease, str(leader))

    def _watch(self, running: RunningJob) -> None:
        lease = running.lease
        status = running.exit_status()
        try:
            if status is not None:
                self._settle(running, status)
            elif self._heartbeat(lease) is JobState.CANCELLING:
                running.ask_end(grace_s=self._settings.grace_s)
        except LeaseLostError:
            log.warning("job %s: another scheduler has it; ending our process group", lease.job_id)
            if status is None:
                running.end(grace_s=0)
            self._forget(lease)

    def _heartbeat(self, lease: Lease) -> JobState:
        now = self._clock()
        if now - self._renewed_at[lease] < timedelta(seconds=self._settings.lease_s / 3):
            with self._database.read() as session:
                return leases.state_of(session, lease)
        with self._database.write() as session:
            state = leases.renew(session, lease, until=self._lease_until(now))
        self._renewed_at[lease] = now
        return state

    def _settle(self, running: RunningJob, status: int) -> None:
        lease, now = running.lease, self._clock()
        with self._database.write() as session:
            if status == 0:
                state = outcomes.succeed(session, lease, now=now)
            elif status > 0 and status not in KILLED_STATUSES:
                error = f"The job ended with exit status {status}. Its last lines:\n{running.log_tail()}"
                state = outcomes.fail(session, lease, now=now, error=error)
            else:
                error = f"The job was killed by {_killer(status)}. Its last lines:\n{running.log_tail()}"
                state = outcomes.interrupted(session, lease, now=now, error=error)
        self._forget(lease)
        log.info("job %s: %s after exit status %d", lease.job_id, state, status)

    def _lease_until(self, now: datetime) -> datetime:
        return now + timedelta(seconds=self._settings.lease_s)

    def _forget(self, lease: Lease) -> None:
        del self._running[lease]
        self._renewed_at.pop(lease, None)


def _killer(status: int) -> str:
    number = status - SHELL_SIGNAL_BASE if status > 0 else -status
    if number == signal.SIGKILL:
        return "SIGKILL: somebody did, or the kernel, for want of memory"
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
