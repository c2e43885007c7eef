"""A process that runs one environment, and why it gives no answer.

Invariant: whatever the environment does, `EnvironmentProcess.ask` returns: an answer, or the reason in words.
"""

import sys
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from spanloop.foundation.processes.limited import Wakeup
from spanloop.foundation.processes.line_process import LineProcess
from spanloop.foundation.processes.marked import VariableMark
from spanloop.foundation.settings import EnvironmentSettings
from spanloop.semconv.environment import PROCESS_MARK_ENV

_WORKER: Final = "spanloop.evaluation.environments.worker"
START_TIMEOUT_S: Final = 120.0
"""Importing an environment may load a simulator."""
_STDERR_LINES: Final = 3
_STDERR_CHARACTERS: Final = 500


class PoolSettings(NamedTuple):
    """What the pool runs, and where."""

    environment: EnvironmentSettings
    variables: Mapping[str, str]
    """The variables of each process, complete."""
    mark_prefix: str
    """Begins the mark of each process."""
    cwd: Path | None = None


class EnvironmentProcess:
    """One process; it raises nothing, and says in words why it gives no answer.

    Raises:
        OSError: It cannot be started.
    """

    def __init__(self, settings: PoolSettings) -> None:
        mark = settings.mark_prefix + uuid.uuid4().hex
        environment = settings.environment

        def command(requests_fd: int, results_fd: int) -> list[str]:
            return [sys.executable, "-m", _WORKER, str(requests_fd), str(results_fd)]

        variables = {**settings.variables, PROCESS_MARK_ENV: mark}
        self._lines: Final = LineProcess(command, variables, VariableMark(PROCESS_MARK_ENV, mark), settings.cwd)
        self.is_healthy = True
        """Whether it answered every request so far."""
        first = {"reference": environment.name, "options": dict(environment.options)}
        self._problem = self._exchange(first, START_TIMEOUT_S, lambda: False)

    def ask(
        self, call: str, timeout_s: float, should_stop: Callable[[], bool] = lambda: False, **request: Any
    ) -> dict[str, Any] | str:
        """Return the answer to a request, or why there is none."""
        if not self.is_healthy:
            return self._problem if isinstance(self._problem, str) else "its process has ended"
        return self._exchange({"call": call, **request}, timeout_s, should_stop)

    def end(self) -> None:
        """End the process; one that waits for a request closes its environment first."""
        self._lines.close(grace_s=0.0, is_idle=self.is_healthy)

    def _exchange(
        self, request: Mapping[str, Any], timeout_s: float, should_stop: Callable[[], bool]
    ) -> dict[str, Any] | str:
        self._lines.send(request)
        answer = self._lines.receive(timeout_s, should_stop)
        if isinstance(answer, dict):
            return str(answer["failed"]) or answer
        self.is_healthy = False
        call = request.get("call", "start")
        if answer is Wakeup.TIMED_OUT:
            return f"it did not answer {call} within {timeout_s:g} s"
        if answer is Wakeup.STOPPED:
            return f"{call} was interrupted"
        return f"its process ended during {call}{self._last_words()}"

    def _last_words(self) -> str:
        lines = self._lines.process.stderr.text.strip().splitlines()[-_STDERR_LINES:]
        return f" ({' | '.join(lines)[-_STDERR_CHARACTERS:]})" if lines else ""
