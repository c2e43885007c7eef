"""``spanloop up`` as a process: one command, one Ctrl-C, nothing left behind."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from spanloop.semconv.environment import read_run_file

from .support import SPANLOOP, Run

SERVICES = ("clickhouse", "collector", "gateway", "scheduler", "dashboard")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def eventually(check: Callable[[], bool], timeout_s: float = 40) -> bool:
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s:
        if check():
            return True
        time.sleep(0.1)
    return False


class Up:
    """A running ``spanloop up``."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.ports = {name: free_port() for name in ("collector", "gateway", "dashboard")}
        options = [text for name, port in self.ports.items() for text in (f"--{name}-port", str(port))]
        self.process = subprocess.Popen(
            [str(SPANLOOP), "up", "--data-dir", str(data_dir), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def pid_of(self, service: str) -> int | None:
        found = read_run_file(self.data_dir, service)
        return None if found is None else found.pid

    def is_ready(self) -> bool:
        assert self.process.poll() is None, self.process.communicate()
        return all(self.pid_of(service) is not None for service in SERVICES)

    def descendants(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        self.process.communicate(timeout=60)


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    running = Up(tmp_path / "data")
    try:
        assert eventually(running.is_ready, 90)
        yield running
    finally:
        running.end()


def none_alive(processes: list[psutil.Process]) -> bool:
    return not any(each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in processes)


def test_everything_answers_and_one_ctrl_c_ends_it_all(up: Up) -> None:
    health = json.load(urllib.request.urlopen(f"http://127.0.0.1:{up.ports['collector']}/healthz", timeout=10))
    assert health["status"] == "ok"
    urllib.request.urlopen(f"http://127.0.0.1:{up.ports['dashboard']}/", timeout=10).close()
    children = up.descendants()
    assert len(children) >= len(SERVICES)

    up.process.send_signal(signal.SIGINT)
    out, _ = up.process.communicate(timeout=40)
    assert up.process.returncode == 0
    assert f"http://127.0.0.1:{up.ports['dashboard']}" in out
    assert none_alive(children)
    assert not any(up.pid_of(service) for service in SERVICES)


def test_a_second_up_and_a_taken_port_are_refused(up: Up, spanloop: Run, tmp_path: Path) -> None:
    second = spanloop("up", "--data-dir", str(up.data_dir))
    assert second.returncode == 3
    assert str(up.process.pid) in second.stderr

    port = str(up.ports["collector"])
    taken = spanloop("up", "--data-dir", str(tmp_path / "other"), "--collector-port", port)
    assert taken.returncode == 3
    assert f"Port {port}" in taken.stderr
    assert "--collector-port" in taken.stderr


def test_a_service_that_dies_is_started_again(up: Up) -> None:
    for service in ("collector", "clickhouse"):
        before = up.pid_of(service)
        assert before is not None
        os.kill(before, signal.SIGKILL)
        assert eventually(lambda service=service, before=before: up.pid_of(service) not in {None, before}), service  # type: ignore[misc]
    health_url = f"http://127.0.0.1:{up.ports['collector']}/healthz"
    assert eventually(lambda: json.load(urllib.request.urlopen(health_url, timeout=10))["status"] == "ok")


def test_kill_9_of_up_leaves_nothing_running(up: Up) -> None:
    children = up.descendants()
    up.process.kill()
    up.process.wait()
    assert eventually(lambda: none_alive(children), 30), [each for each in children if each.is_running()]
    with contextlib.suppress(subprocess.TimeoutExpired):
        up.process.communicate(timeout=5)
