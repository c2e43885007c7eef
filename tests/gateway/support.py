"""A stand-in for vLLM with its HTTP API, and gateways in front of it."""
# pyright: reportPrivateUsage=false

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import httpx
import uvicorn
from openai import OpenAI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from spanloop.foundation.paths import DataDir
from spanloop.gateway.app import Gateway
from spanloop.gateway.capture.tokens import Capture, decode_captures
from spanloop.semconv.environment import read_run_file
from spanloop.spool import Spool

START_TIMEOUT_S = 400.0
TIMEOUT_S = 60.0
"""Timeout of operations that take milliseconds on an idle machine."""
MOST_CHOICES = 16384
"""As ``VLLM_MAX_N_SEQUENCES``."""
PROMPT_IDS = [1, 5, 9]
WORDS = ("alpha", " beta\u2028gamma", " delta", "")
"""The text of each token; U+2028 must arrive unchanged, the last one is the end of turn."""


class _Server(uvicorn.Server):
    """Ends as soon as ``end`` is called; uvicorn looks ten times a second, for which every test would wait."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        await super().startup(sockets)

    async def main_loop(self) -> None:
        await self.on_tick(0)
        await self._end.wait()

    def end(self) -> None:
        """End from another thread."""
        self.should_exit = True
        self._loop.call_soon_threadsafe(self._end.set)


@contextmanager
def serving(app: Any) -> Generator[str]:
    """Serve an ASGI application in its own thread on a free port."""
    config = uvicorn.Config(app, port=0, log_config=None, lifespan="on", timeout_graceful_shutdown=1)
    server = _Server(config)
    failures: list[BaseException] = []

    def run() -> None:
        try:
            server.run()
        except BaseException as error:  # noqa: BLE001 - a thread's failure has to reach the test
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    while not server.started and thread.is_alive():
        threading.Event().wait(0.005)
    if not server.started:
        raise RuntimeError("the server did not start") from next(iter(failures), None)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.end()
        thread.join(60)
        assert not thread.is_alive(), "the server does not stop"
        assert not failures, failures


def write_model(folder: Path, weights: int, *, tied: bool = False, chat_template: str = "t", **config: Any) -> Path:
    """A model folder for the stand-in: its weights are one number."""
    folder.mkdir(parents=True)
    settings = {"architectures": ["Stand"], "hidden_size": 4, "tie_word_embeddings": tied, **config}
    (folder / "config.json").write_text(json.dumps(settings))
    (folder / "model.safetensors").write_text(str(weights))
    (folder / "chat_template.jinja").write_text(chat_template)
    return folder


@dataclass
class StandIn:
    """Responds like vLLM 0.32: the shapes are recorded from it, the numbers tell which weights sampled them."""

    root: Path
    token_delay_s: float = 0.0
    paused: bool = False
    """Whole responses wait until it is False."""
    stall_after: int | None = None
    """A stream stalls after this number of chunks."""
    break_after: int | None = None
    """Close the connection after this number of chunks of a stream, or instead of a whole response."""
    break_before_start: bool = False
    """A stream ends without a chunk."""
    error_response: tuple[int, dict[str, Any]] | None = None
    reload_changes_nothing: bool = False
    reload_ruins: bool = False
    """A reload leaves weights that are neither the old nor the new ones."""
    has_dev_mode: bool = True
    healthy: bool = True
    name: str = "stand-in"
    """Its own name for the model."""
    first_id: int = 1
    """Of its responses; two servers need ids that differ."""
    requests: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    headers: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    calls: list[str] = field(default_factory=list[str])
    running: int = 0
    aborted: int = 0
    mixed: int = 0
    """Requests during which the weights changed."""
    weights: int = 0
    max_model_len: int | None = None
    server_info: dict[str, Any] | None = None
    """None: it does not tell its configuration."""

    def __post_init__(self) -> None:
        self.weights = int((self.root / "model.safetensors").read_text())
        self._ids = iter(range(self.first_id, 1 << 30))

    def token_ids(self) -> list[int]:
        """The token ids that these weights sample."""
        return [1000 + self.weights, 7, 8, 2]

    def logprobs(self) -> list[float]:
        return [-0.125 * (self.weights + i) for i in range(len(WORDS))]

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/health", self._health),
                Route("/v1/models", self._models),
                Route("/server_info", self._server_info),
                Route("/v1/chat/completions", self._chat, methods=["POST"]),
                Route("/v1/completions", self._probe, methods=["POST"]),
                Route("/collective_rpc", self._reload, methods=["POST"]),
                Route("/reset_prefix_cache", self._reset, methods=["POST"]),
            ]
        )

    async def _health(self, _request: Request) -> Response:
        return Response(status_code=200 if self.healthy else 503)

    async def _models(self, _request: Request) -> Response:
        card: dict[str, Any] = {"id": self.name, "object": "model", "root": str(self.root)}
        if self.max_model_len is not None:
            card["max_model_len"] = self.max_model_len
        return JSONResponse({"object": "list", "data": [card]})

    async def _server_info(self, _request: Request) -> Response:
        if self.server_info is None:
            return JSONResponse({"detail": "Not Found"}, status_code=404)
        return JSONResponse(self.server_info)

    async def _probe(self, _request: Request) -> Response:
        entries = [None, {"5": {"logprob": -0.5 * self.weights}}]
        return JSONResponse({"choices": [{"index": 0, "text": "", "prompt_logprobs": entries}]})

    async def _reload(self, request: Request) -> Response:
        body = await request.json()
        if not self.has_dev_mode:
            return JSONResponse({"detail": "Not Found"}, status_code=404)
        self.calls.append("reload")
        for _ in range(3000):  # the end of a request, or its abortion, takes a moment to arrive
            if not self.running:
                break
            await asyncio.sleep(0.01)
        number = (Path(body["kwargs"]["weights_path"]) / "model.safetensors").read_text()
        if self.reload_ruins:
            self.weights = 99
        if self.reload_ruins or not number.isdigit():
            return JSONResponse({"error": {"message": "cannot load", "code": 500}}, status_code=500)
        if not self.reload_changes_nothing:
            self.weights = int(number)
        return JSONResponse({"results": [None]})

    async def _reset(self, _request: Request) -> Response:
        self.calls.append("reset_prefix_cache")
        return JSONResponse({"success": True})

    async def _chat(self, request: Request) -> Response:
        body = await request.json()
        self.requests.append(body)
        self.headers.append(dict(request.headers))
        if self.error_response is not None:
            return JSONResponse(self.error_response[1], status_code=self.error_response[0])
        if (body.get("n") or 1) > MOST_CHOICES:
            return JSONResponse({"error": {"message": f"n must be at most {MOST_CHOICES}"}}, status_code=400)
        if body.get("stream"):
            return StreamingResponse(self._chunks(body), media_type="text/event-stream")
        with self._counted(self.weights):
            for _ in WORDS:
                await self._pause(request)
        if self.break_after is not None:
            return StreamingResponse(_broken(), headers={"content-length": "100000"})
        choices = [self._choice(index, body) for index in range(body.get("n") or 1)]
        return JSONResponse(
            {
                "id": f"chatcmpl-{next(self._ids)}",
                "object": "chat.completion",
                "created": 1,
                "model": "stand-in",
                "choices": choices,
                "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7},
                "prompt_logprobs": None,
                "prompt_token_ids": PROMPT_IDS,
            }
        )

    def _choice(self, index: int, body: dict[str, Any]) -> dict[str, Any]:
        entries = [_entry(word, value) for word, value in zip(WORDS, self.logprobs(), strict=True)]
        return {
            "index": index,
            "message": {"role": "assistant", "content": "".join(WORDS)},
            "logprobs": {"content": entries} if body.get("logprobs") else None,
            "finish_reason": "stop",
            "token_ids": self.token_ids(),
        }

    async def _chunks(self, body: dict[str, Any]) -> AsyncGenerator[str]:
        head = {
            "id": f"chatcmpl-{next(self._ids)}",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "stand-in",
        }
        n = body.get("n") or 1
        sent = 0
        if self.break_before_start:
            return
        with self._counted(self.weights):
            for index in range(n):
                choice = {"index": index, "delta": {"role": "assistant", "content": ""}, "logprobs": None}
                yield _event({**head, "choices": [{**choice, "finish_reason": None}], "prompt_token_ids": PROMPT_IDS})
            for position, word in enumerate(WORDS):
                for index in range(n):
                    await asyncio.sleep(self.token_delay_s)
                    if sent == self.break_after:
                        raise ConnectionResetError
                    if sent == self.stall_after:
                        await asyncio.Event().wait()
                    yield _event({**head, "choices": [self._delta(index, position, word)]})
                    sent += 1
            options: dict[str, Any] = body.get("stream_options") or {}
            if options.get("include_usage"):
                yield _event({**head, "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4}})
            yield "data: [DONE]\n\n"

    def _delta(self, index: int, position: int, word: str) -> dict[str, Any]:
        return {
            "index": index,
            "delta": {"content": word} if word else {},
            "logprobs": {"content": [_entry(word, self.logprobs()[position])]},
            "finish_reason": "stop" if position == len(WORDS) - 1 else None,
            "token_ids": [self.token_ids()[position]],
        }

    async def _pause(self, request: Request) -> None:
        waiting = asyncio.ensure_future(asyncio.sleep(self.token_delay_s))
        while self.paused or not waiting.done():
            if await request.is_disconnected():
                self.aborted += 1
                waiting.cancel()
                raise ConnectionResetError
            if self.paused:
                await asyncio.sleep(0.02)
            else:
                await asyncio.wait([waiting], timeout=0.02)

    @contextmanager
    def _counted(self, weights: int) -> Generator[None]:
        self.running += 1
        try:
            yield
        except GeneratorExit:
            self.aborted += 1
            raise
        finally:
            self.running -= 1
            self.mixed += self.weights != weights


def _entry(word: str, logprob: float) -> dict[str, Any]:
    return {"token": word, "logprob": logprob, "bytes": list(word.encode()), "top_logprobs": []}


def _event(document: dict[str, Any]) -> str:
    return f"data: {json.dumps(document, ensure_ascii=False)}\n\n"


async def _broken() -> AsyncGenerator[bytes]:
    yield b'{"id": "half'
    raise ConnectionResetError


@dataclass
class RunningGateway:
    """A gateway in front of the stand-in."""

    url: str
    data_dir: DataDir
    gateway: Gateway
    _captures: list[Capture] = field(default_factory=list[Capture])
    stop: Callable[[], None] = lambda: None
    """Stops it before the end of the test."""

    def captures(self) -> list[Capture]:
        """All captures in the spool so far; only valid without a ClickHouse, which empties it."""
        recorder = self.gateway.recorder
        with recorder._drain_lock:
            while (batch := recorder._spool.read(1 << 20)) is not None:
                records = [record for record in batch.records if record.kind == "generation"]
                self._captures += [capture for record in records for capture in decode_captures(record.body)]
                recorder._spool.commit(batch)
        return self._captures

    def chat(self, timeout_s: float = TIMEOUT_S, **fields: Any) -> httpx.Response:
        headers = fields.pop("headers", {})
        body = {"messages": [{"role": "user", "content": "hi"}], **fields}
        return httpx.post(f"{self.url}/v1/chat/completions", json=body, headers=headers, timeout=timeout_s)

    def admin(self, path: str, /, **body: Any) -> httpx.Response:
        token = (self.data_dir.gateway / "admin.token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}"}
        if path == "status":
            return self.admin_get(path)
        return httpx.post(f"{self.url}/admin/{path}", json=body, headers=headers, timeout=TIMEOUT_S)

    def admin_get(self, path: str) -> httpx.Response:
        token = (self.data_dir.gateway / "admin.token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}"}
        return httpx.get(f"{self.url}/admin/{path}", headers=headers, timeout=TIMEOUT_S)

    def health(self) -> dict[str, Any]:
        response: dict[str, Any] = httpx.get(f"{self.url}/healthz", timeout=TIMEOUT_S).json()
        return response


class Process:
    """A gateway as a process."""

    def __init__(self, data_dir: DataDir, *arguments: str) -> None:
        self.data_dir = data_dir
        self.log = data_dir.path / "gateway.log"
        self._offset = 0
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "spanloop.gateway", "--data-dir", str(data_dir.path), "--port", "0", *arguments],
                stderr=log,
            )
        wait_until(lambda: self._announced() or self.process.poll() is not None, timeout_s=TIMEOUT_S)
        running = read_run_file(data_dir.path, "gateway")
        assert running is not None, self.log.read_text()
        self.url = running.url
        self.client = OpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0, timeout=120)

    def _announced(self) -> bool:
        running = read_run_file(self.data_dir.path, "gateway")
        return running is not None and running.pid == self.process.pid

    def deploy(self, version: str, path: Path, adapter: Path | None = None) -> dict[str, Any]:
        token = (self.data_dir.gateway / "admin.token").read_text().strip()
        response = httpx.post(
            f"{self.url}/admin/deploy",
            json={"name": "tiny", "version": version, "path": str(path), "adapter": str(adapter or "")},
            headers={"Authorization": f"Bearer {token}"},
            timeout=START_TIMEOUT_S,
        )
        assert response.status_code == 200, response.text + self.log.read_text()
        document: dict[str, Any] = response.json()
        return document

    def health(self) -> dict[str, Any]:
        document: dict[str, Any] = httpx.get(f"{self.url}/healthz", timeout=TIMEOUT_S).json()
        return document

    def stop(self) -> None:
        """A clean stop."""
        self.process.terminate()
        assert self.process.wait(TIMEOUT_S) == 0


def captures(process: Process) -> list[Capture]:
    """Every capture on disk, read from a copy of the spool; no ClickHouse runs here."""
    copy = process.data_dir.path / f"copy-{time.monotonic_ns()}"
    shutil.copytree(process.data_dir.generations, copy)
    captured: list[Capture] = []
    with Spool(copy, max_bytes=1 << 30) as spool:
        while (batch := spool.read(1 << 30)) is not None:
            captured += [capture for record in batch.records for capture in decode_captures(record.body)]
            spool.commit(batch)
    return captured


class Stack:
    """Servers of one test, stopped in reverse order."""

    def __init__(self) -> None:
        self._open: list[Any] = []

    def enter(self, server: Any) -> Any:
        entered = server.__enter__()
        self._open.append(server)
        return entered

    def __enter__(self) -> Self:
        return self

    def leave(self, server: Any) -> None:
        """Stop a server now."""
        if server in self._open:
            self._open.remove(server)
            server.__exit__(None, None, None)

    def __exit__(self, *error: object) -> None:
        for server in reversed(self._open):
            server.__exit__(None, None, None)


def data_of(response: httpx.Response) -> list[Any]:
    """The events of a stream."""
    events = [event.removeprefix("data: ") for event in response.content.decode().split("\n\n") if event]
    return [event if event == "[DONE]" else json.loads(event) for event in events]


def wait_until(condition: Callable[[], bool], timeout_s: float = TIMEOUT_S) -> None:
    """Poll until the condition holds."""
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s:
        if condition():
            return
        time.sleep(0.02)
    raise TimeoutError("the condition did not come true")


def descendants(pid: int) -> Sequence[int]:
    """Process ids below ``pid``."""
    pids: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[1]) == pid:
                    pids += [int(entry.name), *descendants(int(entry.name))]
    return pids


def is_alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    with suppress(OSError):
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
    return False
