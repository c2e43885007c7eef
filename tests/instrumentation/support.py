"""Real peers for the distro: an OTLP receiver, an OpenAI-compatible model, and user apps as subprocesses."""

import gzip
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from opentelemetry.instrumentation import auto_instrumentation
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

BIN = Path(sys.executable).parent
AUTO_INSTRUMENTATION = str(Path(auto_instrumentation.__file__).parent)
EXAMPLES = Path(__file__).parents[2] / "examples"

Attributes = dict[str, Any]


@dataclass(frozen=True)
class SeenSpan:
    """A received span; ids are hex."""

    name: str
    trace_id: str
    span_id: str
    parent_span_id: str
    kind: int
    status: int
    status_message: str
    start_ns: int
    attributes: Attributes
    events: list[tuple[str, Attributes]]
    resource: Attributes
    scope: str


@dataclass(frozen=True)
class SeenLog:
    """A received log event; ids are hex."""

    event_name: str
    trace_id: str
    span_id: str
    attributes: Attributes


class SeenRequest(NamedTuple):
    path: str
    headers: Mapping[str, str]
    size_bytes: int


@dataclass
class Receiver:
    """A real OTLP/HTTP receiver. ``answer`` decides the status, the body and the headers of each request."""

    url: str = ""
    answer: Callable[[int], tuple[int, bytes, dict[str, str]]] = lambda _count: (200, b"", {})
    requests: list[SeenRequest] = field(default_factory=list[SeenRequest])
    spans: list[SeenSpan] = field(default_factory=list[SeenSpan])
    logs: list[SeenLog] = field(default_factory=list[SeenLog])
    arrived: threading.Condition = field(default_factory=threading.Condition)

    def wait_for_spans(self, count: int, timeout_s: float = 60.0) -> list[SeenSpan]:
        with self.arrived:
            assert self.arrived.wait_for(lambda: len(self.spans) >= count, timeout_s), f"{len(self.spans)} of {count}"
            return list(self.spans)

    def by_name(self, name: str) -> SeenSpan:
        (found,) = [span for span in self.spans if span.name == name]
        return found


def _value(any_value: Any) -> Any:
    kind = any_value.WhichOneof("value")
    if kind == "array_value":
        return [_value(item) for item in any_value.array_value.values]
    return getattr(any_value, kind) if kind else None


def _attributes(pairs: Any) -> Attributes:
    return {pair.key: _value(pair.value) for pair in pairs}


def _decode(receiver: Receiver, path: str, body: bytes) -> None:
    if path == "/v1/traces":
        for group in ExportTraceServiceRequest.FromString(body).resource_spans:
            resource = _attributes(group.resource.attributes)
            for scope in group.scope_spans:
                receiver.spans += [_seen_span(span, resource, scope.scope.name) for span in scope.spans]
    elif path == "/v1/logs":
        for resource_logs in ExportLogsServiceRequest.FromString(body).resource_logs:
            for scope_logs in resource_logs.scope_logs:
                receiver.logs += [
                    SeenLog(log.event_name, log.trace_id.hex(), log.span_id.hex(), _attributes(log.attributes))
                    for log in scope_logs.log_records
                ]


def _seen_span(span: Any, resource: Attributes, scope: str) -> SeenSpan:
    return SeenSpan(
        name=span.name,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_span_id=span.parent_span_id.hex(),
        kind=span.kind,
        status=span.status.code,
        status_message=span.status.message,
        start_ns=span.start_time_unix_nano,
        attributes=_attributes(span.attributes),
        events=[(event.name, _attributes(event.attributes)) for event in span.events],
        resource=resource,
        scope=scope,
    )


