"""Processes that must not outlive the one that started them."""

import ctypes
import os
import signal
import subprocess
from pathlib import Path
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


def start_child(command: list[str], *, log: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start ``command`` in a session of its own, its output appended to ``log``.

    A session of its own keeps a Ctrl-C away from it: the supervisor stops things in their order. The kernel sends it
    SIGTERM when the supervisor's main thread ends for any reason, kill -9 included.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as sink:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            start_new_session=True,
            preexec_fn=_end_with_parent,  # noqa: PLW1509 - one system call, no locks
            env={**os.environ, **environment},
        )


def stop_child(child: subprocess.Popen[bytes], *, timeout_s: float = 12.0) -> None:
    """End ``child`` by SIGTERM; what is left of its session after ``timeout_s`` seconds is killed."""
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _end_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
