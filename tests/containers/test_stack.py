"""The stack in containers, without foreign images: ``make test-containers``, on a running Docker engine.

The tests run in order, on one stack: what the images hold, how fast they start, the tiny demo, then the kills.
"""

import asyncio
import json
import re
import threading
import time
import tomllib
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import TextContent

from ..faults.ledger import Ledger, balance
from .stack import IMAGES, ROOT, Stack, docker, engine_answers, out

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3600),
]

MAX_SERVER_BYTES = 1_400_000_000
MAX_START_S = 15.0
MODEL = "ledger"
SPANS_A_REQUEST = 10
REQUEST_EVERY_S = 0.25
ROLES = ("clickhouse-embedded", "collector", "pipeline", "scheduler", "runner", "gateway", "dashboard", "mcp")
JOB = (
    "--steps", "20", "--batch-groups", "4", "--group-size", "4", "--max-passes", "1000", "--kl-budget", "none",
    "--max-prompt-tokens", "512", "--max-response-tokens", "512",
)  # fmt: skip
SERVER_ROLES = ("clickhouse-embedded", "collector", "pipeline", "scheduler", "dashboard", "mcp")


def say(capsys: pytest.CaptureFixture[str], line: str) -> None:
    with capsys.disabled():
        print(line, flush=True)  # noqa: T201 - figures of the run


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    if not engine_answers():
        pytest.skip("needs a Docker engine (DOCKER_HOST) and compose")
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    stack = Stack(version)
    stack.build_missing_images()
    try:
        stack.started_after_s = stack.up()
        yield stack
    finally:
        stack.down()


def test_an_image_is_small_unprivileged_and_has_no_build_tools(
    stack: Stack, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in IMAGES:
        size = stack.size_bytes(name)
        say(capsys, f"image spanloop-{name}: {size / 1e9:.2f} GB")
        find = "id -u; for tool in gcc cc g++ make ld strip; do command -v $tool; done; ls /opt/*/bin | grep -x 'pip.*'"
        printed = out(docker(), "run", "--rm", "--network", "none", "--entrypoint", "sh", stack.image(name), "-c",
                      f"{find}; true")  # fmt: skip
        assert printed.split() == ["10001"]
    assert stack.size_bytes("server") <= MAX_SERVER_BYTES


def test_roles_are_ready_soon(stack: Stack, capsys: pytest.CaptureFixture[str]) -> None:
    assert set(stack.services()) == set(ROLES)
    seconds = stack.started_after_s
    say(capsys, "start to healthy: " + ", ".join(f"{name} {value:.1f} s" for name, value in seconds.items()))
    assert max(seconds[name] for name in SERVER_ROLES) <= MAX_START_S


def test_a_second_start_keeps_every_secret(stack: Stack) -> None:
    read = ("--entrypoint", "sh", "cli", "-c", "cat /run/spanloop/*/*key /run/spanloop/operator/dashboard-password")
    before = stack.once(*read)
    stack.compose("up", "--detach", "--wait", timeout_s=600)
    assert stack.once(*read) == before
    modes = stack.once("--entrypoint", "sh", "cli", "-c", "stat -c %a /run/spanloop/*/*")
    assert set(modes.split()) == {"600"}


def test_requests_without_a_key_are_refused(stack: Stack) -> None:
    for request in (
        httpx.post(f"{stack.url('COLLECTOR')}/v1/traces", json=spans((1,))),
        httpx.get(f"{stack.url('GATEWAY')}/v1/models"),
        httpx.get(f"{stack.url('COLLECTOR')}/metrics"),
        httpx.get(f"{stack.url('GATEWAY')}/metrics"),
        httpx.post(f"{stack.url('MCP')}/mcp", json={}),
    ):
        assert request.status_code == 401, request.url


def test_the_tiny_demo_passes_through_the_stack(stack: Stack, capsys: pytest.CaptureFixture[str]) -> None:
    printed = stack.once("demo", timeout_s=1200)
    say(capsys, printed)
    verdict = re.search(r"(\d+) checks, all hold; the tiny demo took (\d+) s", printed)
    assert verdict is not None
    assert int(verdict[1]) >= 9


def test_an_assistant_reads_the_demo_with_its_key(stack: Stack) -> None:
    reply = asyncio.run(episodes_of(f"{stack.url('MCP')}/mcp", stack.secret("assistant.key")))
    assert re.search(r"\b[1-9]\d* episodes", reply), reply


async def episodes_of(url: str, key: str) -> str:
    """Return what the MCP server says to the question how many episodes there are."""
    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {key}"}) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        (content,) = (await client.call_tool("count", {"of": "episodes"})).content
    assert isinstance(content, TextContent)
    return content.text


def test_every_container_is_killed_during_work_and_nothing_acknowledged_is_lost(
    stack: Stack, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    app_key = stack.secret("app.key")
    base, served = demo_versions(stack)
    with Ledger(tmp_path / "ledger.txt") as ledger:
        with sending(stack.url("COLLECTOR"), app_key, ledger):
            job_id = stack.once("cli", "train", base, *JOB, "--policy-version", base).strip()
            for service in ROLES:
                seconds = stack.kill(service)
                say(capsys, f"kill -9 of {service}: healthy again after {seconds:.1f} s")
        stored = stored_spans(stack, ledger)
        figures = balance(ledger.path, stored)
        say(capsys, f"ledger of the kills: {figures}")
        assert figures.is_clean, figures
        assert figures.acknowledged > 0
    assert_served(stack, app_key, served)
    ended = stack.once("cli", "jobs", "wait", job_id, timeout_s=900)
    say(capsys, f"the job that the kills interrupted: {ended.strip()}")
    assert "made" in ended


BASE = """
from spanloop.foundation.paths import DataDir
from spanloop.training.models.registry import Registry
registry = Registry(DataDir())
print(registry.lineage(registry.deployed().reference)[0].reference, registry.deployed().reference)
"""


def demo_versions(stack: Stack) -> tuple[str, str]:
    """Return the demo's first version and the one that it trained, which is served."""
    base, served = stack.once("--entrypoint", "python", "cli", "-c", BASE).split()
    return base, served


def spans(ids: tuple[int, ...]) -> dict[str, Any]:
    """Return an OTLP request of model calls, one trace each."""
    now_ns = time.time_ns()
    messages = json.dumps([{"role": "user", "parts": [{"type": "text", "content": "hello"}]}])
    answers = json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": "hi"}], "finish_reason": "stop"}])
    texts = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": MODEL,
        "gen_ai.input.messages": messages,
        "gen_ai.output.messages": answers,
    }
    attributes = [{"key": key, "value": {"stringValue": value}} for key, value in texts.items()]
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": MODEL}}]},
                "scopeSpans": [
                    {
                        "scope": {"name": MODEL},
                        "spans": [
                            {
                                "traceId": f"{span_id:032x}",
                                "spanId": f"{span_id:016x}",
                                "name": f"chat {MODEL}",
                                "kind": 3,
                                "startTimeUnixNano": str(now_ns - 1_000_000),
                                "endTimeUnixNano": str(now_ns),
                                "attributes": attributes,
                            }
                            for span_id in ids
                        ],
                    }
                ],
            }
        ]
    }


