"""A job runner's process: ``python -m spanloop.training.run.runner --data-dir D``.

It runs queued jobs, by default one at a time; several runners, on several machines, share the queue of one control
database. It needs a scheduler (``python -m spanloop.training.run.scheduler``) on the same control database, which
requeues the jobs of a runner that is gone and submits the jobs of schedules. It listens on no port but that of
``--status-port``.
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
from spanloop.training.jobs.processes.control_metrics import RunnerMetrics
from spanloop.training.jobs.processes.job_runner import DEFAULT_RUNNER, JobRunner, RunnerSettings
from spanloop.training.jobs.processes.poll_loop import wait_for_database
from spanloop.training.jobs.processes.stop_signal import StopRequest
from spanloop.training.spec.stored_spec import parse_spec

__all__ = ["JobRunner", "RunnerSettings", "add_runner_options", "main", "runner_settings"]

SERVICE: Final = "runner"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run jobs until SIGTERM or SIGINT; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m spanloop.training.run.runner", description=__doc__)
    parser.add_argument("--data-dir", default=str(default_data_dir()), help="the data directory (%(default)s)")
    add_runner_options(parser)
    add_status_options(parser)
    add_log_option(parser)
    options = parser.parse_args(arguments)
    with StopRequest(signal.SIGTERM, signal.SIGINT) as stop:
        try:
            data_dir = DataDir(options.data_dir)
            configure_logging(SERVICE, data_dir.path, requested=options.log_format)
            data_dir.open()
            status, metrics = Status(SERVICE), RunnerMetrics()
            with (
                serving_status(data_dir, status_address(options), status, metrics, metrics.measure) as url,
                data_dir.announce(SERVICE, url),
            ):
                runner = wait_for_database(partial(_runner, data_dir, options), stop, poll_s=options.poll_s)
                if runner is not None:
                    metrics.watch(runner.database, runner)
                    status.set("running")
                    runner.run(stop)
        except SpanloopError as error:
            return report_failure(error)
    return 0


def _runner(data_dir: DataDir, options: argparse.Namespace) -> JobRunner:
    return JobRunner(data_dir, parse_spec, command=shlex.split(options.runner), settings=runner_settings(options))


def add_runner_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a job runner."""
    defaults = RunnerSettings()
    parser.add_argument("--poll-s", type=float, default=defaults.poll_s, help="seconds between looks (%(default)s)")
    parser.add_argument(
        "--slots", type=int, default=defaults.slots, help="jobs that run here at the same time (%(default)s)"
    )
    parser.add_argument("--gpu-slots", type=int, help="of them, jobs that may compute on a GPU; default: all of them")
    parser.add_argument(
        "--lease-s",
        type=float,
        default=defaults.lease_s,
        help="seconds after which an unrenewed lease on a job is abandoned (%(default)s)",
    )
    parser.add_argument(
        "--grace-s", type=float, default=defaults.grace_s, help="seconds between SIGTERM and SIGKILL (%(default)s)"
    )
    parser.add_argument("--runner", default=shlex.join(DEFAULT_RUNNER), help="command that runs one job (%(default)s)")


def runner_settings(options: argparse.Namespace) -> RunnerSettings:
    """Return the settings that the options name."""
    return RunnerSettings(
        poll_s=options.poll_s,
        slots=options.slots,
        gpu_slots=options.gpu_slots,
        lease_s=options.lease_s,
        grace_s=options.grace_s,
    )


if __name__ == "__main__":
    sys.exit(main())
