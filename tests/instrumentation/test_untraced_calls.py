"""Model calls that nothing traces are named once a host; traced ones never are."""

import asyncio
import http.client
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import aiohttp
import httpx
import httpx2
import pytest
import requests
import urllib3
from opentelemetry.instrumentation.utils import suppress_instrumentation
from opentelemetry.sdk.trace import Tracer, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from spanloop.instrumentation.calls.http_clients import ModelRequest, watch_http_clients
from spanloop.instrumentation.calls.untraced_calls import NAME, PATIENCE_NS, UntracedCalls

from .support import App, Receiver

PATH = "/v1/chat/completions"
REQUEST = ModelRequest("models.example", PATH, "python-httpx/0.28.1")
CLIENTS: dict[Any, tuple[str, ...]] = {
    httpx.Client: ("send",),
    httpx.AsyncClient: ("send",),
    httpx2.Client: ("send",),
    httpx2.AsyncClient: ("send",),
    urllib3.connectionpool.HTTPConnectionPool: ("urlopen",),
    aiohttp.ClientSession: ("_request",),
    http.client.HTTPConnection: ("request",),
}


@pytest.fixture
def calls() -> UntracedCalls:
    return UntracedCalls()


@pytest.fixture
def tracer(calls: UntracedCalls) -> Tracer:
    provider = TracerProvider()
    provider.add_span_processor(calls)
    tracer = provider.get_tracer("test")
    assert isinstance(tracer, Tracer)
    return tracer


def test_an_untraced_host_is_named_once_with_the_next_step(calls: UntracedCalls, told: list[str]) -> None:
    calls.record(REQUEST)
    calls.record(REQUEST._replace(client="python-requests/2.34"))
    calls.record(REQUEST)
    assert told == []
    calls.report()
    calls.report()
    assert len(told) == 1
    assert "models.example (POST /v1/chat/completions by python-httpx/0.28.1)" in told[0]
    assert "spanloop instrument" in told[0]


