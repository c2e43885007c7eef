"""What the process that runs a job writes into the control database: completed steps, and that it evaluates."""

import os

from spanloop.foundation.errors import JobError
from spanloop.training.jobs.database.control_database import ControlDatabase
from spanloop.training.jobs.leases import JobLease, begin_evaluation, record_progress
from spanloop.training.jobs.paths import ControlPaths, HasPath
from spanloop.training.jobs.processes.job_processes import JOB_TOKEN_ENV


def report_progress(data_dir: str | os.PathLike[str] | HasPath, job_id: str, token: int, step: int, total: int) -> None:
    """Store that ``step`` of ``total`` optimiser steps are completed; called by the runner process.

    Args:
        data_dir: The data directory, or its path.
        job_id: The job.
        token: The fencing token of this process: ``job_token()``.
        step: Completed steps, counted over all attempts of the job.
        total: Steps of the job in total.

    Raises:
        JobLeaseLostError: Another runner holds the job, or it no longer runs; the process must stop.
    """
    if not 0 <= step <= total:
        raise ValueError(f"progress of job {job_id}: got step {step} of {total}, expected 0 ≤ step ≤ total")
    lease = JobLease(job_id, token)
    with ControlDatabase(ControlPaths.of(data_dir)).write() as session:
        record_progress(session, lease, step=step, total=total)


def report_evaluation(data_dir: str | os.PathLike[str] | HasPath, job_id: str, token: int) -> None:
    """Store that the job has trained and is evaluated now; called by the runner process.

    Raises:
        JobLeaseLostError: Another runner holds the job, or it no longer runs; the process must stop.
    """
    with ControlDatabase(ControlPaths.of(data_dir)).write() as session:
        begin_evaluation(session, JobLease(job_id, token))


def job_token() -> int:
    """Return the fencing token of this process.

    Raises:
        JobError: This process was not started by the scheduler.
    """
    text = os.environ.get(JOB_TOKEN_ENV, "")
    if not text.isdecimal():
        raise JobError(
            f"{JOB_TOKEN_ENV} is {text!r}: this process has no lease on a job.",
            next_step="Let the scheduler run the job: spanloop up, then spanloop train.",
        )
    return int(text)
