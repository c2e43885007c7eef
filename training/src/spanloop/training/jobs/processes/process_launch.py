"""Start a job's process and watch it until all of the job's processes have ended.

Invariant: a job's program starts only after its reaper, and after the database knows its process group. The launcher
starts a shell that waits for a line on stdin, starts the reaper, records the shell's identity, and then writes the
line, on which the shell executes the program. If the launcher dies in between, the shell reads the end of its input and
exits. If it dies, hangs or is stopped later, the reaper kills the job's processes, at the latest when the job's lease
was not renewed in time.
"""

import math
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from spanloop.foundation.processes.identity import ProcessIdentity, send_signal
from spanloop.foundation.processes.marked import find_processes, kill_processes
from spanloop.foundation.processes.reaper import Reaper
from spanloop.training.jobs.leases import JobLease
from spanloop.training.jobs.processes.job_processes import JobMark, lease_mark

GATE: Final = 'read -r go || exit 125; exec "$@" </dev/null'
ERROR_TAIL_BYTES: Final = 4096
ERROR_TAIL_LINES: Final = 20


class RunningJob:
    """A running attempt of a job: its lease, process group and part of the log."""

    def __init__(self, lease: JobLease, process: subprocess.Popen[bytes], log_path: Path, log_start: int) -> None:
        leader = ProcessIdentity.of(process.pid)
        if leader is None:
            raise RuntimeError(
                f"job {lease.job_id}: child {process.pid} has no entry in /proc although it was not reaped"
            )
        self.lease = lease
        self.leader = leader
        self.mark = JobMark(lease.job_id, lease.token)
        self._process = process
        self._reaper: Reaper | None = None
        self._keep_until_s = math.inf
        self.has_expired = False
        """Whether the reaper has killed the job, because its lease was not renewed in time."""
        self._log_path = log_path
        self._log_start = log_start
        self._kill_at_s: float | None = None
        self._status: int | None = None

    @property
    def is_ending(self) -> bool:
        """Whether ``request_end`` was called."""
        return self._kill_at_s is not None

    def keep_until(self, deadline_s: float) -> bool:
        """Let the job run until ``deadline_s`` of the monotonic clock; return False if its reaper has ended.

        Raises:
            OSError: The reaper, which the first call starts, cannot be started.
        """
        if self._reaper is None:
            self._reaper = Reaper(lease_mark(self.lease.job_id, self.lease.token), self.leader)
        self._keep_until_s = deadline_s
        return self._reaper.keep_until(deadline_s)

    def begin(self) -> None:
        """Let the waiting shell execute the job."""
        assert self._process.stdin is not None  # noqa: S101 - it was started with a pipe
        try:
            self._process.stdin.write(b"go\n")
            self._process.stdin.close()
        except BrokenPipeError:
            # It was killed meanwhile; the exit status shows that.
            return

    def request_end(self, *, grace_s: float) -> None:
        """Send SIGTERM to the job's processes; ``exit_status`` kills those left after ``grace_s``."""
        if not self.is_ending:
            self._kill_at_s = time.monotonic() + grace_s
            send_signal(signal.SIGTERM, find_processes(self.leader, self.mark))

    def exit_status(self) -> int | None:
        """Return the exit status (negative: the signal) once all of the job's processes have ended, else None."""
        if self._status is not None:
            return self._status
        is_graceful = self._kill_at_s is not None and time.monotonic() < self._kill_at_s
        if self._has_exited():
            if is_graceful and find_processes(self.leader, self.mark):
                return None
            # Before the leader is reaped: until then its pid and session id cannot be reused.
            kill_processes(self.leader, self.mark)
            self._status = self._process.wait()
            self.has_expired = self._status == -signal.SIGKILL and time.monotonic() >= self._keep_until_s
            self._close()
            return self._status
        if self.is_ending and not is_graceful:
            kill_processes(self.leader, self.mark)
        return None

    def end(self, *, grace_s: float) -> int:
        """End the job, wait for that, and return its exit status."""
        self.request_end(grace_s=grace_s)
        while (status := self.exit_status()) is None:
            time.sleep(0.02)
        return status

    def log_tail(self) -> str:
        """Return the last log lines of this attempt, or a note if the log file was removed."""
        try:
            with self._log_path.open("rb") as log:
                size_bytes = log.seek(0, os.SEEK_END)
                log.seek(max(self._log_start, size_bytes - ERROR_TAIL_BYTES))
                text = log.read(ERROR_TAIL_BYTES).decode(errors="replace")
        except FileNotFoundError:
            return f"({self._log_path} was removed)"
        return "\n".join(text.strip().splitlines()[-ERROR_TAIL_LINES:])

    def _has_exited(self) -> bool:
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self._process.pid, options) is not None

    def _close(self) -> None:
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
        if self._reaper is not None:
            self._reaper.close()


def launch(
    lease: JobLease,
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    log_path: Path,
    header: str,
    record: Callable[[ProcessIdentity], None],
    keep_until_s: float,
) -> RunningJob:
    """Start ``command`` in a new session, after ``record`` has stored its identity.

    Args:
        lease: The lease on the job.
        command: Program and arguments of the runner.
        environment: The complete environment.
        log_path: File to which stdout and stderr are appended.
        header: Log line that marks the start of the attempt.
        record: Stores the identity of the process; if it raises, the command has not run.
        keep_until_s: When the job is killed, on the monotonic clock, unless `RunningJob.keep_until` says later.

    Raises:
        OSError: The process cannot be started.
    """
    log_path.parent.mkdir(parents=True, exist_ok=True)
    with log_path.open("ab") as log:
        log.write(f"{header}\n".encode())
        log.flush()
        log_start = log.tell()
        process = subprocess.Popen(
            ["/bin/sh", "-c", GATE, "sh", *command],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            start_new_session=True,
        )
    running = RunningJob(lease, process, log_path, log_start)
    try:
        running.keep_until(keep_until_s)
        record(running.leader)
    except BaseException:
        running.end(grace_s=0)
        raise
    running.begin()
    return running
