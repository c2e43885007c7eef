"""Kill a group of processes when the process that started them is gone: ``python -m spanloop.processes.reaper``.

Invariant: whoever holds the other end of this process's standard input keeps the group alive; when it ends in any way,
kill -9 included, the kernel closes the pipe, and every process with the mark is killed.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager

from .marked import VariableMark, kill_processes


@contextmanager
def reaping(mark: VariableMark) -> Generator[None]:
    """While the block runs, a process watches this one; afterwards, and when this one dies, it kills the group."""
    environment = {name: value for name, value in os.environ.items() if name != mark.variable}
    process = subprocess.Popen(
        [sys.executable, "-m", "spanloop.processes.reaper", *mark],
        stdin=subprocess.PIPE,
        env=environment,
        start_new_session=True,
    )
    try:
        yield
    finally:
        if process.stdin is not None:
            process.stdin.close()
        process.wait()


def main(variable: str, prefix: str) -> int:
    """Wait for the end of standard input, then kill the group."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    kill_processes(None, VariableMark(variable, prefix))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
