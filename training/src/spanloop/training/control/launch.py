"""Starting a job's process, and watching it without losing it.

The invariant: nothing of a job runs before the database knows its process group. The process is started behind a gate
(a shell that waits for a line and then becomes the runner), its identity is recorded, and then the gate is opened. If
we die in between, the gate sees the end of its input and goes away.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from spanloop.training.control.job_processes import JobMark, kill_members, members
from spanloop.training.control.leases import Lease
from spanloop.training.control.processes import ProcessIdentity, send

GATE: Final = 'read -r go || exit 125; exec "$@" </dev/null'
ERROR_TAIL_BYTES: Final = 4096
ERROR_TAIL_LINES: Final = 20


class RunningJob:
    """One attempt of a job: its lease, its process group, its part of the log."""

    def __init__(self, lease: Lease, process: subprocess.Popen[bytes], log_path: Path, log_start: int) -> None:
        leader = ProcessIdentity.of(process.pid)
        if leader is None:
            raise RuntimeError(f"job {lease.job_id}: child {process.pid} has no entry in /proc though it is not reaped")
        self.lease = lease
        self.leader = leader
        self._mark = JobMark(lease.job_id, lease.token)
        self._process = process
        self._log_path = log_path
        self._log_start = log_start
        self._kill_at_s: float | None = None
        self._status: int | None = None

    @property
    def is_ending(self) -> bool:
        """Whether it was asked to end."""
        return self._kill_at_s is not None

    def open_gate(self) -> None:
        """Let the runner run."""
        assert self._process.stdin is not None  # noqa: S101 - it was made with a pipe
        try:
            self._process.stdin.write(b"go\n")
            self._process.stdin.close()
        except BrokenPipeError:
            # It was killed meanwhile; its exit status tells.
            return

    def ask_end(self, *, grace_s: float) -> None:
        """SIGTERM to the whole session now; ``exit_status`` kills what is left once the grace is over."""
        if not self.is_ending:
            self._kill_at_s = time.monotonic() + grace_s
            send(signal.SIGTERM, members(self.leader, self._mark))

    def exit_status(self) -> int | None:
        """The exit status (negative: the signal), once all of the job's processes are gone; None while it runs."""
        if self._status is not None:
            return self._status
        is_graceful = self._kill_at_s is not None and time.monotonic() < self._kill_at_s
        if self._has_exited():
            if is_graceful and members(self.leader, self._mark):
                return None
            # Before the leader is reaped: until then its pid, and so its session, cannot be another's.
            kill_members(self.leader, self._mark)
            self._status = self._process.wait()
            self._close()
            return self._status
        if self.is_ending and not is_graceful:
            kill_members(self.leader, self._mark)
        return None

    def end(self, *, grace_s: float) -> int:
        """End it and wait for that; its exit status."""
        self.ask_end(grace_s=grace_s)
        while (status := self.exit_status()) is None:
            time.sleep(0.02)
        return status

    def log_tail(self) -> str:
        """The last lines that this attempt printed; when somebody has removed the log, that is what it says."""
        try:
            with self._log_path.open("rb") as log:
                size_bytes = log.seek(0, os.SEEK_END)
                log.seek(max(self._log_start, size_bytes - ERROR_TAIL_BYTES))
                text = log.read(ERROR_TAIL_BYTES).decode(errors="replace")
        except FileNotFoundError:
            return f"({self._log_path} is gone)"
        return "\n".join(text.strip().splitlines()[-ERROR_TAIL_LINES:])

    def _has_exited(self) -> bool:
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self._process.pid, options) is not None

    def _close(self) -> None:
        if self._process.stdin is not None:
            try:
                self._process.stdin.close()
            except BrokenPipeError:
                return


def launch(
    lease: Lease,
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    log_path: Path,
    header: str,
    record: Callable[[ProcessIdentity], None],
) -> RunningJob:
    """Start ``command`` in a session of its own, once ``record`` has stored who it is.

    Args:
        lease: What entitles us to.
        command: Program and arguments of the runner.
        environment: All of its environment.
        log_path: Gets stdout and stderr, appended.
        header: A line for the log that says which attempt begins.
        record: Stores the identity of the process; when it raises, nothing has run.

    Raises:
        OSError: No process can be started.
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
        record(running.leader)
    except BaseException:
        running.end(grace_s=0)
        raise
    running.open_gate()
    return running
