"""Run vLLM's processes as one group that ends with the gateway: ``process_reaper.py PPID STOP_TIMEOUT_S CMD…``.

Invariant: when this process ends, in any way that lets it run cleanup, no process of the group is left; when the
gateway is killed, the kernel signals this process. vLLM's server starts engine and worker processes that survive a
killed parent, so a plain child with a parent-death signal is not enough. Uses the standard library only.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from types import FrameType
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
_POLL_S: Final = 0.1
_SIGNALLED: Final = 128


def run(parent_pid: int, stop_timeout_s: float, command: list[str]) -> int:
    """Run ``command`` until it ends or SIGTERM comes.

    Args:
        parent_pid: The gateway's process id; if it has ended already, nothing is started.
        stop_timeout_s: Time between SIGTERM and SIGKILL.
        command: The executable and its arguments.

    Returns:
        The command's exit status; 128 plus the signal's number if a signal ended it.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    stopping: list[int] = []

    def stop(number: int, _frame: FrameType | None) -> None:
        stopping.append(number)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    if os.getppid() != parent_pid:
        return 1
    child = subprocess.Popen(
        command,
        start_new_session=True,
        # This process has one thread, so running code between fork and exec is safe.
        preexec_fn=lambda: libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM),  # noqa: PLW1509
    )
    try:
        while child.poll() is None and not stopping:
            time.sleep(_POLL_S)
        if stopping:
            _signal_group(child.pid, signal.SIGTERM)
            try:
                child.wait(stop_timeout_s)
            except subprocess.TimeoutExpired:
                _signal_group(child.pid, signal.SIGKILL)
                child.wait()
    finally:
        _signal_group(child.pid, signal.SIGKILL)
        _reap()
    return child.returncode if child.returncode >= 0 else _SIGNALLED - child.returncode


def _signal_group(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return


def _reap() -> None:
    """Reap the killed descendants, which became children of this process when their parents ended."""
    while True:
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


if __name__ == "__main__":
    sys.exit(run(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]))
