"""Run one job in the user's terminal instead of queueing it, so that a debugger can read from the terminal.

Invariant: the job is inserted and leased in one transaction, so no runner starts it too. This process holds the lease
and renews it in a thread, however long a debugger stops the job; when it is killed, the scheduler requeues the job. A
job whose lease could not be renewed in time is ended, because another runner may have it then.
"""

import os
import subprocess
import sys
from datetime import timedelta
from typing import Final

from spanloop.foundation.control.clock import database_time, utc_now
from spanloop.foundation.errors import DataDirectoryError
from spanloop.foundation.leases import Heartbeat, Term
from spanloop.foundation.paths import DataDir
from spanloop.foundation.processes.identity import ProcessIdentity
from spanloop.training.jobs.states import JobState

from ..jobs import job_outcomes, job_queue, leases
from ..jobs.database.control_database import ControlDatabase
from ..jobs.leases import JobLease, JobLeaseLostError
from ..jobs.paths import ControlPaths
from ..jobs.processes.job_processes import JOB_ID_ENV, JOB_TOKEN_ENV
from ..models.registry import Registry
from ..spec.job_spec import JobSpec
from ..spec.stored_spec import Job
from ..verl_plugin.override_check import check_verl
from .job_api import JobApi

_LEASE: Final = timedelta(seconds=30)
_RENEW_S: Final = 2.0
"""Interval of renewals, and so the delay of a cancellation."""


def run_in_foreground(data_dir: DataDir, spec: JobSpec) -> Job:
    """Run a job of ``spec`` now; it inherits stdin, stdout and stderr. Ctrl-C cancels it.

    Returns:
        The job after it has ended, whatever its state.

    Raises:
        ConfigurationError: verl does not have what ``verl`` or ``loggers`` ask for.
        JobError: ``spec.base`` names no registered model version.
        DataDirectoryError: The control database is unreachable.
    """
    check_verl(spec)
    Registry(data_dir).get(spec.base)
    database = ControlDatabase(ControlPaths.of(data_dir))
    lease = insert_leased(database, spec)
    command = [
        sys.executable,
        "-m",
        "spanloop.training.run.run_job",
        "--data-dir",
        str(data_dir.path),
        "--job",
        lease.job_id,
    ]
    environment = os.environ | {JOB_ID_ENV: lease.job_id, JOB_TOKEN_ENV: str(lease.token)}
    with subprocess.Popen(command, env=environment) as process, _heartbeat(database, lease, process):
        try:
            status = process.wait()
        except KeyboardInterrupt:
            # the terminal sent the signal to the job's processes too
            with database.write() as session:
                job_queue.request_cancel(session, lease.job_id, now=utc_now())
            status = process.wait()
    _record(database, lease, status)
    return JobApi(data_dir).get(lease.job_id)


def insert_leased(database: ControlDatabase, spec: JobSpec) -> JobLease:
    """Insert a running job whose lease this process holds."""
    now = utc_now()
    with database.write() as session:
        row = job_queue.insert_job(session, spec, now=now)
        until = database_time(session) + _LEASE
        lease = job_queue.lease_job(session, row, owner=str(ProcessIdentity.current()), now=now, until=until)
    assert lease is not None  # noqa: S101 - nobody else has seen the row
    return lease


def _record(database: ControlDatabase, lease: JobLease, status: int) -> None:
    with database.write() as session:
        if status == 0:
            job_outcomes.mark_succeeded(session, lease, now=utc_now())
        else:
            error = f"The job ended with exit status {status}; its messages are in the terminal that ran it."
            job_outcomes.mark_failed(session, lease, now=utc_now(), error=error)


def _heartbeat(database: ControlDatabase, lease: JobLease, process: subprocess.Popen[bytes]) -> Heartbeat:
    """Renew the lease, and end the job's process when the job is cancelled elsewhere or the lease may be lost."""
    term = Term(_LEASE.total_seconds(), margin_s=_RENEW_S)
    term.renewed(term.now_s())

    def beat() -> bool:
        began_s = term.now_s()
        try:
            with database.write() as session:
                state = leases.renew(session, lease, until=database_time(session) + _LEASE)
            term.renewed(began_s)
        except DataDirectoryError:
            # tolerance boundary: a full disk must not end a running job; the lease outlasts many renewals
            if term.is_valid:
                return True
            state = JobState.CANCELLING
        except JobLeaseLostError:
            state = JobState.CANCELLING
        if state is JobState.CANCELLING:
            process.terminate()
        return state is not JobState.CANCELLING

    return Heartbeat(beat, _RENEW_S, name="job-lease")
