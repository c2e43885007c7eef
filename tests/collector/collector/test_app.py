"""The HTTP app: OTLP's requirements for a server, and the spool's content when a request is acknowledged."""

import asyncio
import gzip
import os
import zlib
from collections.abc import AsyncIterator

import httpx
import pytest
from backports import zstd
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from spanloop.collector import health
from spanloop.collector.endpoints import otlp_http
from spanloop.collector.otlp.wire import fields

from .collectors import App, trace_request

PROTOBUF = "application/x-protobuf"


def parse_trace_response(response: httpx.Response) -> ExportTraceServiceResponse:
    assert response.status_code == 200
    assert response.headers["content-type"] == PROTOBUF
    export_response = ExportTraceServiceResponse()
    export_response.MergeFromString(response.content)
    return export_response


def rpc_message(response: httpx.Response) -> str:
    """The message of the google.rpc.Status."""
    assert response.headers["content-type"] == PROTOBUF
    return next(field.payload for field in fields(response.content) if field.number == 2).decode()


async def test_accepted_spans_are_on_disk_when_acknowledged(app: App) -> None:
    body = trace_request(1, 2).SerializeToString()
    export_response = parse_trace_response(await app.post(body))
    assert not export_response.HasField("partial_success")
    assert app.spooled() == [("traces", body)]
    assert app.metrics.get("accepted_total", signal="traces") == 2


async def test_logs_are_stored_as_spans_are(app: App) -> None:
    request = ExportLogsServiceRequest()
    request.resource_logs.add().scope_logs.add().log_records.add(severity_text="INFO")
    body = request.SerializeToString()
    response = await app.post(body, "/v1/logs")
    assert response.status_code == 200
    assert ExportLogsServiceResponse().MergeFromString(response.content) == len(response.content)
    assert app.spooled() == [("logs", body)]


@pytest.mark.parametrize("path", ["/v1/traces", "/v1/logs"])
async def test_an_empty_request_is_fine(app: App, path: str) -> None:
    response = await app.post(b"", path)
    assert (response.status_code, response.content) == (200, b"")
    assert app.spooled() == []


async def test_gzip_also_in_several_members(app: App) -> None:
    first, second = trace_request(1).SerializeToString(), trace_request(2).SerializeToString()
    response = await app.post(gzip.compress(first) + gzip.compress(second), content_encoding="gzip")
    parse_trace_response(response)
    assert app.spooled() == [("traces", first + second)]


async def test_chunked_bodies_without_a_length(app: App) -> None:
    body = gzip.compress(trace_request(1).SerializeToString())

    async def chunks() -> AsyncIterator[bytes]:
        for at in range(0, len(body), 7):
            yield body[at : at + 7]

    headers = {"content-type": PROTOBUF, "content-encoding": "gzip"}
    parse_trace_response(await app.client.post("/v1/traces", content=chunks(), headers=headers))
    assert app.metrics.get("accepted_total", signal="traces") == 1


@pytest.mark.parametrize("wbits", [15, 9, -15], ids=["zlib", "zlib with a small window", "raw"])
@pytest.mark.parametrize("level", [0, 1, 9])
@pytest.mark.parametrize("size_bytes", [1, 10_000])
async def test_deflate_with_and_without_a_zlib_header(app: App, wbits: int, level: int, size_bytes: int) -> None:
    request = trace_request(*range(1, 40)).SerializeToString()
    body = zlib.compress(request, level, wbits=wbits)

    async def chunks() -> AsyncIterator[bytes]:
        for at in range(0, len(body), size_bytes):
            yield body[at : at + size_bytes]

    headers = {"content-type": PROTOBUF, "content-encoding": "deflate"}
    parse_trace_response(await app.client.post("/v1/traces", content=chunks(), headers=headers))
    assert app.spooled() == [("traces", request)]


async def test_an_unknown_encoding_names_those_that_are_accepted(app: App) -> None:
    assert "gzip, deflate, zstd or none" in rpc_message(await app.post(b"x", content_encoding="br"))


