"""A job runner's process: ``python -m spanloop.training.run.runner --data-dir D``.

It runs queued jobs, by default one at a time, and attempts of ``spanloop run --pool``; several runners, on several
machines, share the queue of one control database. It needs a scheduler (``python -m spanloop.training.run.scheduler``)
on the same control database, which requeues the jobs of a runner that is gone and submits the jobs of schedules. It
listens on no port but that of ``--status-port``.
"""

import shlex
import signal
import sys
from collections.abc import Sequence
from functools import partial

from spanloop.foundation.paths import DataDir
from spanloop.foundation.settings.roles import JobSettings, RunnerSettings
from spanloop.foundation.settings.sources import Process
from spanloop.foundation.telemetry.role_process import run_role
from spanloop.foundation.telemetry.status import Status
from spanloop.foundation.telemetry.status_listener import serving_status, status_address
from spanloop.training.attempt_pool.offers import Offers
from spanloop.training.attempt_pool.worker_process import AttemptWorker
from spanloop.training.jobs.processes.control_metrics import RunnerMetrics
from spanloop.training.jobs.processes.job_runner import DEFAULT_RUNNER, JobRunner
from spanloop.training.jobs.processes.poll_loop import poll, wait_for_database
from spanloop.training.jobs.processes.stop_signal import StopRequest
from spanloop.training.spec.stored_spec import parse_any_spec

__all__ = ["JobRunner", "RunnerSettings", "job_runner", "main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run jobs until SIGTERM or SIGINT; return the exit code."""
    with StopRequest(signal.SIGTERM, signal.SIGINT) as stop:
        return run_role(RunnerSettings, partial(_run, stop), arguments)


def _run(stop: StopRequest, process: Process[RunnerSettings]) -> None:
    data_dir, settings = DataDir(process.data_dir).open(), process.settings
    status, metrics = Status(settings.role), RunnerMetrics()
    with (
        serving_status(data_dir, status_address(settings), status, metrics, metrics.measure) as url,
        data_dir.announce(settings.role, url),
    ):
        runner = wait_for_database(partial(job_runner, data_dir, settings), stop, poll_s=settings.poll_s)
        if runner is not None:
            metrics.watch(runner.database, runner)
            status.set("running")
            _run_jobs_and_attempts(data_dir, settings, runner, stop)


def _run_jobs_and_attempts(data_dir: DataDir, settings: RunnerSettings, jobs: JobRunner, stop: StopRequest) -> None:
    attempts = AttemptWorker(
        data_dir,
        Offers(jobs.database),
        slots=settings.attempt_slots,
        lease_s=settings.lease_s,
        grace_s=settings.grace_s,
    )

    def tick() -> None:
        jobs.tick()
        attempts.tick()

    try:
        poll(tick, stop, poll_s=settings.poll_s)
    finally:
        attempts.close()
        jobs.close()


def job_runner(data_dir: DataDir, settings: JobSettings) -> JobRunner:
    """Return the job runner that the settings describe."""
    return JobRunner(
        data_dir, parse_any_spec, command=shlex.split(settings.runner) or DEFAULT_RUNNER, settings=settings
    )


if __name__ == "__main__":
    sys.exit(main())
