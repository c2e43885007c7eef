"""The HTTP face: what OTLP demands of a server, and what is on disk when it answers."""

import asyncio
import gzip
import json
import zlib
from collections.abc import AsyncIterator

import httpx
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from spanloop.collector.wire import fields

from .collecting import App, trace_request

PROTOBUF = "application/x-protobuf"


def trace_answer(response: httpx.Response) -> ExportTraceServiceResponse:
    assert response.status_code == 200
    assert response.headers["content-type"] == PROTOBUF
    answer = ExportTraceServiceResponse()
    answer.MergeFromString(response.content)
    return answer


def rpc_message(response: httpx.Response) -> str:
    """The message of the google.rpc.Status."""
    assert response.headers["content-type"] == PROTOBUF
    return next(field.payload for field in fields(response.content) if field.number == 2).decode()


async def test_accepted_spans_are_on_disk_when_the_answer_comes(app: App) -> None:
    body = trace_request(1, 2).SerializeToString()
    answer = trace_answer(await app.post(body))
    assert not answer.HasField("partial_success")
    assert app.spooled() == [("traces", body)]
    assert app.metrics.get("accepted_total", signal="traces") == 2


async def test_logs_take_the_same_road(app: App) -> None:
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
    trace_answer(response)
    assert app.spooled() == [("traces", first + second)]


async def test_chunked_bodies_without_a_length(app: App) -> None:
    body = gzip.compress(trace_request(1).SerializeToString())

    async def chunks() -> AsyncIterator[bytes]:
        for at in range(0, len(body), 7):
            yield body[at : at + 7]

    headers = {"content-type": PROTOBUF, "content-encoding": "gzip"}
    trace_answer(await app.client.post("/v1/traces", content=chunks(), headers=headers))
    assert app.metrics.get("accepted_total", signal="traces") == 1


async def test_rejected_spans_are_a_partial_success(app: App) -> None:
    request = trace_request(1, 2, 3)
    request.resource_spans[0].scope_spans[0].spans[0].trace_id = b"short"
    answer = trace_answer(await app.post(request.SerializeToString()))
    assert answer.partial_success.rejected_spans == 1
    assert "bad_trace_id" in answer.partial_success.error_message
    assert app.metrics.get("accepted_total", signal="traces") == 2
    assert app.metrics.get("rejected_total", signal="traces", reason="bad_trace_id") == 1
    ((_, stored),) = app.spooled()
    again = ExportTraceServiceRequest()
    again.MergeFromString(stored)
    assert [span.name for span in again.resource_spans[0].scope_spans[0].spans] == ["span 2", "span 3"]


HOSTILE: dict[str, tuple[bytes, dict[str, str], int]] = {
    "garbage": (b"\xff\xfe\x01garbage", {}, 400),
    "truncated gzip": (gzip.compress(b"x" * 1000)[:-9], {"content_encoding": "gzip"}, 400),
    "no gzip": (b"not gzip", {"content_encoding": "gzip"}, 400),
    "corrupt gzip": (gzip.compress(b"x" * 1000)[:-4] + b"1234", {"content_encoding": "gzip"}, 400),
    "junk behind gzip": (gzip.compress(b"") + b"junk", {"content_encoding": "gzip"}, 400),
    "gzip bomb": (gzip.compress(bytes(200 * 2**20), 9), {"content_encoding": "gzip"}, 413),
    "large": (bytes(2**20 + 1), {}, 413),
    "brotli": (b"x", {"content_encoding": "br"}, 415),
    "zlib": (zlib.compress(b"x"), {"content_encoding": "deflate"}, 415),
    "text": (b"x", {"content_type": "text/plain"}, 415),
    "no type": (b"x", {"content_type": ""}, 415),
}


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


async def test_json_is_refused_in_json_with_the_way_out(app: App) -> None:
    response = await app.post(b"{}", content_type="application/json; charset=utf-8")
    assert (response.status_code, response.headers["content-type"]) == (415, "application/json")
    assert "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf" in json.loads(response.content)["message"]


async def test_a_full_spool_says_when_to_come_back(app: App) -> None:
    request = trace_request(1)
    request.resource_spans[0].scope_spans[0].spans[0].name = "x" * 500_000
    body = request.SerializeToString()
    answers = [await app.post(body) for _ in range(6)]
    assert [answer.status_code for answer in answers] == [200] * 4 + [503] * 2
    assert int(answers[-1].headers["retry-after"]) > 0
    assert "full" in rpc_message(answers[-1])
    assert app.metrics.get("accepted_total", signal="traces") == 4


async def test_other_paths_and_methods(app: App) -> None:
    assert (await app.post(b"", "/v1/metrics")).status_code == 404
    assert (await app.client.get("/v1/traces")).status_code == 405


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
    answers = await asyncio.gather(*(app.post(body) for body in bodies))
    assert {answer.status_code for answer in answers} == {200}
    assert sorted(body for _, body in app.spooled()) == sorted(bodies)