async def test_rejected_spans_are_a_partial_success(app: App) -> None:
    request = trace_request(1, 2, 3)
    request.resource_spans[0].scope_spans[0].spans[0].trace_id = b"short"
    export_response = parse_trace_response(await app.post(request.SerializeToString()))
    assert export_response.partial_success.rejected_spans == 1
    assert "bad_trace_id" in export_response.partial_success.error_message
    assert app.metrics.get("accepted_total", signal="traces") == 2
    assert app.metrics.get("rejected_total", signal="traces", reason="bad_trace_id") == 1
    ((_, stored),) = app.spooled()
    again = ExportTraceServiceRequest()
    again.MergeFromString(stored)
    assert [span.name for span in again.resource_spans[0].scope_spans[0].spans] == ["span 2", "span 3"]
    (letter,) = app.dead_letters()
    assert (letter.reason, letter.item_count, letter.trace_ids) == ("bad_trace_id", 1, (b"short".hex(),))
    assert "got 5 bytes" in letter.detail
    rejected = ExportTraceServiceRequest()
    rejected.MergeFromString(letter.raw)
    assert [span.name for span in rejected.resource_spans[0].scope_spans[0].spans] == ["span 1"]
    assert rejected.resource_spans[0].resource == again.resource_spans[0].resource


def deflated_zeros(wbits: int) -> bytes:
    """Compressed 200 MiB. Of one block and its repetitions, because each process that collects tests makes it."""
    stream = zlib.compressobj(wbits=wbits)
    head = stream.compress(b"") + stream.flush(zlib.Z_FULL_FLUSH)
    block = stream.compress(bytes(2**20)) + stream.flush(zlib.Z_FULL_FLUSH)
    return head + 200 * block + stream.flush()


ZSTD_BOMB = zstd.compress(bytes(200 * 2**20))
HOSTILE: dict[str, tuple[bytes, dict[str, str], int]] = {
    "garbage": (b"\xff\xfe\x01garbage", {}, 400),
    "truncated gzip": (gzip.compress(b"x" * 1000)[:-9], {"content_encoding": "gzip"}, 400),
    "no gzip": (b"not gzip", {"content_encoding": "gzip"}, 400),
    "corrupt gzip": (gzip.compress(b"x" * 1000)[:-4] + b"1234", {"content_encoding": "gzip"}, 400),
    "junk behind gzip": (gzip.compress(b"") + b"junk", {"content_encoding": "gzip"}, 400),
    "gzip bomb": (deflated_zeros(31), {"content_encoding": "gzip"}, 413),
    "no zstd": (b"not zstd", {"content_encoding": "zstd"}, 400),
    "truncated zstd": (zstd.compress(b"x" * 1000)[:-3], {"content_encoding": "zstd"}, 400),
    "junk behind zstd": (zstd.compress(b"") + b"junk", {"content_encoding": "zstd"}, 400),
    "zstd bomb": (ZSTD_BOMB, {"content_encoding": "zstd"}, 413),
    "zstd with a window of 128 MiB": (
        zstd.compress(
            b"x", options={zstd.CompressionParameter.window_log: 27, zstd.CompressionParameter.content_size_flag: 0}
        ),
        {"content_encoding": "zstd"},
        400,
    ),
    "large": (bytes(2**20 + 1), {}, 413),
    "brotli": (b"x", {"content_encoding": "br"}, 415),
    "no deflate": (b"not deflate", {"content_encoding": "deflate"}, 400),
    "truncated deflate": (zlib.compress(b"x" * 1000)[:-3], {"content_encoding": "deflate"}, 400),
    "corrupt deflate": (zlib.compress(b"x" * 1000)[:-4] + b"1234", {"content_encoding": "deflate"}, 400),
    "corrupt zlib header": (b"\x78\x00" + zlib.compress(b"x")[2:], {"content_encoding": "deflate"}, 400),
    "junk behind deflate": (zlib.compress(b"") + b"junk", {"content_encoding": "deflate"}, 400),
    "junk behind raw deflate": (zlib.compress(b"", wbits=-15) + b"junk", {"content_encoding": "deflate"}, 400),
    "truncated raw deflate": (zlib.compress(b"x" * 1000, wbits=-15)[:-3], {"content_encoding": "deflate"}, 400),
    "deflate bomb": (deflated_zeros(15), {"content_encoding": "deflate"}, 413),
    "raw deflate bomb": (deflated_zeros(-15), {"content_encoding": "deflate"}, 413),
    "text": (b"x", {"content_type": "text/plain"}, 415),
    "no type": (b"x", {"content_type": ""}, 415),
}
"""Body, headers, expected status."""


