"""Services on hosts, and the supervisor that starts them again when they end, as an init system does."""

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self

import psutil

from .network import Host, child_of, kill_child

if TYPE_CHECKING:
    import subprocess

RESTART_S: Final = 1.0
"""Pause of the supervisor before it starts a service again."""


class Service:
    """A process on a host, with a log.

    Args:
        host: Where it runs.
        name: The role, or the server's name.
        command: The program.
        environment: Variables beside those of the host.
    """

    may_end = False
    """Whether it ends by itself when another one is killed."""

    def __init__(
        self, host: Host, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> None:
        self.host = host
        self.role = name
        self.name = f"{name} of {host.name}"
        self.log = host.srv / f"{name}.log"
        self._command = list(command)
        self._environment = dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def has_ended(self) -> bool:
        """Whether it was started and does not run."""
        return self._process is not None and self._process.poll() is not None

    def start(self) -> None:
        """Start it, again."""
        with self.log.open("ab") as log:
            self._process = self.host.popen(self._command, environment=self._environment, output=log)

    def kill(self) -> None:
        """Send kill -9 and wait for the end."""
        if self._process is not None:
            kill_child(self._process)
            self._process.wait()

    def terminate(self) -> None:
        """Send SIGTERM and wait for the end."""
        assert self._process is not None
        os.kill(child_of(self._process.pid), signal.SIGTERM)
        self._process.wait(60)

    def end_of_log(self) -> str:
        """Return the last lines of its log."""
        return self.log.read_text(errors="replace")[-3000:] if self.log.exists() else ""


class RayNode(Service):
    """A node of Ray, whose processes end together, as when an init system kills a service."""

    may_end = True

    def kill(self) -> None:
        """Send kill -9 to every one of them."""
        if self._process is not None and not self.has_ended:
            for process in psutil.Process(self._process.pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    process.kill()
        super().kill()


class Supervisor:
    """Starts services, and starts again what has ended. A context manager; at its end it kills them."""

    def __init__(self) -> None:
        self.services: dict[str, Service] = {}
        self.ended_alone: Counter[str] = Counter()
        """How often a service ended that nobody had killed."""
        self._killed: Counter[str] = Counter()
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Kill all services, and start none again."""
        self._stopping.set()
        self._thread.join()
        for service in self.services.values():
            service.kill()

    def start(self, service: Service) -> None:
        """Start a service, and go on starting it."""
        service.start()
        with self._lock:
            self.services[service.name] = service

    def wait(self, condition: Callable[[], bool], service: Service, timeout_s: float = 120) -> None:
        """Wait until a service that has just been started is ready."""
        deadline_s = time.monotonic() + timeout_s
        while not condition():
            assert not self.ended_alone[service.name], f"{service.name} has ended: {service.end_of_log()}"
            assert time.monotonic() < deadline_s, f"{service.name} is not ready: {service.end_of_log()}"
            time.sleep(0.1)

    def kill(self, service: Service) -> bool:
        """Send kill -9; the supervisor starts it again. Return False if it did not run."""
        with self._lock:
            if service.has_ended:
                return False
            self._killed[service.name] += 1
            service.kill()
            return True

    def _watch(self) -> None:
        while not self._stopping.wait(0.2):
            with self._lock:
                ended = [service for service in self.services.values() if service.has_ended]
                for service in ended:
                    if self._killed[service.name]:
                        self._killed[service.name] -= 1
                    else:
                        self.ended_alone[service.name] += 1
            if ended and not self._stopping.wait(RESTART_S):
                with self._lock:
                    for service in ended:
                        service.start()
