"""Processes that are killed at a chosen point, each forked from one that has imported everything."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Self

_SERVER = """
import json, os, sys, traceback
{code}
for line in sys.stdin:
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            main(*json.loads(line))
            status = 0
        except SystemExit as ended:
            status = ended.code
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    print(pid, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


class ForkServer:
    """Calls a program's ``main`` in a forked process, one at a time.

    Args:
        code: The program. It must start no thread before its ``main`` is called.
        log: File of the processes' stderr.
    """

    def __init__(self, code: str, log: Path) -> None:
        self._log = log
        with log.open("ab") as errors:
            self._server = subprocess.Popen(
                [sys.executable, "-c", _SERVER.format(code=code)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def start(self, *arguments: object) -> int:
        """Start a process; return its id."""
        assert self._server.stdin is not None
        self._server.stdin.write(json.dumps(arguments) + "\n")
        self._server.stdin.flush()
        return self._read()

    def wait(self) -> int:
        """Wait until the process has ended; return its exit status, negative: the signal."""
        return self._read()

    def run(self, *arguments: object) -> int:
        """Start a process and wait until it has ended."""
        self.start(*arguments)
        return self.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.communicate()

    def _read(self) -> int:
        assert self._server.stdout is not None
        line = self._server.stdout.readline()
        assert line, self._log.read_text()
        return int(line)
