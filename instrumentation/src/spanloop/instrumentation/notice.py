"""The one line that a run may get from us on stderr.

Invariant: a process prints at most one line, and the processes that it starts print none. The line goes to the file
descriptor and not through ``sys.stderr`` or ``logging``: the app may have pointed those at its own output, and a
daemon thread that holds a buffered writer's lock while the interpreter shuts down aborts the process.
"""

import os
import sys
import threading
from typing import Final

QUIET_ENV: Final = "SPANLOOP_QUIET"
"""Any non-empty value: not even the one line. Set for the processes that an instrumented app starts."""

_MAX_LINE_CHARS: Final = 600


class Notice:
    """Whether this process may still speak, and where to."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.owner_pid = os.getpid()
        self.is_spent = bool(os.environ.get(QUIET_ENV))


_notice = Notice()


def claim() -> None:
    """Make this process the one that may speak: the processes it starts from now on stay silent."""
    os.environ.setdefault(QUIET_ENV, "1")


def tell(message: str) -> bool:
    """Write one line to stderr, the first time that this process has something to say.

    Args:
        message: What happened, and the next step; further lines of it are dropped.

    Returns:
        True when the line was written.
    """
    if os.getpid() != _notice.owner_pid:  # before the lock: another thread may have held it when the child was forked
        return False
    with _notice.lock:
        if _notice.is_spent:
            return False
        _notice.is_spent = True
    first_line = next(iter(message.strip().splitlines()), "")[:_MAX_LINE_CHARS]
    return _write(f"spanloop: {first_line}\n")


def _write(line: str) -> bool:
    stream = sys.__stderr__
    if stream is None:
        return False
    try:
        os.write(stream.fileno(), line.encode("utf-8", "backslashreplace"))
    except (OSError, ValueError):  # closed, or a full pipe that nobody reads: there is nowhere left to say so
        return False
    return True
