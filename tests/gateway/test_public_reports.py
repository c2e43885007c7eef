"""Programs from public reports behave against the gateway as their authors expect."""

import re
import socket
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path

import httpx
import pytest

from .support import TIMEOUT_S, RunningGateway, wait_until

REPORTS = Path(__file__).parents[2].parent / "shared" / "data" / "public_reports" / "gateway"
_LINE = re.compile(r"(?P<name>.{34}) (?P<status>\d{3}) (?P<type>\S+) (?P<body>.*)")

pytestmark = pytest.mark.skipif(not REPORTS.exists(), reason="the public reports are not here")


@pytest.fixture
def reported(
    start_gateway: Callable[..., RunningGateway], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Generator[RunningGateway]:
    """A gateway in front of the engine that the reports were made with."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "fake.log"))
    monkeypatch.setenv("FAKE_DELAY_S", "0.001")
    with subprocess.Popen([sys.executable, str(REPORTS / "fake_engine.py"), str(port)]) as engine:
        try:
            gateway = start_gateway(upstream=f"http://127.0.0.1:{port}")
            wait_until(lambda: gateway.health()["engine"] == "serving")
            yield gateway
        finally:
            engine.terminate()


def run(gateway: RunningGateway, name: str, tmp_path: Path, *, fixed_port: str = "") -> list[str]:
    """Run a program with the gateway's port and the engine's model; return the lines that it prints."""
    port = str(httpx.URL(gateway.url).port)
    text = (REPORTS / name).read_text()
    program = tmp_path / name
    program.write_text(text.replace(f":{fixed_port}/", f":{port}/") if fixed_port else text)
    command = [sys.executable, str(program), port, "fake@v1"]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout.splitlines()


def test_odd_requests_are_answered_or_refused_in_the_form_of_their_api(
    reported: RunningGateway, tmp_path: Path
) -> None:
    lines = [match for line in run(reported, "probe1.py", tmp_path) if (match := _LINE.fullmatch(line))]
    answers = {match["name"].strip(): match for match in lines}
    assert len(answers) >= 36
    for name, answer in answers.items():
        assert int(answer["status"]) < 500, (name, answer["body"])
        if name not in {"double slash", "trailing slash", "OPTIONS preflight"}:
            assert answer["type"].startswith("application/json"), (name, answer["type"])
    for name in ("lone surrogate escaped", "lone surrogate in tool desc", "lone surrogate in stop", "deep nesting"):
        assert answers[name]["status"] == "400", name
    for name in ("n=null stream=null", "n=2", "GET /v1/models/x", "messages content null", "form type"):
        assert answers[name]["status"] == "200", (name, answers[name]["body"])
    assert "max_model_len" in answers["GET /v1/models/x"]["body"]


def test_openais_client_gets_what_it_sends_for(reported: RunningGateway, tmp_path: Path) -> None:
    lines = run(reported, "probe2.py", tmp_path)
    failed = [line for line in lines if " EXC " in line]
    assert all(" BadRequestError " in line for line in failed), failed
    assert {line.split(" W ")[0].strip() for line in failed} <= {"empty messages"}
    assert any("max_model_len" in line for line in lines)
    streamed = next(line for line in lines if line.startswith("required mt=24") and " S " in line)
    assert "ids=64 lps=64 prompt=256" in streamed


def test_the_agents_sdk_is_served_by_chat_and_by_responses(reported: RunningGateway, tmp_path: Path) -> None:
    lines = run(reported, "oa.py", tmp_path, fixed_port="9110")
    assert lines == ["chat completions ok: tok tok tok tok tok "]


def test_what_a_client_left_ends(reported: RunningGateway, tmp_path: Path) -> None:
    lines = run(reported, "disc.py", tmp_path)
    assert [line for line in lines if line.startswith("running 0 after")] == lines[1::2]
