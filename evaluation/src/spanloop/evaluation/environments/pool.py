"""A pool of environment processes, one episode in each at a time.

Invariant: an episode that hangs, crashes or answers nonsense costs itself and its process, and no other episode. A
process is lent only after it answered; what an agent leaves open is closed. No more processes run than attempts.
"""

import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final, Self

from spanloop.foundation.errors import ConfigurationError

from .base import Fields
from .process import START_TIMEOUT_S, EnvironmentProcess, PoolSettings
from .session import Session

__all__ = ["EnvironmentPool", "PoolSettings"]

_PING_TIMEOUT_S: Final = 10.0


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

    def check(self, tasks: Sequence[Fields] = (), seed: int = 0) -> None:
        """Start a process and look the environment up in it, with its options; start an episode of one of the tasks.

        Args:
            tasks: Fields of tasks; one whose episode starts is enough, and without any no episode is started.
            seed: Of the episode.

        Raises:
            ConfigurationError: It cannot be used, or starts no episode within ``check_timeout_s``.
        """
        process = self._lend()
        answer = process.ask("check", START_TIMEOUT_S)
        if isinstance(answer, str):
            process.end()
            raise ConfigurationError(
                f"Environment {self._settings.environment.name!r} cannot be used: {answer}.",
                next_step="spanloop extensions environments lists names and options; MODULE:NAME needs a module on "
                "PYTHONPATH or in --cwd.",
            )
        self._give_back(process)
        failures = [self._try_episode(task, seed) for task in tasks[:1]]
        if failures and failures[0] and len(tasks) > 1:  # one task alone may be at fault
            failures.append(self._try_episode(tasks[1], seed))
        if failures and all(failures):
            raise ConfigurationError(
                f"The environment started no episode, so nothing was begun. {failures[-1].partition(' Next: ')[0]}",
                next_step="Start or correct the environment; one that is slow needs a larger check_timeout_s in "
                "[environment].",
            )

    def _try_episode(self, task: Fields, seed: int) -> str:
        """Start and close an episode; return why it cannot be started, empty when it can."""
        session = Session(self._lend(), self._settings.environment, lambda: False)
        session.reset(task, seed, self._settings.environment.check_timeout_s)
        session.close()
        self._give_back(session.process)
        return session.outcome.failure

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
