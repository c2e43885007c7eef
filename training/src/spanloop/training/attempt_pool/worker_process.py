"""The process of a runner that makes attempts: started when a run offers some, one run after the other.

Invariant: a run that this runner cannot serve is not taken again; so a process that fails is not started in a loop.
"""

import logging
import socket
import subprocess
import sys
import time
from contextlib import suppress
from typing import Final

from spanloop.foundation.paths import DataDir
from spanloop.foundation.processes.identity import ProcessIdentity

from .offers import Offers, Refusal

log = logging.getLogger("spanloop.training.attempt_pool")

_PAUSE_S: Final = 5.0
"""Time without a start after the control database was away."""


class AttemptWorker:
    """Makes attempts beside a runner's jobs.

    Args:
        data_dir: Of this host.
        offers: Of the control database.
        slots: Attempts at the same time; 0 makes none.
        lease_s: Duration of a lease.
        grace_s: Seconds in which the process has to end when the runner stops.
    """

    def __init__(self, data_dir: DataDir, offers: Offers, *, slots: int, lease_s: float, grace_s: float) -> None:
        self._data_dir: Final = data_dir
        self._offers: Final = offers
        self._slots: Final = slots
        self._lease_s: Final = lease_s
        self._grace_s: Final = grace_s
        self._runner: Final = str(ProcessIdentity.current())
        self._process: subprocess.Popen[bytes] | None = None
        self._run_id = ""
        self._pause_until_s = 0.0

    @property
    def pid(self) -> int | None:
        """The process that makes attempts now; None while there is none."""
        return None if self._process is None else self._process.pid

    def tick(self) -> None:
        """Look after the process once: record a failure of it, and start it for a run that waits.

        Raises:
            DataDirectoryError: The control database is away.
        """
        if not self._slots or (self._process is not None and self._process.poll() is None):
            return
        if self._process is not None:
            self._record_end(self._process)
        if time.monotonic() < self._pause_until_s:
            return
        run_id = next(iter(self._offers.waiting_runs(self._runner)), None)
        if run_id is not None:
            self._start(run_id)

    def close(self) -> None:
        """Interrupt the attempts, which are given back, and end the process."""
        if self._process is None:
            return
        assert self._process.stdin is not None  # noqa: S101 - it was started with a pipe
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(self._grace_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _start(self, run_id: str) -> None:
        options = {
            "--data-dir": self._data_dir.path,
            "--run": run_id,
            "--runner": self._runner,
            "--slots": self._slots,
            "--lease-s": self._lease_s,
        }
        arguments = [f"{name}={value}" for name, value in options.items()]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "spanloop.training.attempt_pool.worker", *arguments],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        self._run_id = run_id
        log.info("run %s: attempts are made by pid %d", run_id, self._process.pid)

    def _record_end(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None  # noqa: S101 - it was started with a pipe
        process.stdin.close()
        # At most a few times a minute, whatever ended it: the process itself records what this host lacks.
        if process.returncode:
            reason = f"The process that makes attempts ended with status {process.returncode}; its log says why."
            self._offers.refuse(self._run_id, self._runner, Refusal(socket.gethostname(), reason), retry_s=_PAUSE_S)
            self._pause_until_s = time.monotonic() + _PAUSE_S
            log.warning("run %s: %s", self._run_id, reason)
        self._process = None
