"""The job runner: lease queued jobs, run each in processes of its own, and record how it ended.

`job_queue.lease_next_job` decides which job runs next; several runners, on several machines, share one queue.

Invariant: a job's processes run only while this runner holds the job's lease. When the lease was not renewed in time,
because the control database is away or this process hangs or died, the job's reaper kills them before another runner
may start the job (`process_launch`). The database holds everything that a runner knows, so it may be killed at any
instant; the active scheduler then requeues its jobs (`recovery`).
"""

import errno
import logging
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from sqlalchemy.orm import Session

from spanloop.foundation.control.clock import Clock, LeaseTime, database_time, utc_now
from spanloop.foundation.errors import DataDirectoryError
from spanloop.foundation.leases import Term
from spanloop.foundation.processes.identity import ProcessIdentity
from spanloop.foundation.settings.roles import JobSettings, RunnerSettings
from spanloop.semconv.environment import DATA_DIR_ENV
from spanloop.training.jobs import job_outcomes, job_queue, leases
from spanloop.training.jobs.database.control_database import ControlDatabase
from spanloop.training.jobs.database.tables import JobRow
from spanloop.training.jobs.entities import StoredJob, job_from_row, uses_gpu
from spanloop.training.jobs.job_queue import find_job
from spanloop.training.jobs.leases import JobLease, JobLeaseLostError
from spanloop.training.jobs.paths import ControlPaths, HasPath
from spanloop.training.jobs.processes.attempt_limits import AttemptLimits, Ending
from spanloop.training.jobs.processes.job_processes import JOB_ID_ENV, JOB_LEASE_ENV, JOB_TOKEN_ENV, lease_mark
from spanloop.training.jobs.processes.poll_loop import poll
from spanloop.training.jobs.processes.process_launch import RunningJob, launch
from spanloop.training.jobs.processes.stop_signal import StopRequest
from spanloop.training.jobs.queued_spec import ParseSpec, QueuedSpec
from spanloop.training.jobs.states import JobState

log = logging.getLogger("spanloop.training.run.runner")

SHELL_SIGNAL_BASE: Final = 128
KILLED_STATUSES: Final = frozenset(
    SHELL_SIGNAL_BASE + number for number in (signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGTERM)
)
"""Exit statuses of a runner that was ended by a signal which it, or its child, caught."""
KEPT_SHARE: Final = 5 / 6
"""A job is killed when this share of its lease has passed without a renewal; the rest is time to do it."""
_UNWATCHED: Final = Ending("The process that ends the job with its lease was killed.", is_final=False)

DEFAULT_RUNNER: Final = (sys.executable, "-m", "spanloop.training.run.run_job")


