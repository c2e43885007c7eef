"""Hostile requests: each is accepted or refused with a reason, and ClickHouse stores every accepted item."""

import asyncio
import gzip
import json
import math
import random
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import httpx
import pytest
import uvicorn
from backports import zstd
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from spanloop.collector import create_app
from spanloop.collector.blocks.protobuf_blocks import ProtobufStrategy
from spanloop.collector.endpoints.connections import IdleTimeoutProtocol
from spanloop.foundation.settings.roles import CollectorSettings
from spanloop.store import Store

from .collectors import NOW_NS, PROTOBUF, SECOND_NS, TIMEOUT_S, App, CollectorProcess, Launcher, trace_request
from .test_rows import full_request

JSON = "application/json"


@pytest.fixture
async def wide(tmp_path: Path) -> AsyncIterator[App]:
    """The app with the limits that it has outside tests."""
    opened = App(tmp_path / "spool", CollectorSettings())
    async with opened.client:
        yield opened
    opened.spool.close()


def drain(app: App, store: Store) -> tuple[int, int]:
    """Write all that is spooled; gives the rows that are stored, and those that ClickHouse refused."""
    rows = refused = 0
    while (batch := app.spool.read(2**25)) is not None:
        block = ProtobufStrategy().prepare(batch)
        assert block.unreadable == 0
        sent = block.insert(store)
        rows, refused = rows + sent.rows, refused + sent.refused
        app.spool.commit(batch)
    return rows, refused


def nested(depth: int) -> AnyValue:
    value = AnyValue(string_value="bottom")
    for _ in range(depth):
        outer = AnyValue()
        outer.kvlist_value.values.add(key="k").value.CopyFrom(value)
        value = outer
    return value


def end_before_start(span: Span) -> None:
    span.end_time_unix_nano = 1


def far_future_end(span: Span) -> None:
    span.end_time_unix_nano = 2**64 - 1


def far_future_start(span: Span) -> None:
    span.start_time_unix_nano = 2**63


def far_future_event(span: Span) -> None:
    span.events.add(name="e", time_unix_nano=2**64 - 1)


def no_ids(span: Span) -> None:
    span.trace_id = span.span_id = b""


def not_a_number(span: Span) -> None:
    for at, number in enumerate((math.nan, math.inf, -math.inf, 5e-324, 1.7e308)):
        span.attributes.add(key=str(at)).value.double_value = number


def deep(span: Span) -> None:
    span.attributes.add(key="deep").value.CopyFrom(nested(30))


def deeper(span: Span) -> None:
    span.attributes.add(key="deep").value.CopyFrom(nested(40))


def huge(span: Span) -> None:
    span.attributes.add(key="huge").value.string_value = "x" * 50_000_000


def zeros(span: Span) -> None:
    span.name = "a\0b"
    span.attributes.add(key="\0").value.string_value = "\0"


def many_attributes(span: Span) -> None:
    for at in range(10_000):
        span.attributes.add(key=f"k{at}").value.int_value = -at


def same_key(span: Span) -> None:
    for at in range(1000):
        span.attributes.add(key="k").value.int_value = at


def many_events(span: Span) -> None:
    for at in range(2000):
        span.events.add(name=f"e{at}", time_unix_nano=NOW_NS + at)


@pytest.mark.parametrize(
    ("spoil", "accepted"),
    [
        (end_before_start, 1), (far_future_end, 1), (far_future_start, 0), (far_future_event, 0), (no_ids, 0),
        (not_a_number, 1), (deep, 1),
        (deeper, 0), (huge, 1), (zeros, 1), (many_attributes, 1), (same_key, 1), (many_events, 1),
    ],
)  # fmt: skip
async def test_a_hostile_span_is_stored_or_a_dead_letter(
    wide: App, store: Store, spoil: Callable[[Span], None], accepted: int
) -> None:
    request = trace_request(1, 2)
    spoil(request.resource_spans[0].scope_spans[0].spans[0])
    response = await wide.post(gzip.compress(request.SerializeToString(), 1), content_encoding="gzip")
    assert response.status_code == 200
    assert sum(letter.item_count for letter in wide.dead_letters()) == 1 - accepted
    assert drain(wide, store) == (accepted + 1, 0)


