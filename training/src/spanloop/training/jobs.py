"""The job API: what the command line, the dashboard and a user's script say to the scheduler.

The invariant: it only writes wishes (a queued job, a cancellation, a schedule) into the control database. Processes
are the scheduler's. Needs SQLAlchemy and pydantic; no torch, no verl, no ray.
"""

import os
from datetime import datetime
from typing import Final

from spanloop.semconv.enums import JobKind, JobState
from spanloop.semconv.errors import ConfigurationError, JobError
from spanloop.training.control import job_queue, schedules
from spanloop.training.control.clock import Clock, utc_now
from spanloop.training.control.database import ControlDatabase
from spanloop.training.control.entities import Job, Schedule, job_from_row, schedule_from_row, skip_unreadable
from spanloop.training.control.leases import LeaseLostError
from spanloop.training.control.paths import ControlPaths, HasPath
from spanloop.training.control.progress import job_token, report_progress
from spanloop.training.control.schedules import check_cron, check_instant, next_firing
from spanloop.training.job_spec import Device, JobSpec
from spanloop.training.registry import Registry

__all__ = [
    "Device",
    "Job",
    "JobApi",
    "JobKind",
    "JobSpec",
    "JobState",
    "LeaseLostError",
    "Schedule",
    "job_token",
    "report_progress",
]

DEFAULT_TAIL_BYTES: Final = 64 * 1024


class JobApi:
    """Submit, watch, cancel and schedule training jobs.

    Safe to share between threads; cheap to make.

    Args:
        data_dir: A ``DataDir`` or the path of one; it must exist.
        clock: Gives the present instant.

    Raises:
        ConfigurationError: ``SPANLOOP_CONTROL_URL`` cannot be used.
        DataDirectoryError: The control database is out of reach, or a newer spanloop wrote it.
    """

    def __init__(self, data_dir: str | os.PathLike[str] | HasPath, *, clock: Clock = utc_now) -> None:
        self._paths = ControlPaths.of(data_dir)
        self._database = ControlDatabase(self._paths)
        self._registry = Registry(data_dir)
        self._clock = clock

    def submit(self, spec: JobSpec) -> Job:
        """Queue a job; a running scheduler starts it when it is next.

        Raises:
            JobError: The registry has no version that ``spec.base`` names.
        """
        self._registry.get(spec.base)
        with self._database.write() as session:
            return job_from_row(job_queue.insert_job(session, spec, now=self._clock()))

    def get(self, job_id: str) -> Job:
        """The job as it is now.

        Raises:
            JobError: There is no such job.
            DataDirectoryError: Another version of spanloop stored it.
        """
        with self._database.read() as session:
            return job_from_row(job_queue.find_job(session, job_id))

    def list(self, *, limit: int = 1000) -> tuple[Job, ...]:
        """The newest jobs, newest first; those that another version of spanloop stored are logged and left out."""
        with self._database.read() as session:
            return tuple(skip_unreadable(job_queue.list_jobs(session, limit=limit), job_from_row))

    def cancel(self, job_id: str) -> Job:
        """Cancel a queued job at once, a running one within seconds; a finished one stays as it is.

        Raises:
            JobError: There is no such job.
        """
        with self._database.write() as session:
            job_queue.find_job(session, job_id)
            job_queue.request_cancel(session, job_id, now=self._clock())
            return job_from_row(job_queue.find_job(session, job_id))

    def retry(self, job_id: str) -> Job:
        """Queue a failed or cancelled job again: same id, same folder, so that it goes on from its last checkpoint.

        Raises:
            JobError: There is no such job, or it has not failed.
        """
        with self._database.write() as session:
            found = job_queue.find_job(session, job_id)
            if not job_queue.requeue_finished(session, job_id):
                raise JobError(
                    f"Job {job_id} is {found.state}; only a failed or cancelled job can be retried.",
                    next_step="Submit a new job with the same spec.",
                )
            return job_from_row(job_queue.find_job(session, job_id))

    def log(self, job_id: str, *, tail_bytes: int = DEFAULT_TAIL_BYTES) -> str:
        """The end of what the job printed, all attempts in order; empty before its first start.

        Raises:
            JobError: There is no such job.
        """
        with self._database.read() as session:
            job_queue.find_job(session, job_id)
        try:
            with self._paths.job_log(job_id).open("rb") as log:
                size_bytes = log.seek(0, os.SEEK_END)
                log.seek(max(0, size_bytes - tail_bytes))
                return log.read(tail_bytes).decode(errors="replace")
        except FileNotFoundError:
            return ""

    def schedule(self, spec: JobSpec, *, cron: str | None = None, at: datetime | None = None) -> Schedule:
        """Submit ``spec`` again and again, or once at a given time.

        Args:
            spec: The job. Its base is looked up when the job runs.
            cron: Five cron fields (minute hour day month weekday), in UTC.
            at: One aware instant; one that has passed is due at once.

        Raises:
            ConfigurationError: Neither or both are given, or what is given can never fire.
        """
        now = self._clock()
        if cron is not None and at is None:
            normal_cron = check_cron(cron)
            next_at = next_firing(normal_cron, now)
        elif at is not None and cron is None:
            normal_cron, next_at = "", check_instant(at)
        else:
            raise ConfigurationError(
                "A schedule needs either a cron expression or a time, and not both.",
                next_step="Give cron='0 3 * * *' or at=datetime(…, tzinfo=UTC).",
            )
        with self._database.write() as session:
            row = schedules.insert_schedule(session, spec, cron=normal_cron, next_at=next_at, now=now)
            return schedule_from_row(row)

    def schedules(self) -> tuple[Schedule, ...]:
        """All schedules, oldest first; those that have fired for the last time have no ``next_at``.

        What another version of spanloop stored is logged and left out.
        """
        with self._database.read() as session:
            return tuple(skip_unreadable(schedules.list_schedules(session), schedule_from_row))

    def unschedule(self, schedule_id: str) -> None:
        """Forget a schedule; jobs that it has submitted stay.

        Raises:
            JobError: There is no such schedule.
        """
        with self._database.write() as session:
            schedules.delete_schedule(session, schedule_id)
