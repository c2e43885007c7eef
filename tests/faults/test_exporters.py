"""OpenTelemetry's own exporters, for Python and for JavaScript, over every protocol, while the collector is killed.

An exporter sends a batch again when its answer was lost. Each kill that comes while such a batch is under way is an
attempt of unknown outcome: the collector may have taken the batch before it died. The gRPC exporter for JavaScript
never sends one again; there the program around it does.
"""

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from grpc import Compression as GrpcCompression
from opentelemetry.exporter.otlp.json.http.trace_exporter import OTLPSpanExporter as JsonExporter
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as ProtoExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator

from ..ports import free_port
from .ledger import Ledger
from .support import TIMEOUT_S, FailpointCollector, Scene, wait_for

JS: Final = Path(__file__).with_name("js")
NO_REGISTRY: Final = ("ENOTFOUND", "ECONNREFUSED", "EAI_AGAIN", "ETIMEDOUT", "ENETUNREACH", "E401", "E403", "E404")
UNSENT: Final = "No connection established"
"""gRPC's error for a request that was not sent."""
SPANS: Final = 600
BATCH: Final = 25
PROTOCOLS: Final = ("http/protobuf", "http/json", "grpc")


class Export(NamedTuple):
    """One batch, with the times when it was sent and when its outcome was known; wall clock, milliseconds."""

    ids: tuple[int, ...]
    left_ms: float
    known_ms: float
    is_delivered: bool
    error: str = ""


class RestartingCollector:
    """A collector that is killed and restarted on the same ports."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._port, self._grpc_port = free_port(), free_port()
        self.kills: list[tuple[float, float]] = []
        self.collector = self._launch()
        assert self.collector.is_listening(), self.collector.log.read_text()

    def url(self, protocol: str) -> str:
        """Return the URL for an exporter."""
        if protocol == "grpc":
            return f"http://127.0.0.1:{self._grpc_port}"
        return f"http://127.0.0.1:{self._port}/v1/traces"

    def kill(self) -> None:
        """Send kill -9, and start another collector at once."""
        before_ms = time.time() * 1000
        self.collector.kill()
        self.kills.append((before_ms, time.time() * 1000))
        self.collector = self._launch()

    def _launch(self) -> FailpointCollector:
        return self._scene.launch("--grpc-port", str(self._grpc_port), port=self._port)

    def record_exports(self, ledger: Ledger, exports: Sequence[Export]) -> None:
        """Record the exporters' batches in the ledger."""
        for export in exports:
            for before_ms, after_ms in self.kills:
                if export.is_delivered and export.left_ms <= after_ms and export.known_ms >= before_ms:
                    ledger.attempted(export.ids)
                    ledger.unknown(export.ids)
            ledger.attempted(export.ids)
            if export.is_delivered:
                ledger.acknowledged(export.ids)
            elif UNSENT in export.error:
                ledger.refused(export.ids)
            else:
                ledger.unknown(export.ids)


class RecordingExporter(SpanExporter):
    """Forwards batches, and records their outcomes."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self.exports: list[Export] = []

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        left_ms = time.time() * 1000
        result = self._exporter.export(spans)
        ids = tuple(span.context.span_id for span in spans if span.context is not None)
        self.exports.append(Export(ids, left_ms, time.time() * 1000, result is SpanExportResult.SUCCESS))
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()


class CountingIds(IdGenerator):
    """Span ids 1, 2, 3, …"""

    def __init__(self) -> None:
        self._ids = count(1)

    def generate_span_id(self) -> int:
        return next(self._ids)

    def generate_trace_id(self) -> int:
        return 0x5B8EFFF798038103D269B633813FC60C


PYTHON: Final[dict[str, Callable[[str], SpanExporter]]] = {
    "http/protobuf": lambda url: ProtoExporter(url, compression=Compression.Gzip, timeout=TIMEOUT_S),
    "http/json": lambda url: JsonExporter(url, timeout=TIMEOUT_S),
    "grpc": lambda url: GrpcExporter(url, insecure=True, compression=GrpcCompression.Gzip, timeout=TIMEOUT_S),
}


@pytest.mark.parametrize(
    "protocol", ["http/protobuf", *(pytest.param(each, marks=pytest.mark.slow) for each in ("http/json", "grpc"))]
)
def test_the_python_exporter_delivers_every_span_across_a_kill(scene: Scene, protocol: str) -> None:
    collector_runs = RestartingCollector(scene)
    recording_exporter = RecordingExporter(PYTHON[protocol](collector_runs.url(protocol)))
    provider = TracerProvider(
        resource=Resource.create({"service.name": "python"}), id_generator=CountingIds(), shutdown_on_exit=False
    )
    processor = BatchSpanProcessor(
        recording_exporter, max_queue_size=2 * SPANS, max_export_batch_size=BATCH, schedule_delay_millis=20
    )
    provider.add_span_processor(processor)
    tracer = provider.get_tracer("test")
    for at in range(SPANS):
        tracer.start_span(f"span {at}", attributes={"at": at, "list": ["a", "b"], "text": "é" * 50}).end()
        if at == SPANS // 2:
            wait_for(lambda: len(recording_exporter.exports) > 1, "the first batches")
            collector_runs.kill()
    assert provider.force_flush(int(TIMEOUT_S * 1000))
    provider.shutdown()
    settle(scene, collector_runs, recording_exporter.exports, f"python-exporter-{protocol}")


def settle(scene: Scene, collector_runs: RestartingCollector, exports: Sequence[Export], scenario: str) -> None:
    collector_runs.record_exports(scene.ledger, exports)
    collector_runs.collector.finish()
    balance_of_run = scene.settle(f"{scenario} (kills={len(collector_runs.kills)})")
    assert balance_of_run.acknowledged == SPANS, {export.error for export in exports}


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the JavaScript SDK and exporters, as the lock file pins them."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("Node.js with npm is not installed")
    folder = tmp_path_factory.mktemp("js") / "js"
    shutil.copytree(JS, folder, ignore=shutil.ignore_patterns("node_modules"))
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=1"]
    completed = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=600)
    if completed.returncode and any(sign in completed.stderr for sign in NO_REGISTRY):
        pytest.skip(f"no npm registry that has the packages can be reached: {completed.stderr.strip()[:300]}")
    assert completed.returncode == 0, completed.stderr
    return folder


def read_exports(process: "subprocess.Popen[str]") -> Iterator[Export]:
    """Read the lines that ``send.mjs`` prints."""
    assert process.stdout is not None
    for line in process.stdout:
        fields = json.loads(line)
        yield Export(tuple(fields["ids"]), fields["left"], fields["known"], fields["ok"], fields["error"])


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_javascript_exporter_delivers_every_span_across_kills(scene: Scene, packages: Path, protocol: str) -> None:
    collector_runs = RestartingCollector(scene)
    command = ["node", "send.mjs", protocol, collector_runs.url(protocol), "1", str(SPANS)]
    exports: list[Export] = []
    with subprocess.Popen(command, cwd=packages, stdout=subprocess.PIPE, text=True) as process:
        for export in read_exports(process):
            exports.append(export)
            if len(exports) in {4, 14}:
                collector_runs.kill()
    assert process.returncode == 0
    settle(scene, collector_runs, exports, f"javascript-exporter-{protocol}")