class _QuietHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Keep the test's output clean."""

    def read_body(self) -> bytes:
        body = self.rfile.read(int(self.headers["content-length"]))
        match self.headers.get("content-encoding"):
            case "gzip":
                return gzip.decompress(body)
            case "deflate":
                return zlib.decompress(body)
            case _:
                return body

    def respond(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {"content-length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


class _QuietServer(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is part of the tests."""


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler], port: int = 0) -> Generator[str]:
    server = _QuietServer(("127.0.0.1", port), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def receiving(port: int = 0) -> Generator[Receiver]:
    """A receiver that acknowledges everything, until its ``answer`` is replaced."""
    receiver = Receiver()

    class Handler(_QuietHandler):
        def do_POST(self) -> None:
            body = self.read_body()
            with receiver.arrived:
                receiver.requests.append(SeenRequest(self.path, dict(self.headers.items()), len(body)))
                status, answer, headers = receiver.answer(len(receiver.requests))
                if status == 200:
                    _decode(receiver, self.path, body)
                receiver.arrived.notify_all()
            self.respond(status, answer, headers)

    with serving(Handler, port) as url:
        receiver.url = url
        yield receiver


@contextmanager
def black_hole() -> Generator[str]:
    """Accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def refused_url() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = int(listener.getsockname()[1])
    return f"http://127.0.0.1:{port}"


Reply = dict[str, Any]


def says(text: str) -> Reply:
    return {"content": text}


def calls(name: str, arguments: Mapping[str, Any], call_id: str) -> Reply:
    function = {"name": name, "arguments": json.dumps(dict(arguments))}
    return {"content": None, "tool_calls": [{"id": call_id, "type": "function", "function": function}]}


@dataclass
class FakeModel:
    """An OpenAI-compatible chat model that answers with its script, the last line over and over."""

    url: str = ""
    script: Sequence[Reply] = (says("hello"),)
    requests: list[Attributes] = field(default_factory=list[Attributes])
    headers: list[Mapping[str, str]] = field(default_factory=list[Mapping[str, str]])


def _streamed(count: int, text: str) -> bytes:
    """``text`` as server-sent events, one character each."""
    head = {"id": f"chatcmpl-{count}", "object": "chat.completion.chunk", "created": 1, "model": "tiny@v1"}
    deltas: list[tuple[Attributes, str | None]] = [({"role": "assistant", "content": ""}, None)]
    deltas += [({"content": character}, None) for character in text]
    deltas.append(({}, "stop"))
    chunks = [{**head, "choices": [{"index": 0, "delta": delta, "finish_reason": end}]} for delta, end in deltas]
    return "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks).encode() + b"data: [DONE]\n\n"


@contextmanager
def modelling() -> Generator[FakeModel]:
    model = FakeModel()
    lock = threading.Lock()

    class Handler(_QuietHandler):
        def do_POST(self) -> None:
            body = json.loads(self.read_body())
            with lock:
                model.requests.append(body)
                model.headers.append({name.lower(): value for name, value in self.headers.items()})
                count = len(model.requests)
            message = {"role": "assistant", **model.script[min(count, len(model.script)) - 1]}
            finish = "tool_calls" if message.get("tool_calls") else "stop"
            if body.get("stream"):
                self.respond(200, _streamed(count, message["content"]), {"content-type": "text/event-stream"})
                return
            answer = {
                "id": f"chatcmpl-{count}",
                "object": "chat.completion",
                "created": 1,
                "model": "tiny@v1",
                "choices": [{"index": 0, "finish_reason": finish, "message": message}],
                "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
            }
            self.respond(200, json.dumps(answer).encode(), {"content-type": "application/json"})

    with serving(Handler) as url:
        model.url = f"{url}/v1"
        yield model


@dataclass(frozen=True)
class Ran:
    """How a user's app ended. ``exit_delay_s`` runs from its last statement to the end of its process."""

    stdout: str
    stderr: str
    code: int
    exit_delay_s: float

    @property
    def stderr_lines(self) -> list[str]:
        return self.stderr.splitlines()


@dataclass(frozen=True)
class App:
    """A user's script and the environment it runs in: no OpenTelemetry variable unless a test sets one."""

    directory: Path
    environment: Mapping[str, str]

    def with_variables(self, **variables: str) -> "App":
        return App(self.directory, {**self.environment, **variables})

    def _command(self, script: str | Path, arguments: Sequence[str]) -> list[str]:
        path = script
        if isinstance(script, str):
            path = self.directory / "user_app.py"
            path.write_text(script)
        return [sys.executable, str(path), *arguments]

    def _launched(self) -> "App":
        """The app with the one variable that ``opentelemetry-instrument`` sets before it becomes the app."""
        own = filter(None, self.environment.get("PYTHONPATH", "").split(os.pathsep))
        return self.with_variables(PYTHONPATH=os.pathsep.join([AUTO_INSTRUMENTATION, str(self.directory), *own]))

    def run(
        self,
        script: str | Path,
        *arguments: str,
        instrumented: bool = True,
        launcher: bool = False,
        while_running: Callable[["subprocess.Popen[str]"], None] | None = None,
    ) -> Ran:
        """Run to the end. A script that wants its exit timed writes ``time.time()`` to ``$LAST_STATEMENT``.

        With ``launcher`` it is ``opentelemetry-instrument`` that starts an instrumented app. Without, the app starts
        in the environment that it would have then, in half the time.
        """
        environment = self.environment if launcher or not instrumented else self._launched().environment
        command = self._command(script, arguments)
        mark = self.directory / "last_statement"
        mark.unlink(missing_ok=True)
        with subprocess.Popen(
            [str(BIN / "opentelemetry-instrument"), *command] if launcher else command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**environment, "LAST_STATEMENT": str(mark)},
            cwd=self.directory,
        ) as process:
            try:
                if while_running is not None:
                    while_running(process)
                stdout, stderr = process.communicate(timeout=110)
            finally:
                process.kill()
        ended_at = time.time()
        delay_s = ended_at - float(mark.read_text()) if mark.exists() else 0.0
        return Ran(stdout, stderr, process.returncode, delay_s)


def promptly(run: Callable[[], Ran], within_s: float) -> Ran:
    """The first of six runs that exits in time, else the last: a busy machine may slow some of them down."""
    ran = run()
    for _ in range(5):
        if ran.exit_delay_s <= within_s:
            break
        ran = run()
    return ran


def clean_environment() -> dict[str, str]:
    """This process's environment without anything that would configure telemetry."""
    ours = ("OTEL_", "SPANLOOP_", "TRACELOOP_", "OPENAI_", "PYTHON")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


def announce(data_dir: Path, url: str) -> None:
    """What the collector does when it answers."""
    (data_dir / "run").mkdir(parents=True, exist_ok=True)
    (data_dir / "run" / "collector.json").write_text(json.dumps({"url": url, "pid": os.getpid()}))


def terminate(process: "subprocess.Popen[str]", number: signal.Signals = signal.SIGTERM) -> None:
    """Send the signal once the app has said that it is ready and has gone on to its next statement."""
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    # A traceback names the line that was interrupted; an app that spins is never seen at rest.
    for _ in range(10):
        time.sleep(0.15)
        if psutil.Process(process.pid).status() == psutil.STATUS_SLEEPING:
            break
    process.send_signal(number)
