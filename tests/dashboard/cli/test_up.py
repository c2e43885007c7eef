"""``spanloop up`` as a process: one command, one Ctrl-C, nothing left behind."""

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from spanloop.cli.options import use_configuration
from spanloop.foundation.errors import ConfigurationError, DataDirectoryError
from spanloop.foundation.paths import DataDir
from spanloop.foundation.settings import find_configuration
from spanloop.foundation.settings.roles import GatewaySettings
from spanloop.foundation.settings.sources import read_process
from spanloop.runtime.services import Ports, services
from spanloop.runtime.stack import check_free_space
from spanloop.semconv.environment import CONFIG_ENV

from .support import SERVICES, Run, Up, eventually, none_alive


@pytest.fixture(scope="module")
def ups() -> Iterator[list[Up]]:
    """Those that the tests have started, the newest last."""
    started: list[Up] = []
    yield started
    for each in started:
        each.end()


@pytest.fixture
def up(ups: list[Up], tmp_path_factory: pytest.TempPathFactory) -> Up:
    """A running one: that of the test before, unless it has ended."""
    if not ups or ups[-1].process.poll() is not None:
        ups.append(Up(tmp_path_factory.mktemp("up") / "data"))
        assert eventually(ups[-1].is_ready, 150)
    return ups[-1]


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
    assert eventually(lambda: json.load(urllib.request.urlopen(health_url, timeout=60))["status"] == "ok")


def test_kill_9_of_up_leaves_nothing_running_and_the_next_up_waits_for_what_is_left(up: Up, ups: list[Up]) -> None:
    children = up.descendants()
    up.process.kill()
    up.process.wait()
    left = {up.pid_of(service) for service in SERVICES}
    again = Up(up.data_dir, up.ports)
    ups.append(again)
    assert eventually(lambda: again.is_ready() and not left & {up.pid_of(service) for service in SERVICES}, 90)
    assert eventually(lambda: none_alive(children)), [each for each in children if each.is_running()]
    with contextlib.suppress(subprocess.TimeoutExpired):
        up.process.communicate(timeout=10)


def test_everything_answers_and_one_ctrl_c_ends_it_all(up: Up) -> None:
    health_url = f"http://127.0.0.1:{up.ports['collector']}/healthz"
    # The collector answers before it has met ClickHouse.
    assert eventually(lambda: json.load(urllib.request.urlopen(health_url, timeout=60))["status"] == "ok")
    urllib.request.urlopen(f"http://127.0.0.1:{up.ports['dashboard']}/", timeout=60).close()
    children = up.descendants()
    assert len(children) >= len(SERVICES)

    up.process.send_signal(signal.SIGINT)
    out, _ = up.process.communicate(timeout=60)
    assert up.process.returncode == 0
    assert f"http://127.0.0.1:{up.ports['dashboard']}" in out
    assert eventually(lambda: none_alive(children))
    assert not any(up.pid_of(service) for service in SERVICES)


@pytest.mark.parametrize(
    "message",
    [
        "starting collector",
        *(pytest.param(each, marks=pytest.mark.slow) for each in ("starting ClickHouse", "the store is ready")),
    ],
)
def test_ctrl_c_while_it_starts_ends_it_at_once(tmp_path: Path, message: str) -> None:
    running = Up(tmp_path / "data")
    assert running.process.stderr is not None
    for line in running.process.stderr:
        if message in line:
            break
    children = running.descendants()
    running.process.send_signal(signal.SIGINT)
    out, rest = running.process.communicate(timeout=60)
    assert running.process.returncode == 130
    assert not out
    assert "stopped before everything was up" in rest
    assert "Traceback" not in rest
    assert eventually(lambda: none_alive(children))
    assert not any(running.pid_of(service) for service in SERVICES)


@pytest.mark.parametrize("given", ["", "--enforce-eager", "--tool-call-parser 'llama 3' --seed 1"])
def test_the_gateway_gets_the_arguments_for_vllm(tmp_path: Path, given: str) -> None:
    (gateway,) = [each for each in services(Ports(), vllm_args=given) if each.name == "gateway"]
    program, module, name, *arguments = gateway.command(DataDir(tmp_path))
    assert (program, module, name) == (sys.executable, "-m", "spanloop.gateway")
    assert read_process(GatewaySettings, arguments).settings.extra_args == tuple(shlex.split(given))


def _almost_full(_: object) -> SimpleNamespace:
    return SimpleNamespace(free=10)


def test_a_full_disk_is_refused_before_anything_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data_dir = DataDir(tmp_path).open()
    check_free_space(data_dir)
    monkeypatch.setattr(shutil, "disk_usage", _almost_full)
    with pytest.raises(DataDirectoryError, match="0 MiB are free"):
        check_free_space(data_dir)


def test_a_configuration_file_reaches_every_service_and_an_invalid_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CONFIG_ENV, "")
    file = tmp_path / "own.toml"
    file.write_text("[attribution]\njugde = 1\n")
    with pytest.raises(ConfigurationError, match="jugde"):
        use_configuration(tmp_path, file)
    assert not os.environ[CONFIG_ENV]
    file.write_text('[attribution]\nrules = ["default"]\n')
    monkeypatch.chdir(tmp_path)
    use_configuration(tmp_path, Path("own.toml"))
    assert find_configuration(tmp_path / "data", os.environ) == file