@contextmanager
def sending(url: str, key: str, ledger: Ledger) -> Generator[None]:
    """Send spans inside the block, each once: a request without a response is not repeated."""
    stopped = threading.Event()

    def send() -> None:
        with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=30) as client:
            while not stopped.wait(REQUEST_EVERY_S):
                ids = ledger.new_ids(SPANS_A_REQUEST)
                ledger.attempted(ids)
                try:
                    response = client.post("/v1/traces", json=spans(ids))
                except httpx.HTTPError:
                    ledger.unknown(ids)
                    continue
                (ledger.acknowledged if response.status_code == 200 else ledger.refused)(ids)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


QUERY = f"""
from spanloop.foundation.paths import DataDir
from spanloop.store import connect
with connect(DataDir()) as store:
    print(*store.query("demo_spans", model="{MODEL}")["span_id"])
"""


def stored_spans(stack: Stack, ledger: Ledger) -> Counter[int]:
    """Return how often each span is stored, once every acknowledged one is, or after two minutes."""
    acknowledged = {
        int(text) for line in ledger.path.read_text().splitlines() if line.startswith("+") for text in line.split()[1:]
    }
    deadline_s = time.monotonic() + 120
    while True:
        printed = stack.once("--entrypoint", "python", "cli", "-c", QUERY)
        stored = Counter(int(span_id, 16) for span_id in printed.split())
        if acknowledged <= stored.keys() or time.monotonic() > deadline_s:
            return stored
        time.sleep(2)


def assert_served(stack: Stack, key: str, model: str) -> None:
    """Wait until the killed gateway serves again what it served."""
    name = model.partition("@")[0]
    deadline_s = time.monotonic() + 240
    while True:
        # The gateway holds a request while its engine starts.
        response = httpx.post(
            f"{stack.url('GATEWAY')}/v1/chat/completions",
            json={"model": name, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4},
            headers={"Authorization": f"Bearer {key}"},
            timeout=max(1, deadline_s - time.monotonic()),
        )
        if response.status_code == 200:
            return
        assert time.monotonic() < deadline_s, response.text
        time.sleep(2)