@pytest.mark.parametrize(("body", "headers", "status"), HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("path", ["/v1/traces", "/v1/logs"])
async def test_hostile_requests_are_refused_whole(
    app: App, path: str, body: bytes, headers: dict[str, str], status: int
) -> None:
    response = await app.post(body, path, **headers)
    assert response.status_code == status
    assert rpc_message(response)
    assert "retry-after" not in response.headers
    assert app.spooled() == []
    assert app.metrics.get("refused_requests_total", signal=path[4:], status=str(status)) == 1
    assert app.receiver.memory_budget.reserved_bytes == 0


async def test_a_malformed_body_becomes_one_dead_letter(app: App) -> None:
    assert (await app.post(b"\xff\xfe\x01garbage")).status_code == 400
    assert (await app.post(b"{", content_type="application/json")).status_code == 400
    fields_of_letters = [(letter.reason, letter.content_type, letter.raw) for letter in app.dead_letters()]
    assert fields_of_letters == [
        ("malformed_body", PROTOBUF, b"\xff\xfe\x01garbage"),
        ("malformed_body", "application/json", b"{"),
    ]


async def test_a_body_that_cannot_be_redacted_is_not_stored(app: App) -> None:
    assert (await app.post(b"\xff gen_ai.headers: Authorization hunter2")).status_code == 400
    (letter,) = app.dead_letters()
    assert (letter.raw, "withheld" in letter.detail) == (b"", True)


async def test_zstd_also_in_several_frames_and_chunks(app: App) -> None:
    first, second = trace_request(1).SerializeToString(), trace_request(2).SerializeToString()
    body = zstd.compress(first) + zstd.compress(second)

    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(body), 5):
            yield body[at : at + 5]

    headers = {"content-type": PROTOBUF, "content-encoding": "zstd"}
    parse_trace_response(await app.client.post("/v1/traces", content=pieces(), headers=headers))
    assert app.spooled() == [("traces", first + second)]


async def test_a_request_beyond_the_memory_budget_gets_retry_after(app: App) -> None:
    app.receiver.memory_budget.acquire(app.receiver.settings.memory_limit_bytes - 100)
    small = trace_request(1).SerializeToString()
    assert len(small) < 100
    large = trace_request(*range(1, 20)).SerializeToString()
    refused = await app.post(large)
    assert refused.status_code == 503
    assert int(refused.headers["retry-after"]) > 0
    assert refused.headers["connection"] == "close"
    parse_trace_response(await app.post(small))
    assert app.spooled() == [("traces", small)]


async def test_a_slow_body_is_refused(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp_http, "_BODY_TIMEOUT_S", 0.05)
    may_end = asyncio.Event()

    async def trickle() -> AsyncIterator[bytes]:
        yield b"\x0a"
        await may_end.wait()

    refused = await app.client.post("/v1/traces", content=trickle(), headers={"content-type": PROTOBUF})
    assert refused.status_code == 503
    assert "too slowly" in rpc_message(refused)
    assert app.receiver.memory_budget.reserved_bytes == 0


async def test_a_full_spool_sends_retry_after(app: App) -> None:
    request = trace_request(1)
    request.resource_spans[0].scope_spans[0].spans[0].name = "x" * 500_000
    body = request.SerializeToString()
    responses = [await app.post(body) for _ in range(6)]
    assert [export_response.status_code for export_response in responses] == [200] * 4 + [503] * 2
    assert int(responses[-1].headers["retry-after"]) > 0
    assert "full" in rpc_message(responses[-1])
    assert app.metrics.get("accepted_total", signal="traces") == 4


