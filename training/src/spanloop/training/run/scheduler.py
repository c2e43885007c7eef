"""The scheduler process: ``python -m spanloop.training.run.scheduler --data-dir D``.

It submits the jobs of schedules, requeues the jobs of runners that are gone, decides about canaries, and sends alerts.
It also runs queued jobs, by default one at a time; ``--slots 0`` leaves them to job runners,
``python -m spanloop.training.run.runner``. Of several schedulers on one control database one is active, and
another one takes over when it ends or dies. It listens on no port.
"""

import signal
import sys
from collections.abc import Sequence
from functools import partial

from spanloop.foundation.paths import DataDir
from spanloop.foundation.settings.roles import SchedulerSettings
from spanloop.foundation.settings.sources import Process
from spanloop.foundation.telemetry.role_process import run_role
from spanloop.foundation.telemetry.status import Status
from spanloop.foundation.telemetry.status_listener import serving_status, status_address
from spanloop.training.alerts.watch import watching_alerts
from spanloop.training.jobs.processes.control_metrics import SchedulerMetrics
from spanloop.training.jobs.processes.poll_loop import wait_for_database
from spanloop.training.jobs.processes.scheduler_loop import Scheduler
from spanloop.training.jobs.processes.stop_signal import StopRequest
from spanloop.training.promotion.canary.watch import watching_canary
from spanloop.training.run.runner import JobRunner, RunnerSettings, job_runner
from spanloop.training.spec.stored_spec import parse_any_spec

__all__ = ["JobRunner", "RunnerSettings", "Scheduler", "SchedulerSettings", "StopRequest", "main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the scheduler until SIGTERM or SIGINT; return the exit code."""
    with StopRequest(signal.SIGTERM, signal.SIGINT) as stop:
        return run_role(SchedulerSettings, partial(_run, stop), arguments)


def _run(stop: StopRequest, process: Process[SchedulerSettings]) -> None:
    data_dir, settings = DataDir(process.data_dir).open(), process.settings
    status, metrics = Status(settings.role), SchedulerMetrics()
    with (
        serving_status(data_dir, status_address(settings), status, metrics, metrics.measure) as url,
        data_dir.announce(settings.role, url),
    ):
        scheduler = wait_for_database(partial(_scheduler, data_dir, settings), stop, poll_s=settings.poll_s)
        if scheduler is not None:
            metrics.watch_scheduler(scheduler)
            status.set("running")
            with (
                watching_canary(data_dir, is_leading=scheduler.is_leading),
                watching_alerts(data_dir, is_leading=scheduler.is_leading),
            ):
                scheduler.run(stop)


def _scheduler(data_dir: DataDir, settings: SchedulerSettings) -> Scheduler:
    jobs = job_runner(data_dir, settings) if settings.slots else None
    return Scheduler(data_dir, parse_any_spec, jobs=jobs, settings=settings)


if __name__ == "__main__":
    sys.exit(main())
