"""Find and end all processes of one job on this machine.

Invariant: a process is ended only if it is in the session of the job's leader, recognised by its identity, or has the
job's id and a token of this lease or an earlier one in its environment. So a recycled pid or the runner of a later
lease never gets a signal.
"""

import os
import signal
import time
from typing import Final, NamedTuple

from spanloop.training.control.process_identity import (
    ProcessIdentity,
    all_pids,
    environment_of,
    send_signal,
    session_of,
)

JOB_ID_ENV: Final = "SPANLOOP_JOB_ID"
"""The id of the job that a process belongs to."""

JOB_TOKEN_ENV: Final = "SPANLOOP_JOB_TOKEN"  # noqa: S105 - the name of a variable
"""The fencing token that the scheduler passes to the runner."""

POLL_S: Final = 0.02
KILL_TIMEOUT_S: Final = 10.0


class JobMark(NamedTuple):
    """Marks a job's processes by their environment, which they keep in any session."""

    job_id: str
    newest_token: int
    """Token of the lease; processes with a newer token belong to another lease."""

    def is_on(self, environment: bytes) -> bool:
        """Whether ``environment`` (from /proc) belongs to the job, under this lease or an earlier one."""
        lines = environment.split(b"\0")
        prefix = f"{JOB_TOKEN_ENV}=".encode()
        if f"{JOB_ID_ENV}={self.job_id}".encode() not in lines:
            return False
        tokens = [line.removeprefix(prefix) for line in lines if line.startswith(prefix)]
        return any(token.isdigit() and int(token) <= self.newest_token for token in tokens)


def find_job_processes(leader: ProcessIdentity | None, mark: JobMark) -> list[ProcessIdentity]:
    """Return the job's processes on this machine: the leader's session, and processes with the job's environment.

    The session counts only while its leader is identifiable: running, or a zombie that its parent has not reaped.
    Zombies and the calling process are not returned.
    """
    is_known = leader is not None and leader.is_on_this_machine and ProcessIdentity.of(leader.pid) == leader
    session = leader.pid if leader is not None and is_known else None
    return [
        identity
        for pid in all_pids()
        if pid != os.getpid() and _belongs(pid, session, mark)
        if (identity := ProcessIdentity.of(pid)) is not None and identity.is_running()
    ]


def end_job_processes(leader: ProcessIdentity | None, mark: JobMark, *, grace_s: float) -> int:
    """Send SIGTERM to a job's processes, SIGKILL to those left after ``grace_s``; return the number of processes."""
    processes = find_job_processes(leader, mark)
    send_signal(signal.SIGTERM, processes)
    deadline = time.monotonic() + grace_s
    while any(process.is_running() for process in processes) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    return len({*processes, *kill_job_processes(leader, mark)})


def kill_job_processes(leader: ProcessIdentity | None, mark: JobMark) -> frozenset[ProcessIdentity]:
    """Kill the processes of a job until none is left, and return them.

    A process that exists after ``KILL_TIMEOUT_S`` hangs in the kernel: it ends as soon as the system call returns.
    Its writes are rejected meanwhile because its lease is lost.
    """
    killed: set[ProcessIdentity] = set()
    deadline = time.monotonic() + KILL_TIMEOUT_S
    while (processes := find_job_processes(leader, mark)) and time.monotonic() < deadline:
        killed.update(processes)
        send_signal(signal.SIGKILL, processes)
        time.sleep(POLL_S)
    return frozenset(killed)


def _belongs(pid: int, session: int | None, mark: JobMark) -> bool:
    return (session is not None and session_of(pid) == session) or mark.is_on(environment_of(pid))
