"""A job runner's process: ``python -m spanloop.training.runner --data-dir D``.

It runs queued jobs, by default one at a time; several runners, on several machines, share the queue of one control
database. It needs a scheduler (``python -m spanloop.training.scheduler``) on the same control database, which requeues
the jobs of a runner that is gone and submits the jobs of schedules. It listens on no port.
"""

import argparse
import logging
import shlex
import signal
import sys
from collections.abc import Sequence
from functools import partial
from typing import Final

from spanloop.datadir import DataDir
from spanloop.semconv.environment import default_data_dir
from spanloop.semconv.errors import SpanloopError
from spanloop.training.control.job_runner import DEFAULT_RUNNER, JobRunner, RunnerSettings
from spanloop.training.control.poll_loop import wait_for_database
from spanloop.training.control.stop_signal import StopRequest

__all__ = ["JobRunner", "RunnerSettings", "add_runner_options", "main", "runner_settings"]

SERVICE: Final = "runner"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run jobs until SIGTERM or SIGINT; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m spanloop.training.runner", description=__doc__)
    parser.add_argument("--data-dir", default=str(default_data_dir()), help="the data directory (%(default)s)")
    add_runner_options(parser)
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    with StopRequest(signal.SIGTERM, signal.SIGINT) as stop:
        try:
            data_dir = DataDir(options.data_dir).open()
            with data_dir.announce(SERVICE, ""):
                runner = wait_for_database(partial(_runner, data_dir, options), stop, poll_s=options.poll_s)
                if runner is not None:
                    runner.run(stop)
        except SpanloopError as error:
            sys.stderr.write(f"{error}\n")
            return error.exit_code
    return 0


def _runner(data_dir: DataDir, options: argparse.Namespace) -> JobRunner:
    return JobRunner(data_dir, command=shlex.split(options.runner), settings=runner_settings(options))


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
