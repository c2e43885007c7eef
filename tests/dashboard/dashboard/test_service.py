"""The dashboard as a process: announced once healthy, stopped by SIGTERM, a clear error when it cannot listen."""

import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import sync_playwright

from spanloop.dashboard.__main__ import main
from spanloop.dashboard.service import OPTIONS, check_port
from spanloop.foundation.errors import ConfigurationError, PortInUseError
from spanloop.foundation.paths import DataDir

from ...ports import free_port
from .dashboard_learning import Learned
from .dashboard_seeding import Seeded

SCREENSHOTS = Path(__file__).parents[3] / "docs" / "screenshots.py"
CHROMIUM = Path("/usr/bin/chromium")
START_TIMEOUT_S = 100
STOP_TIMEOUT_S = 60

needs_chromium = pytest.mark.skipif(not CHROMIUM.exists(), reason="no Chromium on this machine")


@contextmanager
def dashboard(data_dir: DataDir, *options: str) -> Generator[tuple[str, "subprocess.Popen[bytes]"]]:
    """A running dashboard and its address."""
    command = [sys.executable, "-m", "spanloop.dashboard", "--data-dir", str(data_dir.path), "--port", str(free_port())]
    command += options
    log = data_dir.logs / "dashboard.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=os.environ | {"OMP_NUM_THREADS": "1"})
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while (running := data_dir.running("dashboard")) is None:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        yield running.url, process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(STOP_TIMEOUT_S)


def test_it_answers_once_announced_and_stops_on_sigterm(stopped: DataDir) -> None:
    with dashboard(stopped) as (url, process):
        with urllib.request.urlopen(url, timeout=60) as response:
            assert response.status == 200
        assert json.loads((stopped.run / "dashboard.json").read_text())["pid"] == process.pid
        process.send_signal(signal.SIGTERM)
        assert process.wait(STOP_TIMEOUT_S) == 0
        assert not (stopped.run / "dashboard.json").exists()
    log = (stopped.logs / "dashboard.log").read_text()
    assert "Traceback" not in log
    assert url in log


def test_the_pages_are_loaded_before_the_first_visitor(stopped: DataDir) -> None:
    with dashboard(stopped):
        log = stopped.logs / "dashboard.log"
        deadline = time.monotonic() + START_TIMEOUT_S
        while "loaded the pages overview, episodes, traces" not in log.read_text():
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        assert "ScriptRunContext" not in log.read_text()


def test_a_taken_port_is_one_message_and_exit_code_3(stopped: DataDir, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["--data-dir", str(stopped.path), "--port", str(port)]) == 3
    errors = capsys.readouterr().err
    assert f"Port {port} on 127.0.0.1 is in use" in errors
    assert "next: Stop what uses it, or choose another: --port" in errors
    assert "Traceback" not in errors


def test_a_data_directory_of_another_version_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "version.json").write_text('{"layout": 99}')
    assert main(["--data-dir", str(tmp_path), "--port", str(free_port())]) == 4
    assert "layout 99" in capsys.readouterr().err


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"cannot listen on 192\.0\.2\.1"):
        check_port("192.0.2.1", free_port())


def test_a_port_is_free_again_after_its_user_has_gone() -> None:
    port = free_port()
    with socket.socket() as user:
        user.bind(("127.0.0.1", port))
        user.listen()
        with pytest.raises(PortInUseError):
            check_port("127.0.0.1", port)
    check_port("127.0.0.1", port)


def test_nothing_is_sent_anywhere_and_nothing_is_opened() -> None:
    assert OPTIONS["browser.gatherUsageStats"] is False
    assert OPTIONS["server.headless"] is True
    assert OPTIONS["server.enableAgentApi"] is False


def screenshots(directory: DataDir, out: Path, *only: str) -> dict[str, int]:
    """Take screenshots; sizes of the files by name."""
    module = runpy.run_path(str(SCREENSHOTS))
    arguments = ["--data-dir", str(directory.path), "--out", str(out)]
    assert module["main"]([*arguments, "--only", *only] if only else arguments) == 0
    return {path.stem: path.stat().st_size for path in out.glob("*.png")}


@needs_chromium
def test_a_real_browser_draws_charts_and_opens_a_row(
    seeded: Seeded, seeded_environment: DataDir, tmp_path: Path
) -> None:
    assert seeded.episodes
    with dashboard(seeded_environment):
        sizes = screenshots(seeded_environment, tmp_path / "shots", "overview", "episode-spans")
    assert set(sizes) == {"overview", "episode-spans"}
    assert min(sizes.values()) > 20_000


@pytest.mark.slow
@needs_chromium
def test_a_deep_link_on_a_cold_server_works_and_nothing_comes_from_elsewhere(stopped: DataDir) -> None:
    with dashboard(stopped) as (url, _), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        page = browser.new_page()
        page.set_default_timeout(60_000)
        hosts: set[str] = set()
        page.on("request", lambda request: hosts.add(urlsplit(request.url).netloc))
        page.goto(f"{url}/jobs?jobs_view=Schedules")
        page.get_by_role("heading", name="Jobs", exact=True).wait_for()
        page.get_by_role("link", name="Episodes", exact=True).wait_for()
        page.get_by_text("No schedule.").wait_for()
        browser.close()
    assert {host for host in hosts if host} == {urlsplit(url).netloc}


@needs_chromium
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_real_browser_draws_every_page(seeded: Seeded, seeded_environment: DataDir, tmp_path: Path) -> None:
    assert seeded.episodes
    names = {"ask", *(shot.name for shot in runpy.run_path(str(SCREENSHOTS))["SHOTS"])}
    names.remove("train-on-failures")  # its plan reads a tokenizer, and the seeded versions are empty folders
    with dashboard(seeded_environment):
        assert set(screenshots(seeded_environment, tmp_path / "shots", *names)) == names


@needs_chromium
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_real_browser_draws_a_model_that_learned(
    learned: Learned, learned_environment: DataDir, tmp_path: Path
) -> None:
    assert learned.failed_id
    names = ("failures", "rewards", "evaluations", "compare", "models", "model", "transition-tokens")
    with dashboard(learned_environment):
        assert set(screenshots(learned_environment, tmp_path / "shots", *names)) == set(names)


@pytest.mark.slow
@needs_chromium
def test_a_page_that_is_not_ours_is_reported(tmp_path: Path, stopped: DataDir) -> None:
    with dashboard(stopped):
        module = runpy.run_path(str(SCREENSHOTS))
        wrong = module["Shot"]("wrong", "failures", "Another title")
        module["main"].__globals__["SHOTS"] = (wrong,)
        arguments = ["--data-dir", str(stopped.path), "--out", str(tmp_path), "--only", wrong.name]
        assert module["main"](arguments) == 1
