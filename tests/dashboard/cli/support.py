"""Helpers for tests that run the whole command."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import psutil

from spanloop.semconv.environment import read_run_file

from ...ports import free_port

SPANLOOP = Path(sys.executable).with_name("spanloop")

Run = Callable[..., subprocess.CompletedProcess[str]]
"""``spanloop ARGUMENTS, NAME=VALUE`` as a process with an environment."""

SERVICES = ("clickhouse", "collector", "gateway", "pipeline", "scheduler", "dashboard")


def eventually(check: Callable[[], bool], timeout_s: float = 90) -> bool:
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s:
        if check():
            return True
        time.sleep(0.1)
    return False


class Up:
    """A running ``spanloop up``."""

    def __init__(self, data_dir: Path, ports: dict[str, int] | None = None) -> None:
        self.data_dir = data_dir
        self.ports = ports or {name: free_port() for name in ("collector", "gateway", "dashboard")}
        options = [text for name, port in self.ports.items() for text in (f"--{name}-port", str(port))]
        self.process = subprocess.Popen(
            [str(SPANLOOP), "up", "--data-dir", str(data_dir), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def pid_of(self, service: str) -> int | None:
        running = read_run_file(self.data_dir, service)
        return None if running is None else running.pid

    def is_ready(self) -> bool:
        assert self.process.poll() is None, self.process.communicate()
        return all(self.pid_of(service) is not None for service in SERVICES)

    def descendants(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        self.process.communicate(timeout=120)


@contextmanager
def everything_up(data_dir: Path) -> Generator[Up]:
    """``spanloop up``, from the moment on which every service answers."""
    running = Up(data_dir)
    try:
        assert eventually(running.is_ready, 150)
        yield running
    finally:
        running.end()


def none_alive(processes: list[psutil.Process]) -> bool:
    return not any(each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in processes)
