"""Spans and log records: each format gives the same rows as live spans."""

import gzip
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Link, SpanKind, Status, StatusCode, set_span_in_context

from spanloop.collector.blocks.span_rows import SpanRows
from spanloop.collector.otlp.wire import serialize
from spanloop.importing import files
from spanloop.store import Store
from spanloop.store.client import Address, Connection

from .conftest import Import, Write, conversation

RECORDINGS = Path(__file__).parents[3].parent / "shared" / "data" / "spans"
NOT_IN_A_DUMP = ("TraceFlags", "ScopeName")
START_NS = 1_790_000_000_123_456_000


def some_spans() -> tuple[Sequence[ReadableSpan], str]:
    """Finished spans of the real SDK, and the output of its console exporter."""
    printed, exported = io.StringIO(), InMemorySpanExporter()
    provider = TracerProvider(resource=Resource({"service.name": "app", "n": 1}))
    provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(out=printed)))
    provider.add_span_processor(SimpleSpanProcessor(exported))
    tracer = provider.get_tracer("scope")
    # A dump has times to the microsecond, so these are no finer.
    outer = tracer.start_span("outer", kind=SpanKind.SERVER, start_time=START_NS)
    outer.add_event("note", {"a": [1, 2], "b": 0.5}, timestamp=START_NS + 1_000)
    inner = tracer.start_span(
        "inner",
        set_span_in_context(outer),
        SpanKind.CLIENT,
        {"text": "ü", "flag": True, "list": ["x", "y"], "n": -5, "half": 0.5},
        [Link(outer.get_span_context(), {"k": "v"})],
        start_time=START_NS + 2_000,
    )
    inner.set_status(Status(StatusCode.ERROR, "no luck"))
    inner.end(START_NS + 5_000)
    outer.end(START_NS + 9_000)
    provider.shutdown()
    return exported.get_finished_spans(), printed.getvalue()


def live_rows(spans: Sequence[ReadableSpan]) -> list[dict[str, Any]]:
    rows = SpanRows()
    rows.add(encode_spans(spans))
    return rows.to_frame().sort("SpanId").to_dicts()


def stored_rows(address: Address, columns: Sequence[str]) -> list[dict[str, Any]]:
    connection = Connection(address)
    try:
        rows = connection.query("SELECT * FROM otel_traces ORDER BY SpanId", doing="looking")
    finally:
        connection.close()
    return rows.select(columns).to_dicts()


def as_array(printed: str) -> bytes:
    return f"[{printed.strip().replace(chr(10) + '}' + chr(10) + '{', chr(10) + '},' + chr(10) + '{')}]".encode()


DUMPS: dict[str, Callable[[str], bytes]] = {
    "printed one after the other": lambda printed: printed.encode(),
    "in a list": as_array,
    "one a line": lambda printed: b"\n".join(json.dumps(span).encode() for span in json.loads(as_array(printed))),
    "a recording": lambda printed: json.dumps({"about": "x", "spans": json.loads(as_array(printed))}).encode(),
    "gzipped": lambda printed: gzip.compress(printed.encode()),
}


@pytest.mark.parametrize("form", DUMPS)
def test_a_dump_of_the_sdk_gives_the_live_rows(address: Address, write: Write, run: Import, form: str) -> None:
    spans, printed = some_spans()
    report, rejects = run(write(DUMPS[form](printed), "dump.json"))
    assert not rejects
    assert report.new["spans"] == 2
    expected = live_rows(spans)
    columns = [name for name in expected[0] if name not in NOT_IN_A_DUMP]
    assert stored_rows(address, columns) == [{name: row[name] for name in columns} for row in expected]


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


PROTOBUF: dict[str, Callable[[bytes], bytes]] = {
    "one request": lambda body: body,
    "with lengths": lambda body: framed(body) + framed(b"") + framed(body),
    "gzipped": gzip.compress,
}


@pytest.mark.parametrize("form", PROTOBUF)
def test_protobuf_gives_the_live_rows(address: Address, write: Write, run: Import, form: str) -> None:
    spans, _ = some_spans()
    report, rejects = run(write(PROTOBUF[form](serialize(encode_spans(spans))), "spans.pb"))
    assert not rejects
    assert report.new["spans"] == 2
    assert report.known["spans"] == (2 if form == "with lengths" else 0)
    expected = live_rows(spans)
    assert stored_rows(address, list(expected[0])) == expected


def otlp_json(*, trace_id: str = "0A" * 16, span_id: str = "0b" * 8) -> dict[str, Any]:
    span = {
        "traceId": trace_id,
        "spanId": span_id,
        "name": "chat",
        "startTimeUnixNano": "1700000000000000001",
        "endTimeUnixNano": "1700000000000000005",
        "attributes": [{"key": "k", "value": {"stringValue": "v"}}],
    }
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "app"}}]}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": [span]}]}]}


@pytest.mark.parametrize("indent", [None, 1])
def test_otlp_json_is_read_one_a_line_or_one_a_file(
    address: Address, write: Write, run: Import, indent: int | None
) -> None:
    log = {"timeUnixNano": "1700000000000000001", "body": {"stringValue": "hello"}}
    logs = {"resourceLogs": [{"scopeLogs": [{"logRecords": [log]}]}]}
    requests = [otlp_json(), otlp_json(span_id="0c" * 8), logs]
    content = "\n".join(json.dumps(request, indent=indent) for request in requests)
    path = write(content.encode(), "spans.json")
    report, rejects = run(path)
    assert not rejects
    assert (report.new["spans"], report.new["log records"]) == (2, 1)
    (first, _) = stored_rows(address, ["TraceId", "ServiceName", "SpanAttributes", "Duration"])
    assert first == {"TraceId": "0a" * 16, "ServiceName": "app", "SpanAttributes": {"k": "v"}, "Duration": 4}
    again = run(path).report
    assert (again.new.total(), again.known["log records"]) == (0, 1)


