"""Start and stop child processes that end with their parent."""

import ctypes
import os
import signal
import subprocess
from pathlib import Path
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


def start_child(command: list[str], *, log: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start ``command`` in a new session and append its output to ``log``.

    The new session keeps Ctrl-C from reaching the child, because the supervisor stops its children in order. The
    kernel sends the child SIGTERM when the supervisor's main thread ends for any reason, kill -9 included.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=_request_sigterm_on_parent_death,  # noqa: PLW1509 - one system call, no locks
            env={**os.environ, **environment},
        )


def stop_child(child: subprocess.Popen[bytes], *, timeout_s: float = 12.0) -> None:
    """Stop ``child`` by SIGTERM; after ``timeout_s`` seconds, kill its session."""
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _request_sigterm_on_parent_death() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