class JobRunner:
    """Runs queued jobs of one control database.

    Args:
        data_dir: The data directory, or its path; it must exist.
        parse_spec: Reads the specifications of jobs.
        command: Program and arguments that run a job; ``--data-dir D --job ID`` is appended.
        settings: Intervals, slots and lease durations.
        clock: Returns the current time; None is the machine's clock, and the database's for leases.
    """

    def __init__(
        self,
        data_dir: str | os.PathLike[str] | HasPath,
        parse_spec: ParseSpec[QueuedSpec],
        *,
        command: Sequence[str] = DEFAULT_RUNNER,
        settings: JobSettings = RunnerSettings(),
        clock: Clock | None = None,
    ) -> None:
        self._paths = ControlPaths.of(data_dir)
        self.database = ControlDatabase(self._paths)
        self._parse_spec = parse_spec
        self._command = tuple(command)
        self.settings = settings
        self._clock = clock or utc_now
        self._lease_time: LeaseTime = database_time if clock is None else lambda _: clock()
        self._elapsed_s = time.monotonic if clock is None else lambda: clock().timestamp()
        self._owner = str(ProcessIdentity.current())
        self.ended: Counter[JobState] = Counter()
        """Attempts that ended here, by the state of the job after it."""
        self._running: dict[JobLease, RunningJob] = {}
        self._terms: dict[JobLease, Term] = {}
        self._limits: dict[JobLease, AttemptLimits] = {}

    @property
    def running(self) -> frozenset[JobLease]:
        """The leases of the jobs that are running now."""
        return frozenset(self._running)

    def run(self, stop: StopRequest) -> None:
        """Run jobs until ``stop`` is set, then end the running jobs and requeue them."""
        try:
            poll(self.tick, stop, poll_s=self.settings.poll_s)
        finally:
            self.close()

    def tick(self) -> None:
        """Watch running jobs and start queued ones, once."""
        self.watch()
        self.start()

    def watch(self) -> None:
        """Renew the leases of running jobs, end those that have to end, record those that have ended."""
        # First all of them, because an error of the database ends this look.
        statuses = [(running, running.exit_status()) for running in self._running.values()]
        for running, status in statuses:
            self._watch(running, status)

    def start(self) -> None:
        """Start queued jobs as long as there are slots."""
        while len(self._running) < self.settings.slots and self._start_next():
            pass

    def close(self) -> None:
        """End the running jobs and requeue them; jobs with a cancellation request become cancelled."""
        for running in self._running.values():
            running.request_end(grace_s=self.settings.grace_s)
        for lease, running in list(self._running.items()):
            status = running.end(grace_s=self.settings.grace_s)
            self._forget(lease)
            self._release(lease, status)

    def _release(self, lease: JobLease, status: int) -> None:
        # A job that exited with 0 meanwhile has succeeded; this runner may have caused any other status.
        record_outcome = job_outcomes.mark_succeeded if status == 0 else job_outcomes.requeue_released
        try:
            with self.database.write() as session:
                state = record_outcome(session, lease, now=self._clock())
        except JobLeaseLostError:
            log.warning("job %s: another runner holds its lease", lease.job_id)
        except DataDirectoryError as error:
            # Release the remaining jobs anyway; the scheduler finds that the owner of this lease has ended.
            log.error("job %s: could not be released: %s", lease.job_id, error)  # noqa: TRY400
        else:
            self.ended[state] += 1
            log.info("job %s: %s, because the runner stops", lease.job_id, state)

    def _start_next(self) -> bool:
        now, began_s = self._clock(), time.monotonic()
        with self.database.read() as session:
            if next(job_queue.startable_jobs(session, now=now, accepts=self._has_slot), None) is None:
                return False
        with self.database.write() as session:
            until = self._lease_until(session)
            lease = job_queue.lease_next_job(session, owner=self._owner, now=now, until=until, accepts=self._has_slot)
            if lease is None:
                return False
            try:
                job = job_from_row(find_job(session, lease.job_id), self._parse_spec)
            except DataDirectoryError as error:
                # Another version of spanloop wrote the spec: the jobs behind it must not wait.
                job_outcomes.mark_failed(session, lease, now=now, error=str(error))
                log.error("job %s: %s", lease.job_id, error)  # noqa: TRY400
                return True
        try:
            self._running[lease] = self._launch(lease, job, now, began_s + KEPT_SHARE * self.settings.lease_s)
        except OSError as error:
            is_full = error.errno in {errno.ENOSPC, errno.EDQUOT}
            record_outcome = job_outcomes.requeue_transient if is_full else job_outcomes.mark_failed
            with self.database.write() as session:
                record_outcome(session, lease, now=now, error=f"The job's process could not be started: {error}.")
            log.error("job %s: could not be started: %s", job.id, error)  # noqa: TRY400
        except JobLeaseLostError:
            log.warning("job %s: lease lost before its process started", job.id)
        else:
            self._terms[lease] = term = Term(self.settings.lease_s, elapsed_s=self._elapsed_s)
            term.renewed(term.now_s())
            self._limits[lease] = AttemptLimits(job, started_at=now, stopped_s=self.settings.stopped_s)
            log.info("job %s: attempt %d started, pid %d", job.id, job.attempt, self._running[lease].leader.pid)
        return True

    def _has_slot(self, row: JobRow) -> bool:
        limit = self.settings.gpu_slots
        if limit is None or not uses_gpu(row, self._parse_spec):
            return True
        return sum(limits.uses_gpu for limits in self._limits.values()) < limit

    def _launch(self, lease: JobLease, job: StoredJob[QueuedSpec], now: datetime, keep_until_s: float) -> RunningJob:
        return launch(
            lease,
            [*self._command, "--data-dir", str(self._paths.root), "--job", job.id],
            environment=self._environment(lease),
            log_path=self._paths.job_log(job.id),
            header=f"=== {now:%Y-%m-%d %H:%M:%S} UTC: job {job.id}, attempt {job.attempt}",
            record=lambda leader: self._record(lease, leader),
            keep_until_s=keep_until_s,
        )

    def _environment(self, lease: JobLease) -> Mapping[str, str]:
        return os.environ | {
            DATA_DIR_ENV: str(self._paths.root),
            JOB_ID_ENV: lease.job_id,
            JOB_TOKEN_ENV: str(lease.token),
            JOB_LEASE_ENV: lease_mark(lease.job_id, lease.token).prefix,
            "PYTHONUNBUFFERED": "1",
        }

    def _record(self, lease: JobLease, leader: ProcessIdentity) -> None:
        with self.database.write() as session:
            leases.record_runner(session, lease, str(leader))

    def _watch(self, running: RunningJob, status: int | None) -> None:
        lease = running.lease
        try:
            if status is not None:
                self._record_exit(running, status)
            elif self._must_end(running):
                running.request_end(grace_s=self.settings.grace_s)
        except JobLeaseLostError:
            log.warning("job %s: another process holds its lease; ending our process group", lease.job_id)
            if status is None:
                running.end(grace_s=0)
            self._forget(lease)

    def _must_end(self, running: RunningJob) -> bool:
        limits = self._limits[running.lease]
        is_cancelled = self._heartbeat(running) is JobState.CANCELLING
        return is_cancelled or limits.look(running, self._clock()) is not None

    def _heartbeat(self, running: RunningJob) -> JobState:
        lease, term, began_s = running.lease, self._terms[running.lease], time.monotonic()
        term_began_s = term.now_s()
        if not term.is_due:
            with self.database.read() as session:
                return leases.state_of(session, lease)
        with self.database.write() as session:
            state = leases.renew(session, lease, until=self._lease_until(session))
        term.renewed(term_began_s)
        if not running.keep_until(began_s + KEPT_SHARE * self.settings.lease_s):
            self._limits[lease].ending = self._limits[lease].ending or _UNWATCHED
        return state

    def _record_exit(self, running: RunningJob, status: int) -> None:
        lease, now = running.lease, self._clock()
        limits = self._limits[lease]
        ending = limits.ending
        requeue_interrupted = partial(job_outcomes.requeue_interrupted, max_attempts=limits.max_attempts)
        with self.database.write() as session:
            if status == 0:
                state = job_outcomes.mark_succeeded(session, lease, now=now)
            elif running.has_expired:
                log.warning("job %s: its lease could not be renewed in time, so it was ended", lease.job_id)
                state = job_outcomes.requeue_released(session, lease, now=now)
            elif ending is not None:
                record_outcome = job_outcomes.mark_failed if ending.is_final else requeue_interrupted
                state = record_outcome(session, lease, now=now, error=f"{ending.error} {_last_lines(running)}")
            elif status == os.EX_TEMPFAIL:
                state = job_outcomes.requeue_transient(session, lease, now=now, error=_last_lines(running))
            elif status > 0 and status not in KILLED_STATUSES:
                error = f"The job ended with exit status {status}. {_last_lines(running)}"
                state = job_outcomes.mark_failed(session, lease, now=now, error=error)
            else:
                error = f"The job was killed by {_signal_name(status)}. {_last_lines(running)}"
                state = requeue_interrupted(session, lease, now=now, error=error)
        self._forget(lease)
        self.ended[state] += 1
        log.info("job %s: %s after exit status %d", lease.job_id, state, status)

    def _lease_until(self, session: Session) -> datetime:
        return self._lease_time(session) + timedelta(seconds=self.settings.lease_s)

    def _forget(self, lease: JobLease) -> None:
        del self._running[lease]
        self._terms.pop(lease, None)
        self._limits.pop(lease, None)


def _last_lines(running: RunningJob) -> str:
    return f"Its last lines:\n{running.log_tail()}"


def _signal_name(status: int) -> str:
    number = status - SHELL_SIGNAL_BASE if status > 0 else -status
    if number == signal.SIGKILL:
        return "SIGKILL, by a user or by the kernel for lack of memory"
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
