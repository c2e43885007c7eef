"""OTLP over gRPC: HTTP's request pipeline, gRPC's status codes, and OpenTelemetry's exporter."""
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

import socket
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from spanloop.collector.endpoints.otlp_grpc import serve_grpc
from spanloop.collector.otlp.wire import fields
from spanloop.foundation.paths import DataDir

from .collectors import App, CollectorProcess, Launcher, trace_request
from .test_process import run_to_end

TRACES = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
LOGS = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"
METRICS = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"


@pytest.fixture
async def channel(app: App) -> AsyncIterator[Any]:
    """To a server on the app's own spool; sends gzip."""
    async with (
        serve_grpc(app.receiver, "127.0.0.1", 0) as port,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}", compression=grpc.Compression.Gzip) as opened,
    ):
        yield opened


async def refusal(channel: Any, method: str, body: bytes) -> tuple[str, str, bytes]:
    """Code, message and status details of a call that is refused."""
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await channel.unary_unary(method)(body)
    details = dict(refused.value.trailing_metadata() or ()).get("grpc-status-details-bin", b"")
    assert isinstance(details, bytes)
    return refused.value.code().name, refused.value.details() or "", details


async def test_accepted_is_on_disk_and_rejected_is_a_partial_success(app: App, channel: Any) -> None:
    body = trace_request(1, 2).SerializeToString()
    assert await channel.unary_unary(TRACES)(body) == b""
    request = ExportLogsServiceRequest()
    request.resource_logs.add().scope_logs.add().log_records.add(severity_text="INFO")
    assert await channel.unary_unary(LOGS)(request.SerializeToString()) == b""
    assert app.spooled() == [("traces", body), ("logs", request.SerializeToString())]
    bad = trace_request(3)
    bad.resource_spans[0].scope_spans[0].spans[0].span_id = b""
    response = ExportTraceServiceResponse()
    response.MergeFromString(await channel.unary_unary(TRACES)(bad.SerializeToString()))
    assert response.partial_success.rejected_spans == 1
    assert app.metrics.get("accepted_total", signal="traces") == 2
    assert app.receiver.memory_budget.reserved_bytes == 0


async def test_a_malformed_request_is_an_invalid_argument_and_a_dead_letter(app: App, channel: Any) -> None:
    code, message, details = await refusal(channel, TRACES, b"\xff\xfe\x01garbage")
    assert (code, "not an OTLP traces request" in message) == ("INVALID_ARGUMENT", True)
    assert b"RetryInfo" not in details
    assert [letter.reason for letter in app.dead_letters()] == ["malformed_body"]


async def test_metrics_and_nonsense_are_unimplemented(channel: Any) -> None:
    code, message, _ = await refusal(channel, METRICS, b"")
    assert (code, "OTEL_METRICS_EXPORTER=none" in message) == ("UNIMPLEMENTED", True)
    assert (await refusal(channel, "/a.B/C", b""))[0] == "UNIMPLEMENTED"


async def test_too_large_after_decompression_is_exhausted(app: App, channel: Any) -> None:
    code, _, _ = await refusal(channel, TRACES, bytes(app.receiver.settings.body_limit_bytes + 1))
    assert code == "RESOURCE_EXHAUSTED"


async def test_a_request_beyond_the_memory_budget_gets_retry_info(app: App, channel: Any) -> None:
    app.receiver.memory_budget.acquire(app.receiver.settings.memory_limit_bytes)
    code, message, details = await refusal(channel, TRACES, trace_request(1).SerializeToString())
    assert (code, "do not fit" in message) == ("UNAVAILABLE", True)
    (retry,) = [field.payload for field in fields(details) if field.number == 3]
    assert [field.payload for field in fields(retry)] == [
        b"type.googleapis.com/google.rpc.RetryInfo", b"\x0a\x02\x08\x02"
    ]  # fmt: skip


def test_a_collector_announces_its_grpc_url(launch: Launcher, data_dir: DataDir) -> None:
    collector: CollectorProcess = launch()
    health = collector.health()
    running = data_dir.running("collector-grpc")
    assert running is not None
    assert (health["grpc"], running.pid) == (running.url, collector.process.pid)
    assert collector.terminate() == 0
    assert data_dir.running("collector-grpc") is None
    without: CollectorProcess = launch("", 0, "--no-grpc")
    assert without.health()["grpc"] is None
    assert without.terminate() == 0


def test_a_used_grpc_port_is_reported_with_the_next_step(data_dir: DataDir) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        ended = run_to_end(data_dir, 0, "--grpc-port", str(other.getsockname()[1]))
    assert ended.returncode == 3
    assert "another process does" in ended.stderr
    assert "--grpc-port" in ended.stderr
    assert "Traceback" not in ended.stderr
