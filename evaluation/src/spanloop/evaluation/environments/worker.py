"""Run an environment in this process, one episode after the other, for the pool of the task runner.

``python -m spanloop.evaluation.environments.worker REQUESTS_FD RESULTS_FD``

Invariant: one JSON line in gives one JSON line out, whatever the environment does, unless the process dies. Each
episode has an object of its own. The field ``failed`` of a line says why the environment cannot go on; empty otherwise.
"""

import json
import os
import sys
from collections.abc import Mapping
from typing import IO, Any, Final, NoReturn

from spanloop.foundation.errors import SpanloopError

from . import ENVIRONMENT_POINT
from .base import Action, Environment, EnvironmentFailedError
from .messages import checked_step, checked_tools, tool_json

MOST_BYTES: Final = 4 << 20
"""Longest answer of an environment, as JSON."""
_ERROR_CHARACTERS: Final = 1_000


class _Worker:
    def __init__(self, reference: str, options: Mapping[str, str]) -> None:
        self._reference: Final = reference
        self._options: Final = options
        self._environment: Environment | None = None

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Serve one request.

        Raises:
            EnvironmentFailedError: The environment gave nonsense; other exceptions are its own.
        """
        match request["call"]:
            case "ping":
                return {}
            case "check":
                ENVIRONMENT_POINT.find(self._reference, self._options)
                return {}
            case "reset":
                return self._reset(request)
            case "step":
                return self._step(request)
            case _:
                self.close()
                return {}

    def close(self) -> None:
        """Close the episode, if one is open."""
        environment, self._environment = self._environment, None
        if environment is not None:
            environment.close()

    def _reset(self, request: Mapping[str, Any]) -> dict[str, Any]:
        self.close()
        self._environment = ENVIRONMENT_POINT.find(self._reference, self._options)
        observation = self._environment.reset(request["task"], request["seed"])
        tools = [tool_json(tool) for tool in checked_tools(self._environment.tools())]
        return {"observation": observation, "tools": tools, "takes_messages": self._environment.takes_messages}

    def _step(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if self._environment is None:
            raise EnvironmentFailedError("no episode was started")
        action = Action(request["tool"], request["arguments"], request["message"])
        return checked_step(self._environment.step(action))._asdict()


def main(requests_fd: int, results_fd: int) -> int:
    """Serve requests until their pipe is closed."""
    for descriptor in (requests_fd, results_fd):
        os.set_inheritable(descriptor, False)  # child processes must not keep the pipes open
    with os.fdopen(requests_fd, "rb") as requests, os.fdopen(results_fd, "wb") as results:
        first = json.loads(requests.readline() or b"{}")
        worker = _Worker(first.get("reference", ""), first.get("options", {}))
        _send(results, {})
        for line in requests:
            try:
                answer = worker.answer(json.loads(line))
            except BaseException as error:  # noqa: BLE001 - whatever the environment raises ends its episode only
                answer = {"failed": _described(error)}
            _send(results, answer)
        worker.close()
    return 0


def _described(error: BaseException) -> str:
    match error:
        case SpanloopError():
            text = f"{error.what.rstrip('.')} ({error.next_step})" if error.next_step else error.what
        case EnvironmentFailedError():
            text = str(error)
        case _:
            text = f"it raised {type(error).__name__}: {error}"
    return " ".join(text.split())[:_ERROR_CHARACTERS].rstrip(".")


def _send(results: IO[bytes], answer: dict[str, Any]) -> None:
    try:
        line = json.dumps({"failed": "", **answer}, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        line = json.dumps({"failed": f"its answer has no JSON form: {error}"[:_ERROR_CHARACTERS]}).encode()
    if len(line) > MOST_BYTES:
        problem = f"its answer has {len(line):,} bytes, expected at most {MOST_BYTES:,}"
        line = json.dumps({"failed": problem}).encode()
    results.write(line + b"\n")
    results.flush()


def _run() -> NoReturn:
    requests_fd, results_fd = sys.argv[1:]
    sys.exit(main(int(requests_fd), int(results_fd)))


if __name__ == "__main__":
    _run()
