"""The process that decides about due ticks of recurring schedules (``spanloop.training.run.run_ticks``).

Invariant: at most one runs for this scheduler, and the scheduler never waits for it: it reads the store, which may be
slow or away. What it decides is stored in one transaction a tick, so it may be killed at any instant. When it fails,
the ticks stay due, and it is started again after a growing pause.
"""

import logging
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Final

from spanloop.semconv.environment import DATA_DIR_ENV
from spanloop.training.jobs.paths import ControlPaths

log = logging.getLogger("spanloop.training.run.scheduler")

LEADER_TOKEN_ENV: Final = "SPANLOOP_LEADER_TOKEN"  # noqa: S105 - the name of a variable
"""The fencing token of the scheduler that lets a process decide about ticks."""
DEFAULT_TICK_COMMAND: Final = (sys.executable, "-m", "spanloop.training.run.run_ticks")
FIRST_PAUSE_S: Final = 10.0
LONGEST_PAUSE_S: Final = 300.0
_LONGEST_RUN_S: Final = 1800.0
"""A process that runs longer hangs; deciding about a tick takes seconds to a few minutes."""


class TickProcess:
    """Starts and watches the process.

    Args:
        paths: Of the data directory.
        command: Program and arguments; ``--data-dir D`` is appended.
    """

    def __init__(self, paths: ControlPaths, command: Sequence[str] = DEFAULT_TICK_COMMAND) -> None:
        self._paths = paths
        self._command = tuple(command)
        self._process: subprocess.Popen[bytes] | None = None
        self._started_s = 0.0
        self._not_before_s = 0.0
        self._pause_s = FIRST_PAUSE_S

    def look(self, *, is_due: bool, leader: int | None = None) -> None:
        """Notice that the process has ended; start it when a tick is due, with the token of the leading scheduler."""
        if self._process is not None:
            self._watch(self._process)
        if self._process is None and is_due and time.monotonic() >= self._not_before_s:
            self._start(leader)

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _start(self, leader: int | None) -> None:
        command = [*self._command, "--data-dir", str(self._paths.root)]
        environment = os.environ | {DATA_DIR_ENV: str(self._paths.root)}
        if leader is not None:
            environment[LEADER_TOKEN_ENV] = str(leader)
        try:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environment)
        except OSError as error:
            self._failed(f"could not be started: {error}")
        self._started_s = time.monotonic()

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        if process.poll() is None and time.monotonic() - self._started_s > _LONGEST_RUN_S:
            process.kill()
            process.wait()
        status = process.poll()
        if status is None:
            return
        self._process = None
        if status == 0:
            self._pause_s = FIRST_PAUSE_S
        else:
            self._failed(f"ended with status {status}")

    def _failed(self, what: str) -> None:
        log.warning("ticks of schedules: their process %s; it is started again in %.0f s", what, self._pause_s)
        self._not_before_s = time.monotonic() + self._pause_s
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
