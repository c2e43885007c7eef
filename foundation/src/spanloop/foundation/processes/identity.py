"""Identify processes uniquely, although the kernel reuses pids.

The identity is machine, pid and the kernel's start time of the process in clock ticks; a process gets a signal only if
all three match. The machine is the boot, the pid namespace and the host name: processes of another host, or of another
container on this host, are never mistaken for local ones. Linux only: reads ``/proc``.
"""

import os
import re
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
    """A unique identity of one process on one machine."""

    machine: str
    """Boot id, pid namespace and host name that the pid belongs to."""
    pid: int
    start_ticks: int

    @classmethod
    def current(cls) -> Self:
        """Return the identity of the calling process."""
        identity = cls.of(os.getpid())
        if identity is None:
            raise RuntimeError("this process has no entry in /proc: spanloop's scheduler needs Linux")
        return identity

    @classmethod
    def of(cls, pid: int) -> Self | None:
        """Return the identity of the process (or zombie) that has ``pid`` now; None if there is none."""
        stat = _stat(pid)
        return None if stat is None else cls(this_machine(), pid, int(stat[STAT_START_TICKS]))

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Parse the result of ``str()``; return None for any other text."""
        machine, _, remainder = text.partition(":")
        pid, _, ticks = remainder.partition(":")
        return cls(machine, int(pid), int(ticks)) if pid.isdecimal() and ticks.isdecimal() else None

    @classmethod
    def from_file_name(cls, text: str) -> Self | None:
        """Parse the result of ``file_name``; return None for any other text."""
        return cls.parse(text.replace("+", ":"))

    @property
    def file_name(self) -> str:
        """The identity in characters that are safe in file names."""
        return str(self).replace(":", "+")

    @property
    def is_on_this_machine(self) -> bool:
        """Whether it belongs to this boot and pid namespace of this host, so that /proc can be read."""
        return self.machine == this_machine()

    def has_ended(self) -> bool:
        """Whether the process has certainly ended; False if it belongs to another machine."""
        return self.is_on_this_machine and not self.is_running()

    def is_running(self) -> bool:
        """Whether the process exists on this machine and is not a zombie."""
        stat = _stat(self.pid) if self.is_on_this_machine else None
        return stat is not None and int(stat[STAT_START_TICKS]) == self.start_ticks and stat[STAT_STATE] != "Z"

    def __str__(self) -> str:
        return f"{self.machine}:{self.pid}:{self.start_ticks}"


@cache
def this_machine() -> str:
    """Return an identifier of this machine's boot, pid namespace and host name."""
    boot = (PROC / "sys/kernel/random/boot_id").read_text().strip()
    namespace = (PROC / "self/ns/pid").readlink().name
    host = re.sub(r"[^A-Za-z0-9.-]", "_", os.uname().nodename)
    return f"{boot}.{namespace.strip('pid:[]')}.{host}"


def send_signal(number: signal.Signals, targets: Iterable[ProcessIdentity]) -> None:
    """Signal each process if its identity still matches; a pidfd prevents pid reuse between check and signal."""
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
    """Return all current pids."""
    return [int(entry.name) for entry in PROC.iterdir() if entry.name.isdecimal()]


def session_of(pid: int) -> int | None:
    """Return the session id of a process; None if there is no such process."""
    stat = _stat(pid)
    return None if stat is None else int(stat[STAT_SESSION])


def environment_of(pid: int) -> bytes:
    """Return the initial environment of a process; empty if it has ended or belongs to another user."""
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
