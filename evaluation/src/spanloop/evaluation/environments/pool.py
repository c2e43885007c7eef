"""A pool of environment processes, one episode in each at a time.

Invariant: an episode that hangs, crashes or answers nonsense costs itself and its process, and no other episode. A
process is lent only after it answered; what an agent leaves open is closed. No more processes run than attempts.
"""

import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.processes.limited import Wakeup
from spanloop.foundation.processes.line_process import LineProcess
from spanloop.foundation.processes.marked import VariableMark
from spanloop.foundation.settings import EnvironmentSettings
from spanloop.semconv.environment import PROCESS_MARK_ENV

from .base import Fields
from .session import Session

_WORKER: Final = "spanloop.evaluation.environments.worker"
_START_TIMEOUT_S: Final = 120.0
"""Importing an environment may load a simulator."""
_PING_TIMEOUT_S: Final = 10.0
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
        self._problem = self._exchange(first, _START_TIMEOUT_S, lambda: False)

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


class EnvironmentPool:
    """Lends environments to attempts; a context manager, safe to share between threads.

    Args:
        settings: What it runs.
    """

    def __init__(self, settings: PoolSettings) -> None:
        self._settings: Final = settings
        self._lock: Final = threading.Lock()
        self._idle: list[EnvironmentProcess] = []
        self._open: dict[str, Session] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def check(self) -> None:
        """Start a process and look the environment up in it, with its options.

        Raises:
            ConfigurationError: It cannot be used.
        """
        process = self._lend()
        answer = process.ask("check", _START_TIMEOUT_S)
        if isinstance(answer, str):
            process.end()
            raise ConfigurationError(
                f"Environment {self._settings.environment.name!r} cannot be used: {answer}.",
                next_step="spanloop extensions environments lists names and options; MODULE:NAME needs a module on "
                "PYTHONPATH or in --cwd.",
            )
        self._give_back(process)

    def open(self, task: Fields, seed: int, should_stop: Callable[[], bool] = lambda: False) -> Session:
        """Start an episode. A session whose environment failed already says so in its outcome.

        Args:
            task: The fields of the task, with ``task_id``.
            seed: Of the episode.
            should_stop: Interrupts whatever the environment does.

        Raises:
            ConfigurationError: No process can be started.
        """
        process = self._lend()
        session = Session(process, self._settings.environment, should_stop)
        with self._lock:
            self._open[session.key] = session
        session.reset(task, seed)
        return session

    def find(self, key: str) -> Session | None:
        """Return the open session that a key belongs to."""
        with self._lock:
            return self._open.get(key)

    def release(self, session: Session) -> None:
        """Close a session, and keep its process where it answers."""
        with self._lock:
            if self._open.pop(session.key, None) is None:
                return
        session.close()
        self._give_back(session.process)

    def close(self) -> None:
        """Close everything."""
        with self._lock:
            sessions = list(self._open.values())
        for session in sessions:
            self.release(session)
        with self._lock:
            idle, self._idle = self._idle, []
        for process in idle:
            process.end()

    @property
    def sessions(self) -> int:
        """Number of open sessions."""
        with self._lock:
            return len(self._open)

    def _lend(self) -> EnvironmentProcess:
        """Return a process that answers."""
        while True:
            with self._lock:
                process = self._idle.pop() if self._idle else None
            if process is None:
                return self._start()
            if isinstance(process.ask("ping", _PING_TIMEOUT_S), dict):
                return process
            process.end()

    def _start(self) -> EnvironmentProcess:
        started_s = time.monotonic()
        try:
            process = EnvironmentProcess(self._settings)
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                f"A process for environment {self._settings.environment.name!r} cannot be started: {error}.",
                next_step="Free memory or processes, or lower --parallel.",
            ) from error
        if not process.is_healthy:
            why = process.ask("ping", 0.0)
            process.end()
            raise ConfigurationError(
                f"A process for environment {self._settings.environment.name!r} did not start within "
                f"{time.monotonic() - started_s:.0f} s: {why}.",
                next_step="Run it by hand: python -c 'import MODULE', in the directory of --cwd.",
            )
        return process

    def _give_back(self, process: EnvironmentProcess) -> None:
        if process.is_healthy:
            with self._lock:
                self._idle.append(process)
        else:
            process.end()
