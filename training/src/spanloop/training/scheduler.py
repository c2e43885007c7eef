"""The scheduler process: ``python -m spanloop.training.scheduler --data-dir D``.

It runs queued and scheduled jobs, by default one at a time, and decides about canaries. After a kill, the next
scheduler on the same data directory continues from the control database. It listens on no port. A lock file allows one
scheduler for a data directory.
"""

import argparse
import fcntl
import logging
import os
import shlex
import signal
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Final

from spanloop.datadir import DataDir
from spanloop.semconv.environment import default_data_dir
from spanloop.semconv.errors import AlreadyRunningError, SpanloopError
from spanloop.training.control.scheduler_loop import DEFAULT_RUNNER, Scheduler, SchedulerSettings
from spanloop.training.control.stop_signal import StopRequest
from spanloop.training.promotion.canary_watch import watching_canary

__all__ = ["Scheduler", "SchedulerSettings", "StopRequest", "main"]

SERVICE: Final = "scheduler"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the scheduler until SIGTERM or SIGINT; return the exit code."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    settings = SchedulerSettings(
        poll_s=options.poll_s,
        slots=options.slots,
        gpu_slots=options.gpu_slots,
        lease_s=options.lease_s,
        grace_s=options.grace_s,
    )
    with StopRequest(signal.SIGTERM, signal.SIGINT) as stop:
        try:
            data_dir = DataDir(options.data_dir).open()
            with _scheduler_lock(data_dir):
                scheduler = Scheduler(data_dir, runner=shlex.split(options.runner), settings=settings)
                with data_dir.announce(SERVICE, ""), watching_canary(data_dir):
                    scheduler.run(stop)
        except SpanloopError as error:
            sys.stderr.write(f"{error}\n")
            return error.exit_code
    return 0


def _parser() -> argparse.ArgumentParser:
    defaults = SchedulerSettings()
    parser = argparse.ArgumentParser(prog="python -m spanloop.training.scheduler", description=__doc__)
    parser.add_argument("--data-dir", default=str(default_data_dir()), help="the data directory (%(default)s)")
    parser.add_argument("--poll-s", type=float, default=defaults.poll_s, help="seconds between ticks (%(default)s)")
    parser.add_argument(
        "--slots", type=int, default=defaults.slots, help="jobs that run at the same time (%(default)s)"
    )
    parser.add_argument("--gpu-slots", type=int, help="of them, jobs that may compute on a GPU; default: all of them")
    parser.add_argument(
        "--lease-s", type=float, default=defaults.lease_s, help="seconds after which an unrenewed lease is taken over"
    )
    parser.add_argument("--grace-s", type=float, default=defaults.grace_s, help="seconds between SIGTERM and SIGKILL")
    parser.add_argument("--runner", default=shlex.join(DEFAULT_RUNNER), help="command that runs one job (%(default)s)")
    return parser


@contextmanager
def _scheduler_lock(data_dir: DataDir) -> Generator[None]:
    """Hold the scheduler lock of the data directory; the kernel releases it however the process ends."""
    descriptor = os.open(data_dir.run / "scheduler.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            running_service = data_dir.running(SERVICE)
            pid = f", pid {running_service.pid}" if running_service else ""
            raise AlreadyRunningError(
                f"A scheduler already runs on the data directory {data_dir.path}{pid}.",
                next_step="Use that scheduler, or pass another directory with --data-dir.",
            ) from error
        yield
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    sys.exit(main())
