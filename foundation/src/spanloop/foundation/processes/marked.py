"""Find and end a group of processes: a leader's session, and whatever carries the group's mark in its environment.

Invariant: a process gets a signal only while its identity is known, so a recycled pid never does. A process that left
the session (``setsid``, a double fork) is found by its environment, which it inherits.
"""

import os
import signal
import time
from typing import Final, NamedTuple, Protocol

from .identity import ProcessIdentity, all_pids, environment_of, send_signal, session_of

POLL_S: Final = 0.02
KILL_TIMEOUT_S: Final = 10.0


class ProcessMark(Protocol):
    """Recognises a group's processes by their environment."""

    def is_on(self, environment: bytes) -> bool:
        """Whether ``environment`` (from /proc) belongs to the group."""
        ...


class VariableMark(NamedTuple):
    """The mark of processes with one environment variable that starts with a text."""

    variable: str
    prefix: str

    def is_on(self, environment: bytes) -> bool:
        """Whether the variable is set so."""
        start = f"{self.variable}={self.prefix}".encode()
        return environment.startswith(start) or b"\0" + start in environment


def find_processes(leader: ProcessIdentity | None, mark: ProcessMark) -> list[ProcessIdentity]:
    """Return the group's processes on this machine: the leader's session, and processes with the mark.

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


def end_processes(leader: ProcessIdentity | None, mark: ProcessMark, *, grace_s: float) -> int:
    """Send SIGTERM to a group, SIGKILL to those left after ``grace_s``; return the number of processes."""
    processes = find_processes(leader, mark)
    send_signal(signal.SIGTERM, processes)
    deadline = time.monotonic() + grace_s
    while any(process.is_running() for process in processes) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    return len({*processes, *kill_processes(leader, mark)})


def kill_processes(leader: ProcessIdentity | None, mark: ProcessMark) -> frozenset[ProcessIdentity]:
    """Kill the processes of a group until none is left, and return them.

    A process that exists after ``KILL_TIMEOUT_S`` hangs in the kernel: it ends as soon as the system call returns.
    """
    killed: set[ProcessIdentity] = set()
    deadline = time.monotonic() + KILL_TIMEOUT_S
    while (processes := find_processes(leader, mark)) and time.monotonic() < deadline:
        killed.update(processes)
        send_signal(signal.SIGKILL, processes)
        time.sleep(POLL_S)
    return frozenset(killed)


def _belongs(pid: int, session: int | None, mark: ProcessMark) -> bool:
    return (session is not None and session_of(pid) == session) or mark.is_on(environment_of(pid))
