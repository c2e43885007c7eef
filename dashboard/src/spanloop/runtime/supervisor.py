"""Starts the services, restarts one that dies, stops them all.

Invariant: after ``start`` every service has announced itself; after ``stop`` none of the processes it started is alive.
A service that dies again and again ends the whole with its own last words, instead of flapping for ever.
"""

import fcntl
import os
import subprocess
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from spanloop.semconv.environment import DATA_DIR_ENV
from spanloop.semconv.errors import AlreadyRunningError, ServiceError

from .child_processes import start_child, stop_child

if TYPE_CHECKING:
    from spanloop.datadir import DataDir

    from .services import Service

_READY_TIMEOUT_S: Final = 90.0
_POLL_S: Final = 0.1
_MOST_RESTARTS: Final = 5
_FORGIVEN_AFTER_S: Final = 60.0

Say = Callable[[str], None]
"""Receives one line for a person."""


@dataclass
class _Child:
    service: "Service"
    process: subprocess.Popen[bytes]
    log_start_bytes: int
    started_s: float
    restarts: int = 0
    due_s: float = field(default=0.0)
    """When to start it again; 0 while it runs."""


class Supervisor:
    """The services of one data directory."""

    def __init__(self, data_dir: "DataDir", services: "list[Service]", say: Say) -> None:
        self._data_dir = data_dir
        self._services = services
        self._say = say
        self._children: list[_Child] = []

    def start(self, stop: threading.Event) -> None:
        """Start every service and wait until each answers.

        Raises:
            ServiceError: One ended or did not answer; its last words are in the message.
            KeyboardInterrupt: ``stop`` was set meanwhile.
        """
        self._children = [self._launch(service) for service in self._services]
        deadline_s = time.monotonic() + _READY_TIMEOUT_S
        for child in self._children:
            self._await_ready(child, deadline_s, stop)

    def watch(self, stop: threading.Event) -> None:
        """Restart what dies, until ``stop`` is set.

        Raises:
            ServiceError: A service died too often within a minute.
        """
        while not stop.wait(_POLL_S * 2):
            for child in self._children:
                self._revive(child)

    def stop(self) -> None:
        """End every service, the last one started first."""
        for child in reversed(self._children):
            stop_child(child.process)
        self._children = []

    def _launch(self, service: "Service") -> _Child:
        log = self._data_dir.logs / f"{service.name}.log"
        start = log.stat().st_size if log.exists() else 0
        process = start_child(
            service.command(self._data_dir), log=log, environment={DATA_DIR_ENV: str(self._data_dir.path)}
        )
        return _Child(service, process, start, time.monotonic())

    def _await_ready(self, child: _Child, deadline_s: float, stop: threading.Event) -> None:
        while True:
            found = self._data_dir.running(child.service.name)
            if found is not None and found.pid == child.process.pid:
                return
            if stop.is_set():
                raise KeyboardInterrupt
            if child.process.poll() is not None:
                raise ServiceError(f"The {child.service.name} ended while starting.\n{self._last_words(child)}")
            if time.monotonic() > deadline_s:
                raise ServiceError(
                    f"The {child.service.name} did not answer within {_READY_TIMEOUT_S:.0f} s.",
                    next_step=f"Read {self._data_dir.logs / child.service.name}.log",
                )
            time.sleep(_POLL_S)

    def _revive(self, child: _Child) -> None:
        now_s = time.monotonic()
        if child.due_s:
            if now_s >= child.due_s:
                fresh = self._launch(child.service)
                child.process, child.started_s, child.due_s = fresh.process, fresh.started_s, 0.0
                child.log_start_bytes = fresh.log_start_bytes
                self._say(f"{child.service.name}: started again")
            return
        code = child.process.poll()
        if code is None:
            return
        child.restarts = 1 if now_s - child.started_s > _FORGIVEN_AFTER_S else child.restarts + 1
        if child.restarts > _MOST_RESTARTS:
            raise ServiceError(f"The {child.service.name} keeps dying.\n{self._last_words(child)}")
        wait_s = min(8.0, 0.5 * 2 ** (child.restarts - 1))
        child.due_s = now_s + wait_s
        self._say(f"{child.service.name}: ended with {code}, starting again in {wait_s:g} s")

    def _last_words(self, child: _Child) -> str:
        log = self._data_dir.logs / f"{child.service.name}.log"
        with log.open("rb") as source:
            source.seek(child.log_start_bytes)
            lines = source.read().decode(errors="replace").strip().splitlines()
        return "\n".join(lines[-8:]) or f"  next: Read {log}"


@contextmanager
def only_one_up(data_dir: "DataDir") -> Generator[None]:
    """Hold the data directory's lock.

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
