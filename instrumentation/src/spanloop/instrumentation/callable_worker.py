"""Call a user's function once for each attempt that the task runner sends, in this process.

``python -m spanloop.instrumentation.callable_worker MODULE:FUNCTION REQUESTS_FD RESULTS_FD``

Invariant: one JSON line in gives one JSON line out, whatever the function does, unless the process dies. The attempt's
ids are in the environment while the function runs, so that its spans, its threads and its child processes carry them.
"""

import asyncio
import importlib
import inspect
import json
import os
import sys
import traceback
from collections.abc import Awaitable, Callable
from typing import IO, Any, Final, NoReturn

from opentelemetry import trace

from spanloop.instrumentation.tasks import task
from spanloop.semconv.environment import EPISODE_ID_ENV, SEED_ENV, TASK_ID_ENV

ANSWER_CHARACTERS: Final = 256 << 10
"""Longest answer; the end of a longer one is kept."""
_ERROR_CHARACTERS: Final = 4_096


def main(target: str, requests_fd: int, results_fd: int) -> int:
    """Serve requests until their pipe is closed."""
    for descriptor in (requests_fd, results_fd):
        os.set_inheritable(descriptor, False)  # child processes must not keep the pipes open
    with os.fdopen(requests_fd, "rb") as requests, os.fdopen(results_fd, "wb") as results:
        try:
            function = _load(target)
        except BaseException as error:  # noqa: BLE001 - importing runs any code
            _send(results, {"failed": _described(error)})
            return 1
        _send(results, {"failed": ""})
        for line in requests:
            _send(results, _attempt(function, json.loads(line)))
    return 0


def _load(target: str) -> Callable[[Any], Any]:
    module_name, _, path = target.partition(":")
    found: Any = importlib.import_module(module_name)
    for name in path.split("."):
        found = getattr(found, name)
    if not callable(found):
        raise TypeError(f"{target} is {type(found).__name__}, expected a function")
    return found  # type: ignore[no-any-return] # checked above


def _attempt(function: Callable[[Any], Any], request: dict[str, Any]) -> dict[str, str]:
    os.environ[TASK_ID_ENV] = request["task_id"]
    os.environ[EPISODE_ID_ENV] = request["episode_id"]
    os.environ[SEED_ENV] = str(request["seed"])
    os.environ.update(request["variables"])
    trace_id = answer = error_text = ""
    try:
        with task(request["task_id"]):
            trace_id = _trace_id()
            value = function(request["fields"])
            if inspect.isawaitable(value):
                value = asyncio.run(_awaited(value))
        answer = "" if value is None else value if isinstance(value, str) else json.dumps(value, default=str)
    except BaseException as error:  # noqa: BLE001 - whatever the function raises ends this attempt only
        error_text = _described(error)
    sys.stdout.flush()
    sys.stderr.flush()
    return {"answer": answer[-ANSWER_CHARACTERS:], "error": error_text, "trace_id": trace_id}


async def _awaited(value: Awaitable[Any]) -> Any:
    return await value


def _trace_id() -> str:
    context = trace.get_current_span().get_span_context()
    return trace.format_trace_id(context.trace_id) if context.is_valid else ""


def _described(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))[-_ERROR_CHARACTERS:].strip()


def _send(results: IO[bytes], result: dict[str, str]) -> None:
    results.write(json.dumps(result).encode() + b"\n")
    results.flush()


def _run() -> NoReturn:
    target, requests_fd, results_fd = sys.argv[1:]
    sys.exit(main(target, int(requests_fd), int(results_fd)))


if __name__ == "__main__":
    _run()
