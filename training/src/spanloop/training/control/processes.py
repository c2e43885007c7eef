"""Processes by an identity that is never reused.

A pid alone says nothing: it is given again. The identity is machine, pid and the kernel's start time of the process in
clock ticks; a process is signalled only when all of it matches. Linux only: it reads ``/proc``.
"""

import os
import signal
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple, Self

PROC: Final = Path("/proc")
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


def all_pids() -> list[int]:
    """The pids that there are now."""
    return [int(entry.name) for entry in PROC.iterdir() if entry.name.isdecimal()]


def session_of(pid: int) -> int | None:
    """The session that a process is in; None when there is no such process."""
    stat = _stat(pid)
    return None if stat is None else int(stat[STAT_SESSION])


def environment_of(pid: int) -> bytes:
    """The environment that a process was started with, empty when it is gone or another user's."""
    try:
        return (PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return b""


def _stat(pid: int) -> list[str] | None:
    try:
        text = (PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    # The command name is in parentheses and may itself contain spaces and parentheses.
    return text.rpartition(")")[2].split()
