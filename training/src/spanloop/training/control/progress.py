"""What the process that runs a job says to the control state, under the fencing token that it was started with."""

import os

from spanloop.semconv.errors import JobError
from spanloop.training.control.database import ControlDatabase
from spanloop.training.control.job_processes import JOB_TOKEN_ENV
from spanloop.training.control.leases import Lease, record_progress
from spanloop.training.control.paths import ControlPaths, HasPath


def report_progress(
    data_dir: str | os.PathLike[str] | HasPath,
    job_id: str,
    token: int,
    step: int,
    total: int,
) -> None:
    """Note that ``step`` of ``total`` optimiser steps are done; called by the job's own process.

    Args:
        data_dir: A ``DataDir`` or the path of one.
        job_id: The job.
        token: The fencing token that this process was started with: ``job_token()``.
        step: Steps done, counted from the job's beginning and not from this attempt's.
        total: Steps that the job will do.

    Raises:
        LeaseLostError: The job was given to another runner, or is no longer running: stop.
    """
    if not 0 <= step <= total:
        raise ValueError(f"progress of job {job_id}: got step {step} of {total}, expected 0 ≤ step ≤ total")
    lease = Lease(job_id, token)
    with ControlDatabase(ControlPaths.of(data_dir)).write() as session:
        record_progress(session, lease, step=step, total=total)


def job_token() -> int:
    """The fencing token of this process.

    Raises:
        JobError: This process was not started by the scheduler.
    """
    text = os.environ.get(JOB_TOKEN_ENV, "")
    if not text.isdecimal():
        raise JobError(
            f"{JOB_TOKEN_ENV} is {text!r}: this process holds no lease on a job.",
            next_step="Let the scheduler run the job: spanloop up, then spanloop train.",
        )
    return int(text)
