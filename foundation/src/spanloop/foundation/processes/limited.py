"""A process with limits on its time and its output, of which nothing is left when it ends.

Invariant: the process leads a session of its own, and the mark in its environment finds what leaves the session. `end`
returns when no process of the group is alive. Output is read all the time and only its last bytes are kept, so that a
program may print any amount: it is never blocked, and costs neither memory nor disk.
"""

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import IO, Final, NamedTuple, Self

from .identity import ProcessIdentity, send_signal
from .marked import ProcessMark, find_processes, kill_processes

OUTPUT_BYTES: Final = 256 << 10
"""Most bytes of stdout, and of stderr, that are kept."""
GRACE_S: Final = 5.0
"""Time between SIGTERM and SIGKILL, in which an app sends its last spans."""
_READ_BYTES: Final = 64 << 10
_CHECK_S: Final = 0.5
"""How often a waiting caller looks whether it is to stop."""
_DRAIN_S: Final = 1.0
"""Longest wait for the end of a pipe whose writers were killed."""


@dataclass
class Tail:
    """The last bytes of a stream."""

    limit_bytes: int
    total_bytes: int = 0
    """All bytes that were written."""
    _kept: bytearray = field(default_factory=bytearray)

    @property
    def is_truncated(self) -> bool:
        """Whether earlier bytes were dropped."""
        return self.total_bytes > self.limit_bytes

    @property
    def text(self) -> str:
        """The kept bytes as text; a character that was cut is replaced."""
        return bytes(self._kept[-self.limit_bytes :]).decode("utf-8", "replace")

    def add(self, data: bytes) -> None:
        """Append, and drop what is beyond the limit."""
        self.total_bytes += len(data)
        self._kept += data
        if len(self._kept) > 2 * self.limit_bytes:  # moves each byte once
            del self._kept[: -self.limit_bytes]

    def take(self) -> "Tail":
        """Return what was written since the last call, and start anew."""
        taken = Tail(self.limit_bytes, self.total_bytes, self._kept)
        self.total_bytes, self._kept = 0, bytearray()
        return taken


class Wakeup(Enum):
    """Why `LimitedProcess.wait` returned."""

    ENDED = "ended"
    READABLE = "readable"
    TIMED_OUT = "timed_out"
    STOPPED = "stopped"


class Launch(NamedTuple):
    """How a process is started."""

    command: Sequence[str]
    environment: Mapping[str, str]
    """Complete; holds what ``mark`` recognises."""
    mark: ProcessMark
    cwd: Path | None = None
    stdin: int | IO[bytes] = subprocess.DEVNULL
    pass_fds: Sequence[int] = ()
    output_bytes: int = OUTPUT_BYTES


def _never() -> bool:
    return False


class LimitedProcess:
    """A running process. Use it as a context manager: leaving it kills whatever is left.

    Raises:
        OSError: The process cannot be started.
        ValueError: An argument holds a null byte.
    """

    def __init__(self, launch: Launch) -> None:
        self.stdout: Final = Tail(launch.output_bytes)
        self.stderr: Final = Tail(launch.output_bytes)
        self._mark: Final = launch.mark
        self._process: Final = subprocess.Popen(
            launch.command,
            env=dict(launch.environment),
            cwd=launch.cwd,
            stdin=launch.stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=launch.pass_fds,
            start_new_session=True,
        )
        self._leader: Final = ProcessIdentity.of(self._process.pid)
        self._exit: Final = os.pidfd_open(self._process.pid)
        self._selector: Final = selectors.DefaultSelector()
        self._selector.register(self._exit, selectors.EVENT_READ, None)
        for pipe, tail in ((self._process.stdout, self.stdout), (self._process.stderr, self.stderr)):
            if pipe is not None:
                os.set_blocking(pipe.fileno(), False)
                self._selector.register(pipe.fileno(), selectors.EVENT_READ, tail)

    def wait(
        self, timeout_s: float, *, readable: int | None = None, should_stop: Callable[[], bool] = _never
    ) -> Wakeup:
        """Read output until the process ends, ``readable`` has data, time is up or ``should_stop`` says so."""
        deadline_s = time.monotonic() + timeout_s
        if readable is not None:
            self._selector.register(readable, selectors.EVENT_READ, readable)
        try:
            while True:
                left_s = deadline_s - time.monotonic()
                events = {key.fd for key in self._read(min(max(left_s, 0), _CHECK_S))}
                if readable in events:
                    return Wakeup.READABLE
                if self._exit in events:
                    return Wakeup.ENDED
                if should_stop():
                    return Wakeup.STOPPED
                if left_s <= 0:
                    return Wakeup.TIMED_OUT
        finally:
            if readable is not None:
                self._selector.unregister(readable)

    def end(self, *, grace_s: float = 0.0) -> int:
        """End the process and all it started; return its exit status (negative: the signal that ended it).

        Args:
            grace_s: Time between SIGTERM and SIGKILL for a process that runs.
        """
        if self._process.returncode is None:
            if grace_s > 0 and self._is_running():
                send_signal(signal.SIGTERM, find_processes(self._leader, self._mark))
                self.wait(grace_s)
            # Before the leader is reaped: until then its pid and session id cannot be reused.
            kill_processes(self._leader, self._mark)
            self._process.wait()
            self._drain()
            self._close()
        return self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def _is_running(self) -> bool:
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def _read(self, timeout_s: float) -> list[selectors.SelectorKey]:
        """Read the available output once; return what else is readable."""
        others: list[selectors.SelectorKey] = []
        for key, _ in self._selector.select(timeout_s):
            if not isinstance(key.data, Tail):
                others.append(key)
                continue
            try:
                data = os.read(key.fd, _READ_BYTES)
            except BlockingIOError:
                continue
            if data:
                key.data.add(data)
            else:
                self._selector.unregister(key.fd)
        return others

    def _drain(self) -> None:
        """Read the rest of the output. Its writers are gone, except those that hang in the kernel."""
        self._selector.unregister(self._exit)
        deadline_s = time.monotonic() + _DRAIN_S
        while self._selector.get_map() and time.monotonic() < deadline_s:
            self._read(_DRAIN_S)

    def _close(self) -> None:
        self._selector.close()
        os.close(self._exit)
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
