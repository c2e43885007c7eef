"""The lines on stderr that spanloop may print in a run.

Invariant: a process prints at most one line about a problem, one about instrumentors that stay off, and one for each
host whose model nothing traces; the processes that it starts print none. A line is written to the file descriptor, not
through ``sys.stderr`` or ``logging``: the app may have redirected those, and a daemon thread that holds a buffered
writer's lock while the interpreter shuts down aborts the process.
"""

import os
import sys
import threading
from typing import Final

QUIET_ENV: Final = "SPANLOOP_QUIET"
"""Any non-empty value suppresses the line. Set for the processes that an instrumented app starts."""

_MAX_LINE_CHARS: Final = 600


class Notice:
    """What this process may still print."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.owner_pid = os.getpid()
        self.is_quiet = bool(os.environ.get(QUIET_ENV))
        self.is_printed = self.is_quiet
        self.is_choice_printed = False


_notice = Notice()


def silence_child_processes() -> None:
    """Let no process that this one starts print a line."""
    os.environ.setdefault(QUIET_ENV, "1")


def print_choice(message: str) -> None:
    """Write a line about instrumentors that stay off; call it once, before child processes are silenced.

    Args:
        message: What is on, what is off and why; nothing is written when it is empty.
    """
    if message:
        _notice.is_choice_printed = print_line(message)


def print_line(message: str) -> bool:
    """Write a line to stderr, unless this process is quiet; the caller bounds how often.

    Returns:
        Whether the line was written.
    """
    if _notice.is_quiet or os.getpid() != _notice.owner_pid:
        return False
    return _write(f"spanloop: {message[:_MAX_LINE_CHARS]}\n")


def has_printed_choice() -> bool:
    """Whether the line about instrumentors that stay off was written."""
    return _notice.is_choice_printed


def print_once(message: str) -> bool:
    """Write one line to stderr; only the first call in a process does.

    Args:
        message: What happened, and the next step; only its first line is written.

    Returns:
        Whether the line was written.
    """
    if os.getpid() != _notice.owner_pid:  # before the lock: another thread may have held it when the child was forked
        return False
    with _notice.lock:
        if _notice.is_printed:
            return False
        _notice.is_printed = True
    first_line = next(iter(message.strip().splitlines()), "")[:_MAX_LINE_CHARS]
    return _write(f"spanloop: {first_line}\n")


def _write(line: str) -> bool:
    stream = sys.__stderr__
    if stream is None:
        return False
    try:
        os.write(stream.fileno(), line.encode("utf-8", "backslashreplace"))
    except (OSError, ValueError):  # closed, or a full pipe without a reader
        return False
    return True