async def test_bad_utf8_is_stored_repaired(wide: App, store: Store) -> None:
    request = trace_request(1, 2)
    request.resource_spans[0].scope_spans[0].spans[0].attributes.add(key="bad key").value.string_value = "bad value"
    body = request.SerializeToString().replace(b"bad", b"b\xffd").replace(b"span 1", b"spa\xc3 1")
    assert (await wide.post(body)).status_code == 200
    assert wide.dead_letters() == []
    assert wide.metrics.get("repaired_total", signal="traces") == 1
    assert drain(wide, store) == (2, 0)


@pytest.mark.slow
async def test_spans_of_every_day_of_a_century_are_one_block(wide: App, store: Store) -> None:
    request = trace_request(*range(1, 1001))
    for at, span in enumerate(request.resource_spans[0].scope_spans[0].spans):
        span.start_time_unix_nano = at * 37 * 86_400 * SECOND_NS
    assert (await wide.post(request.SerializeToString())).status_code == 200
    assert drain(wide, store) == (1000, 0)


async def test_logs_on_the_traces_path_are_kept_and_none_is_stored(wide: App, store: Store) -> None:
    request = ExportLogsServiceRequest()
    request.resource_logs.add().scope_logs.add().log_records.add(severity_text="INFO", time_unix_nano=1)
    assert (await wide.post(request.SerializeToString())).status_code == 200
    assert [letter.reason for letter in wide.dead_letters()] == ["bad_trace_id"]
    assert drain(wide, store) == (0, 0)


async def test_millions_of_empty_messages_do_not_stop_the_collector(wide: App) -> None:
    body = b"\x0a\x02\x12\x00" * 200_000  # an empty scope each
    response = await wide.post(gzip.compress(body, 1), content_encoding="gzip")
    assert response.status_code == 200
    assert wide.spooled() == []


def originals() -> list[tuple[str, str, bytes]]:
    """(path, content type, body) of requests that are fine."""
    logs = ExportLogsServiceRequest()
    record = logs.resource_logs.add().scope_logs.add().log_records.add(time_unix_nano=NOW_NS, severity_text="INFO")
    record.body.kvlist_value.values.add(key="k").value.bytes_value = b"\x00\xff"
    text = {"resourceSpans": [{"scopeSpans": [{"spans": [
        {"traceId": "5b8efff798038103d269b633813fc60c", "spanId": "eee19b7ec3c1b174", "name": "j", "kind": 2,
         "startTimeUnixNano": str(NOW_NS), "attributes": [{"key": "a", "value": {"arrayValue": {"values": [
            {"intValue": "3"}, {"stringValue": "é"}]}}}], "status": {"code": 2}}]}]}]}  # fmt: skip
    return [
        ("/v1/traces", PROTOBUF, full_request().SerializeToString()),
        ("/v1/traces", PROTOBUF, trace_request(*range(1, 20)).SerializeToString()),
        ("/v1/logs", PROTOBUF, logs.SerializeToString()),
        ("/v1/traces", JSON, json.dumps(text).encode()),
    ]


