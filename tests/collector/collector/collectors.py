"""Collectors for tests: a real process, the app in this process, and a builder of OTLP requests."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import httpx
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from spanloop.collector import create_app, dead_letters
from spanloop.collector.blocks.record_kinds import encoded_traces_kind, signal_of
from spanloop.collector.dead_letters import DeadLetter, Signal
from spanloop.collector.health import Health
from spanloop.collector.metrics import Metrics
from spanloop.collector.otlp.clickhouse_encoding import encode_body
from spanloop.collector.otlp.wire import MalformedError
from spanloop.collector.receiver import Receiver
from spanloop.foundation.paths import DataDir
from spanloop.foundation.settings.roles import CollectorSettings
from spanloop.semconv.environment import CLICKHOUSE_URL_ENV
from spanloop.spool import Record, Spool

SECOND_NS = 10**9
NOW_NS = 1_790_000_000 * SECOND_NS
PROTOBUF = "application/x-protobuf"
TIMEOUT_S = 60.0
"""For whatever takes milliseconds on a quiet machine."""


class CollectorProcess:
    """One ``python -m spanloop.collector``, or another program with its arguments."""

    def __init__(
        self,
        data_dir: DataDir,
        clickhouse_url: str,
        port: int = 0,
        *options: str,
        program: Sequence[str] = ("-m", "spanloop.collector"),
    ) -> None:
        environment = {key: value for key, value in os.environ.items() if key != CLICKHOUSE_URL_ENV}
        if clickhouse_url:
            environment[CLICKHOUSE_URL_ENV] = clickhouse_url
        self._data_dir = data_dir
        self.log = data_dir.path / f"collector-{time.monotonic_ns()}.log"
        with self.log.open("wb") as log:
            command = [sys.executable, *program, "--data-dir", str(data_dir.path)]
            self.process = subprocess.Popen(
                [*command, "--port", str(port), *options], stderr=log, stdout=log, env=environment
            )

    @property
    def url(self) -> str:
        """The collector's URL; waits until it listens."""
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline and self.process.poll() is None:
            running = self._data_dir.running("collector")
            if running is not None and running.pid == self.process.pid:
                return running.url
            time.sleep(0.02)
        raise AssertionError(f"the collector does not answer: {self.log.read_text()}")

    def health(self) -> dict[str, object]:
        response = httpx.get(f"{self.url}/healthz", timeout=TIMEOUT_S)
        assert response.status_code == 200
        report: dict[str, object] = response.json()
        return report

    def post(self, body: bytes, path: str = "/v1/traces", **headers: str) -> httpx.Response:
        """Post a body; keywords are headers, such as ``authorization``."""
        return httpx.post(
            f"{self.url}{path}", content=body, headers={"content-type": PROTOBUF} | headers, timeout=TIMEOUT_S
        )

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def terminate(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(TIMEOUT_S)


Launcher = Callable[..., CollectorProcess]


class App:
    """The app in this process, on a real spool, without a writer."""

    def __init__(self, directory: Path, settings: CollectorSettings) -> None:
        self.metrics = Metrics()
        self.spool = Spool(directory, max_bytes=settings.spool_limit_bytes)
        self.health = Health(directory)
        self.receiver = Receiver(self.spool, self.metrics, self.health, settings)
        app = create_app(self.receiver)
        self.client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://collector")

    async def post(self, body: bytes, path: str = "/v1/traces", **headers: str) -> httpx.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.client.post(path, content=body, headers={"content-type": "application/x-protobuf"} | named)

    def spooled(self) -> list[tuple[str, bytes]]:
        """The accepted requests in the spool."""
        return [(signal_of(kind), body) for kind, body in self._records() if kind != dead_letters.KIND]

    def dead_letters(self) -> list[DeadLetter]:
        """The dead letters in the spool."""
        bodies = [body for kind, body in self._records() if kind == dead_letters.KIND]
        return [letter for body in bodies for letter in dead_letters.decode(body)]

    def _records(self) -> list[tuple[str, bytes]]:
        batch = self.spool.read(2**30)
        return [] if batch is None else [(record.kind, record.body) for record in batch.records]


def trace_record(body: bytes, seq: int, accepted_ns: int = 0) -> Record:
    """A spool record of a trace request, as the receiver makes it; of another body one that has to be parsed."""
    try:
        request = encode_body(body)
    except MalformedError:
        return Record(Signal.TRACES, body, seq, accepted_ns)
    return Record(encoded_traces_kind(request.spans), request.body, seq, accepted_ns)


def trace_request(*span_ids: int, trace_id: int = 1) -> ExportTraceServiceRequest:
    """A request with one small span for each id."""
    request = ExportTraceServiceRequest()
    resource_spans = request.resource_spans.add()
    pair = resource_spans.resource.attributes.add()
    pair.key, pair.value.string_value = "service.name", "test"
    scope_spans = resource_spans.scope_spans.add()
    for span_id in span_ids:
        scope_spans.spans.add(
            trace_id=trace_id.to_bytes(16), span_id=span_id.to_bytes(8), name=f"span {span_id}",
            start_time_unix_nano=NOW_NS, end_time_unix_nano=NOW_NS + SECOND_NS,
        )  # fmt: skip
    return request
