"""Start the services, restart one that dies, stop them all.

Invariant: after ``start`` every service has announced itself; after ``stop`` no process that it started is alive.
A service that keeps dying stops the whole stack with an error that holds its last log lines.
"""

import ctypes
import fcntl
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from spanloop.foundation.errors import AlreadyRunningError, ServiceError
from spanloop.semconv.environment import DATA_DIR_ENV

if TYPE_CHECKING:
    from spanloop.foundation.paths import DataDir

    from .services import Service

_PR_SET_PDEATHSIG: Final = 1
_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_READY_TIMEOUT_S: Final = 90.0
_POLL_S: Final = 0.1
_MAX_RESTARTS: Final = 5
_RESTARTS_RESET_AFTER_S: Final = 60.0

ProgressCallback = Callable[[str], None]
"""Receives one line of progress for the user."""


@dataclass
class _Child:
    service: "Service"
    process: subprocess.Popen[bytes]
    log_start_bytes: int
    started_s: float
    restarts: int = 0
    restart_at_s: float = field(default=0.0)
    """When to restart it, on the monotonic clock; 0 while it runs."""


class Supervisor:
    """Runs the services of one data directory."""

    def __init__(self, data_dir: "DataDir", services: "list[Service]", on_progress: ProgressCallback) -> None:
        self._data_dir = data_dir
        self._services = services
        self._on_progress = on_progress
        self._children: list[_Child] = []

    def start(self, stop: threading.Event) -> None:
        """Start every service and wait until each has announced itself.

        Raises:
            ServiceError: A service ended, with its last log lines, or did not announce itself in time.
            KeyboardInterrupt: ``stop`` was set during the start.
        """
        self._children = [self._start_service(service) for service in self._services]
        deadline_s = time.monotonic() + _READY_TIMEOUT_S
        for child in self._children:
            self._await_ready(child, deadline_s, stop)

    def watch(self, stop: threading.Event) -> None:
        """Restart services that die, until ``stop`` is set.

        Raises:
            ServiceError: A service died too often; a minute of running resets the count.
        """
        while not stop.wait(_POLL_S * 2):
            for child in self._children:
                self._restart_if_dead(child)

    def stop(self) -> None:
        """Stop every service in reverse start order."""
        for child in reversed(self._children):
            _stop_child(child.process)
        self._children = []

    def _start_service(self, service: "Service") -> _Child:
        log = self._data_dir.logs / f"{service.name}.log"
        start = log.stat().st_size if log.exists() else 0
        process = _start_child(
            service.command(self._data_dir), log=log, environment={DATA_DIR_ENV: str(self._data_dir.path)}
        )
        return _Child(service, process, start, time.monotonic())

    def _await_ready(self, child: _Child, deadline_s: float, stop: threading.Event) -> None:
        while True:
            running = self._data_dir.running(child.service.name)
            if running is not None and running.pid == child.process.pid:
                return
            if stop.is_set():
                raise KeyboardInterrupt
            if child.process.poll() is not None:
                raise ServiceError(f"The {child.service.name} ended while starting.\n{self._last_log_lines(child)}")
            if time.monotonic() > deadline_s:
                raise ServiceError(
                    f"The {child.service.name} did not start within {_READY_TIMEOUT_S:.0f} s.",
                    next_step=f"Read {self._data_dir.logs / child.service.name}.log",
                )
            time.sleep(_POLL_S)

    def _restart_if_dead(self, child: _Child) -> None:
        now_s = time.monotonic()
        if child.restart_at_s:
            if now_s >= child.restart_at_s:
                restarted = self._start_service(child.service)
                child.process, child.started_s, child.restart_at_s = restarted.process, restarted.started_s, 0.0
                child.log_start_bytes = restarted.log_start_bytes
                self._on_progress(f"{child.service.name}: restarted")
            return
        exit_code = child.process.poll()
        if exit_code is None:
            return
        child.restarts = 1 if now_s - child.started_s > _RESTARTS_RESET_AFTER_S else child.restarts + 1
        if child.restarts > _MAX_RESTARTS:
            raise ServiceError(f"The {child.service.name} keeps dying.\n{self._last_log_lines(child)}")
        delay_s = min(8.0, 0.5 * 2 ** (child.restarts - 1))
        child.restart_at_s = now_s + delay_s
        self._on_progress(f"{child.service.name}: ended with {exit_code}, restarting in {delay_s:g} s")

    def _last_log_lines(self, child: _Child) -> str:
        log = self._data_dir.logs / f"{child.service.name}.log"
        with log.open("rb") as source:
            source.seek(child.log_start_bytes)
            lines = source.read().decode(errors="replace").strip().splitlines()
        return "\n".join(lines[-8:]) or f"  next: Read {log}"


@contextmanager
def up_lock(data_dir: "DataDir") -> Generator[None]:
    """Hold the lock that only one ``spanloop up`` of a data directory can hold.

    Raises:
        AlreadyRunningError: Another ``spanloop up`` holds it.
    """
    with data_dir.up_lock.open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.seek(0)
            raise AlreadyRunningError(
                f"spanloop is already up on {data_dir.path} (process {lock.read().strip() or 'unknown'}).",
                next_step="Use it (spanloop status), stop it with Ctrl-C where it runs, or name another --data-dir.",
            ) from error
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield


def _start_child(command: list[str], *, log: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start ``command`` in a new session and append its output to ``log``.

    The new session keeps Ctrl-C from reaching the child, because the supervisor stops its children in order. The
    kernel sends the child SIGTERM when the supervisor's main thread ends for any reason, kill -9 included.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=_request_sigterm_on_parent_death,  # noqa: PLW1509 - one system call, no locks
            env={**os.environ, **environment},
        )


def _stop_child(child: subprocess.Popen[bytes], *, timeout_s: float = 12.0) -> None:
    """Stop ``child`` by SIGTERM; after ``timeout_s`` seconds, kill its session."""
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _request_sigterm_on_parent_death() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
