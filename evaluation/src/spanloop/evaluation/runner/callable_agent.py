"""Call a Python function for each attempt, in a worker process that is kept for the next one.

Invariant: a worker makes one attempt at a time. One that exceeds its time, or dies, is ended with all it started, and
the next attempt gets a new one.
"""

import sys
import time
import uuid
from collections.abc import Callable
from typing import Final

from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.processes.limited import GRACE_S, Wakeup
from spanloop.foundation.processes.line_process import LineProcess
from spanloop.foundation.processes.marked import VariableMark
from spanloop.semconv.environment import PROCESS_MARK_ENV

from .agent import AgentSettings, NotStartedError, error_text, instrumented
from .answers import Output, answer_of_output
from .attempt import AttemptEnd, EndState, TaskAttempt

_WORKER: Final = "spanloop.instrumentation.callable_worker"
_SERVICE_ENV: Final = "OTEL_SERVICE_NAME"
_START_TIMEOUT_S: Final = 300.0
"""Importing the user's module may load a model."""


def _start(settings: AgentSettings) -> LineProcess:
    """Start a worker process.

    Raises:
        ConfigurationError: It cannot be started.
    """
    mark = settings.mark_prefix + uuid.uuid4().hex
    environment = {**settings.environment, PROCESS_MARK_ENV: mark}
    environment.setdefault(_SERVICE_ENV, settings.agent.partition(":")[0])

    def command(requests_fd: int, results_fd: int) -> list[str]:
        words = [sys.executable, "-m", _WORKER, settings.agent, str(requests_fd), str(results_fd)]
        return instrumented(words, settings)

    try:
        return LineProcess(command, environment, VariableMark(PROCESS_MARK_ENV, mark), settings.cwd)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"The worker of agent {settings.agent!r} cannot be started: {error}.") from error


class CallableAgent:
    """Calls the function.

    Args:
        settings: How it is run; ``agent`` is ``module:function``.
        output: Where the answer is when the function returns None.
    """

    def __init__(self, settings: AgentSettings, *, output: Output) -> None:
        self._settings: Final = settings
        self._output: Final = output
        self._worker: LineProcess | None = None

    def check(self) -> None:
        """Import the function in a worker, which ends at once.

        Raises:
            ConfigurationError: It cannot be imported.
        """
        worker = self._started(lambda: False)
        if worker is not None:
            worker.close(grace_s=GRACE_S, is_idle=True)

    def attempt(self, attempt: TaskAttempt, should_stop: Callable[[], bool]) -> AttemptEnd | None:
        """Make an attempt; return None when it was interrupted.

        Raises:
            ConfigurationError: The function cannot be imported.
            NotStartedError: It was interrupted while the worker started.
        """
        worker = self._worker or self._started(should_stop)
        if worker is None:
            raise NotStartedError
        self._worker = worker
        worker.process.stdout.take()
        worker.process.stderr.take()
        started_us, started_s = time.time_ns() // 1_000, time.monotonic()
        worker.send(
            {
                "task_id": attempt.task.id,
                "episode_id": attempt.episode_id,
                "seed": attempt.seed,
                "fields": dict(attempt.task.fields),
                "variables": dict(attempt.variables),
            }
        )
        result = worker.receive(self._settings.timeout_s, should_stop)
        duration_ms = round((time.monotonic() - started_s) * 1_000)
        if isinstance(result, Wakeup):
            return self._lost(worker, result, started_us, duration_ms)
        answer = result["answer"] or answer_of_output(worker.process.stdout.take().text, self._output)
        state = EndState.CRASHED if result["error"] else EndState.FINISHED
        return AttemptEnd(state, started_us, duration_ms, answer, result["error"], None, result["trace_id"])

    def close(self) -> None:
        """End the worker, which sends its last spans."""
        if self._worker is not None:
            worker, self._worker = self._worker, None
            worker.close(grace_s=GRACE_S, is_idle=True)

    def _started(self, should_stop: Callable[[], bool]) -> LineProcess | None:
        worker = _start(self._settings)
        ready = worker.receive(_START_TIMEOUT_S, should_stop)
        if isinstance(ready, dict) and not ready["failed"]:
            return worker
        status = worker.close(grace_s=0)
        if ready is Wakeup.STOPPED:
            return None
        why = ready["failed"] if isinstance(ready, dict) else f"its process ended with status {status}"
        raise ConfigurationError(
            f"Agent {self._settings.agent!r} cannot be loaded: {error_text(why, worker.process.stderr)}",
            next_step="Name it as module:function, from a module in --cwd or on PYTHONPATH.",
        )

    def _lost(self, worker: LineProcess, wakeup: Wakeup, started_us: int, duration_ms: int) -> AttemptEnd | None:
        """End a worker that gave no result, and say how the attempt ended."""
        self._worker = None
        status = worker.close(grace_s=GRACE_S)
        if wakeup is Wakeup.STOPPED:
            return None
        if wakeup is Wakeup.TIMED_OUT:
            state, what = EndState.TIMED_OUT, f"stopped after {self._settings.timeout_s:g} s"
        else:
            state, what = EndState.CRASHED, f"its process ended with status {status}"
        return AttemptEnd(state, started_us, duration_ms, "", error_text(what, worker.process.stderr))
