"""The scheduler process: ``python -m spanloop.training.run.scheduler --data-dir D``.

It submits the jobs of schedules, requeues the jobs of runners that are gone, and decides about canaries. It also runs
queued jobs, by default one at a time; ``--slots 0`` leaves them to job runners,
``python -m spanloop.training.run.runner``. Of several schedulers on one control database one is active, and
another one takes over when it ends or dies. It listens on no port.
"""

import argparse
import shlex
import signal
import sys
from collections.abc import Sequence
from functools import partial
from typing import Final

from spanloop.foundation.errors import SpanloopError
from spanloop.foundation.paths import DataDir
from spanloop.foundation.telemetry.logs import add_log_option, configure_logging, report_failure
from spanloop.foundation.telemetry.status import Status
from spanloop.foundation.telemetry.status_listener import add_status_options, serving_status, status_address
from spanloop.semconv.environment import default_data_dir
from spanloop.training.jobs.processes.control_metrics import SchedulerMetrics
from spanloop.training.jobs.processes.poll_loop import wait_for_database
from spanloop.training.jobs.processes.scheduler_loop import Scheduler, SchedulerSettings
from spanloop.training.jobs.processes.stop_signal import StopRequest
from spanloop.training.promotion.canary.watch import watching_canary
from spanloop.training.run.runner import JobRunner, RunnerSettings, add_runner_options, runner_settings
from spanloop.training.spec.stored_spec import parse_spec

__all__ = ["JobRunner", "RunnerSettings", "Scheduler", "SchedulerSettings", "StopRequest", "main"]

SERVICE: Final = "scheduler"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the scheduler until SIGTERM or SIGINT; return the exit code."""
    options = _parser().parse_args(arguments)
    with StopRequest(signal.SIGTERM, signal.SIGINT) as stop:
        try:
            data_dir = DataDir(options.data_dir)
            configure_logging(SERVICE, data_dir.path, requested=options.log_format)
            data_dir.open()
            status, metrics = Status(SERVICE), SchedulerMetrics()
            with (
                serving_status(data_dir, status_address(options), status, metrics, metrics.measure) as url,
                data_dir.announce(SERVICE, url),
            ):
                scheduler = wait_for_database(partial(_scheduler, data_dir, options), stop, poll_s=options.poll_s)
                if scheduler is not None:
                    metrics.watch_scheduler(scheduler)
                    status.set("running")
                    with watching_canary(data_dir, is_leading=scheduler.is_leading):
                        scheduler.run(stop)
        except SpanloopError as error:
            return report_failure(error)
    return 0


def _scheduler(data_dir: DataDir, options: argparse.Namespace) -> Scheduler:
    jobs = None
    if options.slots:
        jobs = JobRunner(data_dir, parse_spec, command=shlex.split(options.runner), settings=runner_settings(options))
    settings = SchedulerSettings(
        poll_s=options.poll_s,
        leadership_s=options.leadership_s,
        lease_s=options.lease_s,
        grace_s=options.grace_s,
    )
    return Scheduler(data_dir, parse_spec, jobs=jobs, settings=settings)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m spanloop.training.run.scheduler", description=__doc__)
    parser.add_argument("--data-dir", default=str(default_data_dir()), help="the data directory (%(default)s)")
    add_runner_options(parser)
    add_status_options(parser)
    add_log_option(parser)
    parser.add_argument(
        "--leadership-s",
        type=float,
        default=SchedulerSettings().leadership_s,
        help="seconds after which another scheduler takes over from one that died (%(default)s)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
