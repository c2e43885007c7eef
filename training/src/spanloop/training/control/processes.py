"""Processes by an identity that is never reused, and ending all processes of a job.

A pid alone says nothing: it is given again. The identity is machine, pid and the kernel's start time of the process in
clock ticks; a process is ended only when all of it matches, or when it carries the job's own environment variable.
Linux only: it reads ``/proc``.
"""

import os
import signal
import time
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple, Self

JOB_ID_ENV: Final = "SPANLOOP_JOB_ID"
"""The job that a process works for."""

JOB_TOKEN_ENV: Final = "SPANLOOP_JOB_TOKEN"  # noqa: S105 - the name of a variable
"""The fencing token that the scheduler gives to the process that runs the job."""

PROC: Final = Path("/proc")
POLL_S: Final = 0.02
KILL_TIMEOUT_S: Final = 10.0
STAT_STATE: Final = 0
STAT_SESSION: Final = 3
STAT_START_TICKS: Final = 19
"""Fields of /proc/<pid>/stat after the command name, counted from 0 (proc(5) counts from 3)."""


class ProcessIdentity(NamedTuple):
    """One process on one machine, for good."""

    machine: str
    """Boot id and pid namespace, in which the pid counts."""
    pid: int
    start_ticks: int

    @classmethod
    def own(cls) -> Self:
        """This process."""
        found = cls.of(os.getpid())
        if found is None:
            raise RuntimeError("a process without an entry in /proc: spanloop's scheduler needs Linux")
        return found

    @classmethod
    def of(cls, pid: int) -> Self | None:
        """The process that has ``pid`` now, a zombie too; None when there is none."""
        stat = _stat(pid)
        return None if stat is None else cls(this_machine(), pid, int(stat[STAT_START_TICKS]))

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """The identity that ``str()`` wrote; None for any other text."""
        machine, _, rest = text.partition(":")
        pid, _, ticks = rest.partition(":")
        return cls(machine, int(pid), int(ticks)) if pid.isdecimal() and ticks.isdecimal() else None

    @classmethod
    def from_file_name(cls, text: str) -> Self | None:
        """The identity that ``file_name`` wrote; None for any other text."""
        return cls.parse(text.replace("+", ":"))

    @property
    def file_name(self) -> str:
        """The identity in characters that suit a file name."""
        return str(self).replace(":", "+")

    @property
    def is_here(self) -> bool:
        """Whether it ran on this machine since its last boot, so that we can look."""
        return self.machine == this_machine()

    def is_gone(self) -> bool:
        """Whether the process has surely ended; False when it runs elsewhere and nobody can tell."""
        return self.is_here and not self.is_running()

    def is_running(self) -> bool:
        """Whether the process exists here and now, and is no zombie."""
        stat = _stat(self.pid) if self.is_here else None
        return stat is not None and int(stat[STAT_START_TICKS]) == self.start_ticks and stat[STAT_STATE] != "Z"

    def __str__(self) -> str:
        return f"{self.machine}:{self.pid}:{self.start_ticks}"


@cache
def this_machine() -> str:
    """Names this boot of this machine and this pid namespace."""
    boot = (PROC / "sys/kernel/random/boot_id").read_text().strip()
    namespace = (PROC / "self/ns/pid").readlink().name
    return f"{boot}.{namespace.strip('pid:[]')}"


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
        for pid in _pids()
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


def send(number: signal.Signals, targets: Iterable[ProcessIdentity]) -> None:
    """Signal each process, if it is still the same one. The pidfd pins it between the look and the signal."""
    for target in targets:
        try:
            descriptor = os.pidfd_open(target.pid)
        except ProcessLookupError:
            continue
        try:
            if target.is_running():
                signal.pidfd_send_signal(descriptor, number)
        except ProcessLookupError:
            continue
        finally:
            os.close(descriptor)


def _belongs(pid: int, session: int | None, mark: JobMark) -> bool:
    if session is not None:
        stat = _stat(pid)
        if stat is not None and int(stat[STAT_SESSION]) == session:
            return True
    try:
        return mark.is_on((PROC / str(pid) / "environ").read_bytes())
    except OSError:
        # Gone, or another user's: not started by us.
        return False


def _pids() -> list[int]:
    return [int(entry.name) for entry in PROC.iterdir() if entry.name.isdecimal()]


def _stat(pid: int) -> list[str] | None:
    try:
        text = (PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    # The command name is in parentheses and may itself contain spaces and parentheses.
    return text.rpartition(")")[2].split()
