"""Run code and tests under resource limits; the program of the grader ``code``: ``code_harness.py RESULTS_FD``.

Reads the request as JSON from standard input. Writes one line for each test: the request's token, and behind a space
what failed; nothing behind it for a test that passed. Standard library only: any interpreter runs it.
"""

import json
import os
import resource
import sys
import traceback
from typing import Any

_SHOWN = 300


def main(results_fd: int) -> None:
    """Run the request."""
    request = json.load(sys.stdin)
    _limit(resource.RLIMIT_AS, request["memory_bytes"])
    _limit(resource.RLIMIT_FSIZE, request["file_bytes"])
    _limit(resource.RLIMIT_CPU, request["cpu_s"])
    _limit(resource.RLIMIT_CORE, 0)
    token = request["token"]
    namespace: dict[str, Any] = {"__name__": "answer"}
    failure = _run(request["code"], "answer", namespace)
    for number, test in enumerate(request["tests"], start=1):
        line = failure or _run(test, f"test {number}", namespace)
        os.write(results_fd, f"{token} {line}\n".encode("utf-8", "replace"))


def _limit(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    allowed = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (allowed, allowed))


def _run(source: str, name: str, namespace: dict[str, Any]) -> str:
    """Run source; return what it raised, on one line, or nothing."""
    try:
        exec(compile(source, name, "exec"), namespace)  # noqa: S102 - what this program is for
    except BaseException as error:  # noqa: BLE001 - sys.exit() in an answer is a failure like any other
        text = traceback.format_exception_only(error)[-1].strip().splitlines()[0]
        return f"{name}: {text}"[:_SHOWN]
    return ""


if __name__ == "__main__":
    main(int(sys.argv[1]))
