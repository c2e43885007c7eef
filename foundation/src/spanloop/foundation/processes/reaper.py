"""Kill a group of processes when the process that started them is gone.

Invariant: whoever holds the other end of this process's standard input keeps the group alive; when it ends in any way,
kill -9 included, the kernel closes the pipe, and every process of the group is killed. A line on standard input is a
deadline on the monotonic clock, which all processes of a machine share: the group is also killed when the last deadline
has passed, whatever the starter does then (it may hang, or be stopped).
"""

import math
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from .identity import ProcessIdentity
from .marked import VariableMark, kill_processes

_ROOT: Final = Path(__file__).parents[3]
_PROGRAM: Final = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from spanloop.foundation.processes.reaper import main; main(*sys.argv[2:])"
)
"""It needs the standard library alone, so it starts without the installed packages, which takes half of the time."""
_LINE_BYTES: Final = 4096


class Reaper:
    """A process that kills a group when this process is gone.

    Args:
        mark: Recognises the group's processes.
        leader: The leader of their session, if it is known.

    Raises:
        OSError: It cannot be started.
    """

    def __init__(self, mark: VariableMark, leader: ProcessIdentity | None = None) -> None:
        environment = {name: value for name, value in os.environ.items() if name != mark.variable}
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _PROGRAM, str(_ROOT), *mark, str(leader or "")],
            stdin=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )

    def keep_until(self, deadline_s: float) -> bool:
        """Let the group live until ``deadline_s`` of ``time.monotonic()``; return False if the reaper has ended."""
        assert self._process.stdin is not None  # noqa: S101 - it was started with a pipe
        try:
            self._process.stdin.write(f"{deadline_s}\n".encode())
            self._process.stdin.flush()
        except BrokenPipeError:
            return False
        return True

    def close(self) -> None:
        """Kill what is left of the group."""
        assert self._process.stdin is not None  # noqa: S101
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()


@contextmanager
def reaping(mark: VariableMark) -> Generator[Reaper]:
    """While the block runs, a process watches this one; afterwards, and when this one dies, it kills the group."""
    reaper = Reaper(mark)
    try:
        yield reaper
    finally:
        reaper.close()


def main(variable: str, prefix: str, leader: str) -> None:
    """Wait for the end of standard input, or for the last deadline on it, then kill the group."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _wait(sys.stdin.fileno())
    kill_processes(ProcessIdentity.parse(leader), VariableMark(variable, prefix))


def _wait(descriptor: int) -> None:
    deadline_s, text = math.inf, b""
    while (left_s := deadline_s - time.monotonic()) > 0:
        timeout_s = None if math.isinf(left_s) else left_s
        if not select.select([descriptor], [], [], timeout_s)[0]:
            continue
        read = os.read(descriptor, _LINE_BYTES)
        if not read:
            return
        *lines, text = (text + read).split(b"\n")
        if lines:
            deadline_s = float(lines[-1])
