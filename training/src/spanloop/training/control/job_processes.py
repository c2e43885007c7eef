"""All processes of one job on this machine, and ending them.

The invariant: a process is ended only when it is in the session of the job's leader, recognised by its identity, or
carries the job's id and a token of this lease or an earlier one in its environment. So neither a recycled pid nor the
runner of a later lease is ever hit.
"""

import os
import signal
import time
from typing import Final, NamedTuple

from spanloop.training.control.processes import ProcessIdentity, all_pids, environment_of, send, session_of

JOB_ID_ENV: Final = "SPANLOOP_JOB_ID"
"""The job that a process works for."""

JOB_TOKEN_ENV: Final = "SPANLOOP_JOB_TOKEN"  # noqa: S105 - the name of a variable
"""The fencing token that the scheduler gives to the process that runs the job."""

POLL_S: Final = 0.02
KILL_TIMEOUT_S: Final = 10.0


class JobMark(NamedTuple):
    """What the environment of a job's processes says, whatever session they moved to."""

    job_id: str
    newest_token: int
    """Processes of later leases than this one are somebody else's."""

    def is_on(self, environment: bytes) -> bool:
        """Whether ``environment`` (of /proc) is that of a process of the job, of this lease or an earlier one."""
        lines = environment.split(b"\0")
        prefix = f"{JOB_TOKEN_ENV}=".encode()
        if f"{JOB_ID_ENV}={self.job_id}".encode() not in lines:
            return False
        tokens = [line.removeprefix(prefix) for line in lines if line.startswith(prefix)]
        return any(token.isdigit() and int(token) <= self.newest_token for token in tokens)


def members(leader: ProcessIdentity | None, mark: JobMark) -> list[ProcessIdentity]:
    """The job's processes on this machine: the leader's session, and whoever carries the job's environment.

    The session counts only while its leader can be recognised: running, or a zombie that its parent has not reaped.
    Zombies are not members. The caller itself never is.
    """
    is_known = leader is not None and leader.is_here and ProcessIdentity.of(leader.pid) == leader
    session = leader.pid if leader is not None and is_known else None
    return [
        identity
        for pid in all_pids()
        if pid != os.getpid() and _belongs(pid, session, mark)
        if (identity := ProcessIdentity.of(pid)) is not None and identity.is_running()
    ]


def end_members(leader: ProcessIdentity | None, mark: JobMark, *, grace_s: float) -> int:
    """SIGTERM to all processes of a job, SIGKILL to those that are left after ``grace_s``; how many were ended."""
    found = members(leader, mark)
    send(signal.SIGTERM, found)
    give_up_at = time.monotonic() + grace_s
    while any(process.is_running() for process in found) and time.monotonic() < give_up_at:
        time.sleep(POLL_S)
    return len({*found, *kill_members(leader, mark)})


def kill_members(leader: ProcessIdentity | None, mark: JobMark) -> frozenset[ProcessIdentity]:
    """Kill all processes of a job until none is left; which they were.

    One that is still there after ``KILL_TIMEOUT_S`` hangs in the kernel: it dies as soon as it leaves it, and its
    writes are refused meanwhile because its lease is lost.
    """
    killed: set[ProcessIdentity] = set()
    give_up_at = time.monotonic() + KILL_TIMEOUT_S
    while (found := members(leader, mark)) and time.monotonic() < give_up_at:
        killed.update(found)
        send(signal.SIGKILL, found)
        time.sleep(POLL_S)
    return frozenset(killed)


def _belongs(pid: int, session: int | None, mark: JobMark) -> bool:
    return (session is not None and session_of(pid) == session) or mark.is_on(environment_of(pid))