@pytest.mark.parametrize(
    "attributes",
    [
        {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"},
        {"openinference.span.kind": "LLM"},
        {"llm.request.type": "chat"},
    ],
)
def test_a_call_within_a_model_calls_span_is_traced(
    attributes: dict[str, str], calls: UntracedCalls, tracer: Tracer, told: list[str]
) -> None:
    with tracer.start_as_current_span("chat", attributes=attributes):
        calls.record(REQUEST)
    calls.record(REQUEST)
    calls.report()
    assert told == []


def test_a_span_that_is_written_after_the_response_counts(
    calls: UntracedCalls, tracer: Tracer, told: list[str]
) -> None:
    calls.record(REQUEST, now_ns=2_000)
    tracer.start_span("chat", attributes={"gen_ai.request.model": "m"}, start_time=1_000).end(3_000)
    calls.report()
    assert told == []


@pytest.mark.parametrize(
    "attributes",
    [{"http.request.method": "POST"}, {"gen_ai.operation.name": "invoke_agent", "gen_ai.request.model": "m"}],
)
def test_spans_of_requests_and_agents_record_no_model_call(
    attributes: dict[str, str], calls: UntracedCalls, tracer: Tracer, told: list[str]
) -> None:
    with tracer.start_as_current_span("POST", attributes=attributes):
        calls.record(REQUEST)
    calls.report()
    assert len(told) == 1


@pytest.mark.parametrize(("content", "lines"), [("true", 1), ("false", 0)])
def test_an_sdks_own_span_without_messages_is_not_enough_where_messages_are_wanted(
    content: str, lines: int, calls: UntracedCalls, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACELOOP_TRACE_CONTENT", content)
    provider = TracerProvider()
    provider.add_span_processor(calls)
    sdk = provider.get_tracer("com.anthropic.sdk.python")
    with sdk.start_as_current_span("anthropic.messages.create", attributes={"gen_ai.request.model": "m"}):
        calls.record(REQUEST)
    calls.report()
    assert len(told) == lines


def test_a_process_that_does_not_end_names_a_host_after_five_minutes(calls: UntracedCalls, told: list[str]) -> None:
    calls.record(REQUEST, now_ns=1)
    calls.record(REQUEST, now_ns=PATIENCE_NS)
    assert told == []
    calls.record(REQUEST, now_ns=PATIENCE_NS + 2)
    assert len(told) == 1


def test_what_the_user_leaves_out_is_not_named(calls: UntracedCalls, told: list[str]) -> None:
    with suppress_instrumentation():
        calls.record(REQUEST)
    unsampled = TracerProvider(sampler=ALWAYS_OFF).get_tracer("test")
    with unsampled.start_as_current_span("upstream"):
        calls.record(REQUEST)
    calls.report()
    assert told == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTEL_TRACES_SAMPLER", "traceidratio"),
        ("OTEL_PYTHON_DISABLED_INSTRUMENTATIONS", "*"),
        ("OTEL_PYTHON_DISABLED_INSTRUMENTATIONS", f"threading, {NAME}"),
        ("OTEL_PYTHON_DISABLED_INSTRUMENTATIONS", "threading,openai"),
    ],
)
def test_nothing_is_watched_where_calls_may_lack_spans(
    name: str, value: str, calls: UntracedCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    before = httpx.Client.send
    calls.start()
    assert httpx.Client.send is before


class _Server(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name of the overridden parameter
        del format, args


@pytest.fixture
def address() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Server)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[ModelRequest]:
    for client, names in CLIENTS.items():
        for name in names:
            monkeypatch.setattr(client, name, getattr(client, name))  # so that it is restored
    requests_seen: list[ModelRequest] = []
    watch_http_clients(requests_seen.append)
    return requests_seen


async def _post_with_aiohttp(address: str, path: str, headers: dict[str, str]) -> None:
    async with (
        aiohttp.ClientSession(f"http://{address}") as session,
        session.post(f"{path}?beta=true", json={}, headers=headers) as response,
    ):
        assert await response.read() == b"{}"


def _post_with_all(address: str, path: str, headers: dict[str, str]) -> None:
    url = f"http://{address}{path}?beta=true"
    assert httpx.post(url, json={}, headers=headers).text == "{}"
    assert httpx2.post(url, json={}, headers=headers).text == "{}"
    assert requests.post(url, json={}, headers=headers, timeout=9).text == "{}"
    with urllib3.PoolManager() as pool:
        assert pool.request("POST", url, body=b"{}", headers=headers).data == b"{}"
    asyncio.run(_post_with_aiohttp(address, path, headers))
    connection = http.client.HTTPConnection(address)
    connection.request("POST", f"{path}?beta=true", b"{}", headers)
    assert connection.getresponse().read() == b"{}"
    connection.close()


def test_each_client_shows_its_calls_of_a_model(seen: list[ModelRequest], address: str) -> None:
    _post_with_all(address, PATH, {"user-agent": "agent/1"})
    assert seen == [ModelRequest(address, PATH, "agent/1")] * 6


def test_anthropics_path_needs_anthropics_header(seen: list[ModelRequest], address: str) -> None:
    _post_with_all(address, "/v1/messages", {})
    assert seen == []
    _post_with_all(address, "/v1/messages", {"Anthropic-Version": "2023-06-01"})
    assert len(seen) == 6


def test_other_requests_are_no_model_calls(seen: list[ModelRequest], address: str) -> None:
    _post_with_all(address, "/survey/responses", {})
    with suppress(httpx.HTTPError):
        httpx.get(f"http://{address}{PATH}")
    assert seen == []


def test_an_app_that_calls_a_model_by_plain_http_says_so(traced_app: App, receiver: Receiver) -> None:
    ran = traced_app.run("import httpx, os; print(httpx.post(os.environ['OPENAI_BASE_URL'] + '/chat/completions', "
                         "json={'model': 'tiny', 'messages': []}).status_code)")  # fmt: skip
    assert (ran.stdout.strip(), ran.code, len(receiver.spans)) == ("200", 0, 0)
    (line,) = ran.stderr.splitlines()
    assert line.startswith(f"spanloop: model calls to {traced_app.environment['OPENAI_BASE_URL'].split('/')[2]} ")
