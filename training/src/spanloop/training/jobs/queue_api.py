"""Look up, list, cancel and repeat jobs of every kind, and read their logs.

Invariant: it only writes requests into the control database; only the scheduler starts and ends processes.
"""

import os
from typing import Final, Generic

from spanloop.foundation.control.clock import Clock, utc_now
from spanloop.foundation.errors import JobError

from . import job_queue
from .database.control_database import ControlDatabase
from .entities import StoredJob, job_from_row, skip_unreadable
from .job_queue import EVERY_KIND, Kinds
from .paths import ControlPaths, HasPath
from .queued_spec import ParseSpec, SpecT_co

DEFAULT_TAIL_BYTES: Final = 64 * 1024


class QueueApi(Generic[SpecT_co]):
    """The jobs of one control database. Thread-safe and cheap to construct.

    Args:
        data_dir: The data directory, or its path; it must exist.
        parse_spec: Reads the specifications of the jobs.
        kinds: The kinds of jobs that are listed.
        clock: Returns the current time.

    Raises:
        ConfigurationError: ``SPANLOOP_CONTROL_URL`` cannot be used.
        DataDirectoryError: The control database is unreachable, or a newer spanloop wrote it.
    """

    def __init__(
        self,
        data_dir: str | os.PathLike[str] | HasPath,
        parse_spec: ParseSpec[SpecT_co],
        *,
        kinds: Kinds = EVERY_KIND,
        clock: Clock = utc_now,
    ) -> None:
        self._paths = ControlPaths.of(data_dir)
        self._database = ControlDatabase(self._paths)
        self._parse_spec = parse_spec
        self._kinds = kinds
        self._clock = clock

    def get(self, job_id: str) -> StoredJob[SpecT_co]:
        """Return the current state of a job.

        Raises:
            JobError: There is no such job.
            DataDirectoryError: Another version of spanloop stored it.
        """
        with self._database.read() as session:
            return job_from_row(job_queue.find_job(session, job_id), self._parse_spec)

    def list(self, *, limit: int = 1000) -> tuple[StoredJob[SpecT_co], ...]:
        """Return jobs, newest first; jobs that another version of spanloop stored are logged and skipped."""
        with self._database.read() as session:
            rows = job_queue.list_jobs(session, limit=limit, kinds=self._kinds)
            return tuple(skip_unreadable(rows, lambda row: job_from_row(row, self._parse_spec)))

    def cancel(self, job_id: str) -> StoredJob[SpecT_co]:
        """Cancel a queued job at once and a running one within seconds; a finished job does not change.

        Raises:
            JobError: There is no such job.
        """
        with self._database.write() as session:
            job_queue.find_job(session, job_id)
            job_queue.request_cancel(session, job_id, now=self._clock())
            return job_from_row(job_queue.find_job(session, job_id), self._parse_spec)

    def retry(self, job_id: str) -> StoredJob[SpecT_co]:
        """Requeue a failed or cancelled job with the same id and folder, so that it continues where it ended.

        Raises:
            JobError: There is no such job, it has not failed, or another job of its schedule took its place.
        """
        with self._database.write() as session:
            row = job_queue.find_job(session, job_id)
            successor = job_queue.successor_of(session, row)
            if successor:
                raise JobError(
                    f"Job {job_id} cannot be retried: {successor} of the same schedule trains, or trained, on its "
                    "episodes.",
                    next_step=f"Look at that job: spanloop jobs show {successor}",
                )
            if not job_queue.requeue_finished(session, job_id, now=self._clock()):
                raise JobError(
                    f"Job {job_id} is {row.state}; only a failed or cancelled job can be retried.",
                    next_step="Submit a new job with the same spec.",
                )
            return job_from_row(job_queue.find_job(session, job_id), self._parse_spec)

    def log(self, job_id: str, *, tail_bytes: int = DEFAULT_TAIL_BYTES) -> str:
        """Return the end of the job's log, all attempts in order; empty before the first start.

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
