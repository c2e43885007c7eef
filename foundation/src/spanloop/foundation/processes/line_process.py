"""A process that answers JSON lines: one line in gives one line out, over two pipes of its own.

Invariant: stdin, stdout and stderr stay the program's. A line that is longer than ``MOST_BYTES`` is never kept: the
process has to be ended then.
"""

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

from .limited import Launch, LimitedProcess, Wakeup
from .marked import ProcessMark

MOST_BYTES: Final = 16 << 20
"""Longest line that is read."""
_CLOSE_TIMEOUT_S: Final = 30.0
_READ_BYTES: Final = 1 << 16


class LineProcess:
    """A running process with a pipe for requests and one for results.

    Args:
        command: Makes the command out of the numbers of the pipes' ends: requests to read, results to write.
        environment: Complete; holds what ``mark`` recognises.
        mark: Finds what the process leaves behind.
        cwd: Its working directory.

    Raises:
        OSError: It cannot be started.
        ValueError: An argument holds a null byte.
    """

    def __init__(
        self,
        command: Callable[[int, int], Sequence[str]],
        environment: Mapping[str, str],
        mark: ProcessMark,
        cwd: Path | None,
    ) -> None:
        requests_end, self._requests = os.pipe()
        self._results, results_end = os.pipe()
        self._received = bytearray()
        try:
            launch = Launch(
                command=command(requests_end, results_end),
                environment=environment,
                mark=mark,
                cwd=cwd,
                pass_fds=(requests_end, results_end),
            )
            self.process: Final = LimitedProcess(launch)
        except BaseException:
            os.close(self._requests)
            os.close(self._results)
            raise
        finally:
            os.close(requests_end)
            os.close(results_end)

    def send(self, request: Mapping[str, Any]) -> None:
        """Send a request to a process that waits for one; one that died shows it when it is waited for."""
        left = json.dumps(request).encode() + b"\n"
        try:
            while left:
                left = left[os.write(self._requests, left) :]
        except BrokenPipeError:
            return

    def receive(self, timeout_s: float, should_stop: Callable[[], bool]) -> dict[str, Any] | Wakeup:
        """Wait for a result; return why there is none otherwise. A line that is too long, or no JSON, is no result."""
        deadline_s = time.monotonic() + timeout_s
        while b"\n" not in self._received:
            left_s = deadline_s - time.monotonic()
            wakeup = self.process.wait(left_s, readable=self._results, should_stop=should_stop)
            if wakeup is not Wakeup.READABLE:
                return wakeup
            data = os.read(self._results, _READ_BYTES)
            if not data or len(self._received) > MOST_BYTES:
                return Wakeup.ENDED
            self._received += data
        line, _, rest = self._received.partition(b"\n")
        self._received = rest
        self.process.wait(0)  # what was printed before the result
        try:
            return cast("dict[str, Any]", json.loads(line))
        except ValueError:
            return Wakeup.ENDED

    def close(self, *, grace_s: float, is_idle: bool = False) -> int:
        """End the process and return its status; one that waits for a request ends by itself first."""
        os.close(self._requests)
        if is_idle:
            self.process.wait(_CLOSE_TIMEOUT_S)
        status = self.process.end(grace_s=grace_s)
        os.close(self._results)
        return status