def mutations(rng: random.Random) -> Iterator[tuple[str, bytes, dict[str, str]]]:
    """Requests without end: path, body and headers, each wrong in its own way."""
    sources = originals()
    encodings: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "zstd": zstd.compress}
    while True:
        path, content_type, original = rng.choice(sources)
        body = bytearray(original)
        for _ in range(rng.randrange(1, 5)):
            at = rng.randrange(len(body) + 1)
            match rng.randrange(6):
                case 0 if body:
                    body[at % len(body)] ^= 1 << rng.randrange(8)
                case 1:
                    del body[at : at + rng.randrange(1, 30)]
                case 2:
                    body[at:at] = rng.randbytes(rng.randrange(1, 10))
                case 3:
                    other = rng.choice(sources)[2]
                    body[at:at] = other[: rng.randrange(len(other))]
                case 4:
                    body[at:at] = body[: rng.randrange(1, 50)]
                case _:
                    body[at : at + 1] = rng.choice([b"\xff", b"\x00", b'"', b"{", b"[", b"9" * 30, b"\\ud800", b"null"])
        headers = {"content_type": content_type if rng.random() < 0.95 else rng.choice([JSON, PROTOBUF])}
        data = bytes(body)
        encoding = rng.choice(["", "", "", "gzip", "zstd"])
        if encoding:
            headers["content_encoding"] = encoding
            data = encodings[encoding](data)
            if rng.random() < 0.2:
                data = data[: rng.randrange(len(data) + 1)]
        yield (path if rng.random() < 0.95 else rng.choice(["/v1/traces", "/v1/logs"])), data, headers


async def fuzz(app: App, store: Store, count: int, seed: int) -> None:
    requests = mutations(random.Random(seed))
    status_counts: dict[int, int] = {}
    rows = 0
    for number in range(1, count + 1):
        path, body, headers = next(requests)
        response = await app.post(body, path, **headers)  # an exception that the app does not handle ends the test
        status_counts[response.status_code] = status_counts.get(response.status_code, 0) + 1
        if number % 1000 == 0 or number == count:
            stored, refused = drain(app, store)
            assert refused == 0
            rows += stored
    assert set(status_counts) <= {200, 400}, status_counts
    assert min(status_counts[200], status_counts[400]) > count // 20, status_counts
    assert rows == sum(app.metrics.get("accepted_total", signal=signal) for signal in ("traces", "logs"))
    assert app.receiver.memory_budget.reserved_bytes == 0


async def test_fuzzed_bodies_get_a_response_and_clickhouse_stores_the_accepted_items(wide: App, store: Store) -> None:
    await fuzz(wide, store, 3000, seed=20261120)


@pytest.mark.slow
@pytest.mark.timeout(1800)
async def test_a_hundred_thousand_fuzzed_bodies(wide: App, store: Store) -> None:
    await fuzz(wide, store, 100_000, seed=7)


class _Hasty(IdleTimeoutProtocol):
    idle_s = 0.3


async def test_an_unfinished_request_head_is_disconnected(wide: App) -> None:
    config = uvicorn.Config(create_app(wide.receiver), http=_Hasty, lifespan="off", log_config=None, port=0)
    server = uvicorn.Server(config)
    listener = socket.create_server(("127.0.0.1", 0))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    port = listener.getsockname()[1]
    while not server.started:  # noqa: ASYNC110 - uvicorn offers nothing else
        await asyncio.sleep(0.01)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    async with asyncio.timeout(TIMEOUT_S):
        while not reader.at_eof():
            writer.write(b"X")  # one letter of a method at a time keeps uvicorn's own timer from firing
            await asyncio.sleep(0.05)
            try:
                await asyncio.wait_for(reader.read(1), 0.01)
            except TimeoutError:
                continue
            except ConnectionError:
                break
    writer.close()
    async with httpx.AsyncClient(timeout=TIMEOUT_S) as client:
        assert (await client.get(f"http://127.0.0.1:{port}/healthz")).status_code == 200
    server.should_exit = True
    await serving


def test_a_thousand_idle_connections_do_not_block_requests(launch: Launcher) -> None:
    collector: CollectorProcess = launch("", 0, "--no-grpc")
    port = int(collector.url.rpartition(":")[2])
    idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(1000)]
    try:
        for connection in idle[::2]:
            connection.sendall(b"POST /v1/traces HTTP/1.1\r\nHost: x\r\n")
        body = trace_request(1).SerializeToString()
        assert collector.post(body).status_code == 200
    finally:
        for connection in idle:
            connection.close()
    assert collector.terminate() == 0
    assert "Traceback" not in collector.log.read_text()