async def test_a_full_spool_reads_a_body_to_its_end_and_stores_nothing(app: App) -> None:
    """Many clients read the response only after they sent the whole body."""
    await app.spool.append("traces", bytes(2**21 - 4096))
    sent = 0

    async def pieces() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(16):
            yield bytes(65536)
            sent += 65536
            assert app.receiver.memory_budget.reserved_bytes == 0

    headers = {"content-type": PROTOBUF, "content-length": str(2**20)}
    refused = await app.client.post("/v1/traces", content=pieces(), headers=headers)
    assert (refused.status_code, sent) == (503, 2**20)
    assert int(refused.headers["retry-after"]) > 0
    assert "connection" not in refused.headers


async def test_other_paths_and_methods(app: App) -> None:
    metrics = await app.post(b"", "/v1/metrics")
    assert metrics.status_code == 404
    assert "OTEL_METRICS_EXPORTER=none" in rpc_message(metrics)
    unknown_path = await app.post(b"{}", "/v1/nope", content_type="application/json")
    assert unknown_path.status_code == 404
    assert "/v1/traces" in unknown_path.json()["message"]
    assert (await app.client.get("/v1/traces")).status_code == 405


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/v1/traces", "POST"), ("/v1/logs", "POST"), ("/v1/scores", "POST"), ("/v1/metrics", "POST"),
        ("/healthz", "GET, HEAD"), ("/metrics", "GET, HEAD"),
    ],
)  # fmt: skip
async def test_a_wrong_method_gets_the_allowed_ones(app: App, path: str, allowed: str) -> None:
    for method in {"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"} - set(allowed.split(", ")):
        response = await app.client.request(method, path, headers={"content-type": "application/json"})
        assert (response.status_code, response.headers["allow"]) == (405, allowed)
        assert method == "HEAD" or f"expected {allowed}" in response.json()["message"]
    assert "allow" not in (await app.post(b"", "/v1/nope")).headers


async def test_a_full_disk_is_a_degraded_health_until_it_has_space(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_fd: int) -> None:
        raise OSError(28, "No space left on device")

    body = trace_request(1).SerializeToString()
    app.health.mark_connected()
    assert (await app.client.get("/healthz")).json()["status"] == "ok"
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", full)
        refused = await app.post(body)
    assert refused.status_code == 503
    report = (await app.client.get("/healthz")).json()
    assert (report["status"], "No space left" in report["disk"]) == ("degraded", True)
    parse_trace_response(await app.post(body))
    report = (await app.client.get("/healthz")).json()
    assert (report["status"], report["disk"]) == ("ok", "ok")


async def test_a_full_disk_is_reported_before_a_request_is_refused(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_MIN_FREE_BYTES", 2**70)
    report = (await app.client.get("/healthz")).json()
    assert (report["status"], "bytes are free" in report["disk"]) == ("degraded", True)


async def test_health_and_metrics(app: App) -> None:
    await app.post(trace_request(1, 2).SerializeToString())
    health = (await app.client.get("/healthz")).json()
    assert health["status"] == "degraded"
    assert health["last_insert"] is None
    assert health["spool"]["records"] == 1
    response = await app.client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = response.text.splitlines()
    assert 'spanloop_collector_accepted_total{signal="traces"} 2' in lines
    assert "spanloop_collector_spool_records 1" in lines
    assert "# TYPE spanloop_collector_accepted_total counter" in lines


async def test_many_requests_at_once(app: App) -> None:
    bodies = [trace_request(at).SerializeToString() for at in range(1, 101)]
    responses = await asyncio.gather(*(app.post(body) for body in bodies))
    assert {export_response.status_code for export_response in responses} == {200}
    assert sorted(body for _, body in app.spooled()) == sorted(bodies)