@pytest.mark.parametrize(
    ("change", "reason", "item"),
    [
        ({"context": None}, "bad_id", "context.trace_id"),
        ({"context": {"trace_id": "0x12", "span_id": "0x" + "1" * 16}}, "bad_id", "context.trace_id"),
        ({"context": {"trace_id": "0x" + "0" * 32, "span_id": "0x" + "1" * 16}}, "bad_trace_id", ""),
        ({"parent_id": 5}, "bad_id", "parent_id"),
        ({"start_time": "soon"}, "bad_time", "start_time"),
        ({"end_time": None}, "bad_time", "end_time"),
        ({"start_time": "1969-01-01T00:00:00Z"}, "bad_time", "start_time"),
        ({"start_time": "2200-01-01T00:00:00Z"}, "timestamp_out_of_range", ""),
        ({"attributes": []}, "wrong_type", "attributes"),
        ({"events": [5]}, "wrong_type", "events[0]"),
        ({"events": [{"name": "x"}]}, "bad_time", "events[0].timestamp"),
        ({"resource": "none"}, "wrong_type", "resource"),
    ],
)
def test_a_bad_span_of_a_dump_is_located(
    write: Write, run: Import, change: dict[str, object], reason: str, item: str
) -> None:
    good, bad = json.loads(as_array(some_spans()[1]))
    report, (reject,) = run(write([good, bad | change]))
    assert report.new["spans"] == 1
    assert (reject.place.line, reject.place.item, reject.reason) == (2, item, reason)


def test_bad_spans_of_a_request_are_rejected_alone(write: Write, run: Import) -> None:
    request = otlp_json()
    spans = request["resourceSpans"][0]["scopeSpans"][0]["spans"]
    spans += [spans[0] | {"spanId": "00" * 8}, spans[0] | {"spanId": "0d" * 8, "kind": []}]
    report, rejects = run(write([request]))
    assert (report.input, report.new["spans"]) == (3, 1)
    assert sorted(reject.reason for reject in rejects) == ["bad_span_id", "undecodable"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"%PDF-1.7 and so on", "unknown_format"),
        (b"\x00\x00\x00\x09\x0a", "unknown_format"),
        (b"\x0a\xff\xff\xff", "malformed_request"),
        (b"{\n  'single': 1\n}", "not_json"),
        (b'{"a": 1}\n' * 2, "unknown_format"),
        (b'{"resourceSpans": 5}', "malformed_request"),
        (b"[" * 100_000, "not_json"),
        (gzip.compress(b'{"messages": []}\n' * 999, mtime=0)[:-9], "unreadable_file"),
    ],
)
def test_a_file_of_no_known_format_is_reported(write: Write, run: Import, content: bytes, reason: str) -> None:
    assert reason in run(write(content)).report.rejected


def test_an_empty_file_has_no_items(write: Write, run: Import) -> None:
    report, (reject,) = run(write(b"\n\n"))
    assert (report.input, reject.reason) == (0, "empty_file")


def test_a_line_beyond_the_limit_is_rejected_alone(write: Write, run: Import, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "DOCUMENT_LIMIT_BYTES", 2_000)
    long = conversation(messages=[{"role": "assistant", "content": "x" * 9_000}])
    report, (reject,) = run(write([conversation(), long, conversation(task_id=2)]))
    assert (report.new["conversations"], reject.place.line, reject.reason) == (2, 2, "too_large")


def test_recordings_of_real_instrumentors_are_read_completely(store: Store, run: Import) -> None:
    if not RECORDINGS.exists():
        pytest.skip(f"no data at {RECORDINGS}")
    recordings = [json.loads(path.read_text()) for path in sorted(RECORDINGS.glob("*.json"))]
    report, rejects = run(RECORDINGS)
    assert not rejects
    spans = {
        (span["context"]["trace_id"], span["context"]["span_id"])
        for recording in recordings
        for span in recording["spans"]
    }
    assert report.new["spans"] == len(spans)
    counts = store.query("store_counts").filter(pl.col("table_name") == "otel_traces")
    assert counts["row_count"].to_list() == [len(spans)]
    assert report.input == sum(
        len(recording["spans"]) + len(recording.get("log_events", [])) for recording in recordings
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
WORDS = st.sampled_from(["messages", "role", "content", "reward", "spans", "context", "start_time", "resourceSpans"])


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    damage=st.lists(st.tuples(st.integers(0, 3), WORDS, JSON), max_size=8),
    cut=st.integers(0, 3_000),
)
def test_any_input_is_accounted_for(write: Write, run: Import, damage: list[tuple[int, str, object]], cut: int) -> None:
    dumped = json.loads(as_array(some_spans()[1]))
    lines: list[dict[str, Any]] = [dict(conversation()), dumped[0], otlp_json(), {"spans": dumped}]
    for line, word, value in damage:
        lines[line] = lines[line] | {word: value}
    text = "\n".join(json.dumps(line) for line in lines)
    run(write((text[:cut] + text[cut + 1 :]).encode("utf-8", "surrogatepass")))
