"""Spans and log records as rows: every column, in a real table."""

import base64
import json
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.util import find_spec

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from spanloop.collector.blocks.frame_blocks import PolarsStrategy
from spanloop.collector.blocks.log_rows import LogRows
from spanloop.collector.blocks.span_rows import SpanRows
from spanloop.spool import Batch, Record
from spanloop.store import Store
from spanloop.store.client import Connection

from .collectors import trace_request

START = datetime(2026, 9, 21, 13, 46, 40, tzinfo=UTC)
START_NS = int(START.timestamp()) * 10**9


def pair(key: str, value: str) -> KeyValue:
    return KeyValue(key=key, value=AnyValue(string_value=value))


def full_request() -> ExportTraceServiceRequest:
    request = ExportTraceServiceRequest()
    resource_spans = request.resource_spans.add(schema_url="https://resource")
    resource_spans.resource.attributes.extend([pair("service.name", "agent"), pair("host.name", "node")])
    scope_spans = resource_spans.scope_spans.add(schema_url="https://scope")
    scope_spans.scope.name, scope_spans.scope.version = "tracer", "1.2"
    scope_spans.scope.attributes.append(pair("scope.key", "scope value"))
    reasons = AnyValue(array_value=ArrayValue(values=[AnyValue(string_value="stop")]))
    span = scope_spans.spans.add(
        trace_id=bytes(range(16)), span_id=bytes(range(8)), parent_span_id=b"\xff" * 8, trace_state="a=b",
        flags=0x301, name="chat m", kind=Span.SPAN_KIND_CLIENT, start_time_unix_nano=START_NS + 123456789,
        end_time_unix_nano=START_NS + 2_123_456_789, dropped_attributes_count=1, dropped_events_count=2,
        dropped_links_count=3, status=Status(code=Status.STATUS_CODE_ERROR, message="it broke"),
        attributes=[
            pair("gen_ai.operation.name", "chat"),
            KeyValue(key="gen_ai.usage.input_tokens", value=AnyValue(int_value=42)),
            KeyValue(key="gen_ai.response.finish_reasons", value=reasons),
        ],
    )  # fmt: skip
    event = span.events.add(time_unix_nano=START_NS + 5, name="exception")
    event.attributes.append(pair("exception.type", "ValueError"))
    span.events.add(time_unix_nano=START_NS + 6, name="bare")
    link = span.links.add(trace_id=b"\x01" * 16, span_id=b"\x02" * 8, trace_state="c=d")
    link.attributes.append(pair("link.key", "link value"))
    scope_spans.spans.add(trace_id=b"\x03" * 16, span_id=b"\x04" * 8, parent_span_id=bytes(8), kind=9)
    return request


EXPECTED_SPAN: dict[str, object] = {
    "TraceId": "000102030405060708090a0b0c0d0e0f",
    "SpanId": "0001020304050607",
    "ParentSpanId": "ffffffffffffffff",
    "TraceState": "a=b",
    "SpanName": "chat m",
    "SpanKind": "Client",
    "ServiceName": "agent",
    "ResourceAttributes": {"service.name": "agent", "host.name": "node"},
    "ScopeName": "tracer",
    "ScopeVersion": "1.2",
    "SpanAttributes": {
        "gen_ai.operation.name": "chat",
        "gen_ai.usage.input_tokens": "42",
        "gen_ai.response.finish_reasons": '["stop"]',
    },
    "Duration": 2_000_000_000,
    "StatusCode": "Error",
    "StatusMessage": "it broke",
    "Events.Name": ["exception", "bare"],
    "Events.Attributes": [{"exception.type": "ValueError"}, {}],
    "Links.TraceId": ["01" * 16],
    "Links.SpanId": ["02" * 8],
    "Links.TraceState": ["c=d"],
    "Links.Attributes": [{"link.key": "link value"}],
    "TraceFlags": 0x301,
    "ResourceSchemaUrl": "https://resource",
    "ScopeSchemaUrl": "https://scope",
    "ScopeAttributes": {"scope.key": "scope value"},
    "DroppedAttributesCount": 1,
    "DroppedEventsCount": 2,
    "DroppedLinksCount": 3,
    "GenAiOperation": "chat",
    "GenAiInputTokens": 42,
    "start_ns": START_NS + 123456789,
    "event_ns": [START_NS + 5, START_NS + 6],
}
SPAN_COLUMNS = (
    f"{', '.join(f'`{name}`' for name in EXPECTED_SPAN if not name.endswith('_ns'))}, toUnixTimestamp64Nano(Timestamp) "
    "AS start_ns, arrayMap(at -> toUnixTimestamp64Nano(at), `Events.Timestamp`) AS event_ns"
)


def prepared(*records: tuple[str, bytes]) -> Batch:
    return Batch("ab" * 16, tuple(Record(kind, body, at, 0) for at, (kind, body) in enumerate(records, 1)))


def count(connection: Connection, table: str) -> int:
    return int(connection.query(f"SELECT count() AS n FROM {table}", doing="counting")["n"].item())


def test_every_column_of_a_span_arrives(store: Store, connection: Connection) -> None:
    block = PolarsStrategy().prepare(prepared(("traces", full_request().SerializeToString())))
    assert block.insert(store).rows == 2
    table = f"`{store.database}`.otel_traces"
    found = connection.query(f"SELECT {SPAN_COLUMNS} FROM {table} ORDER BY Timestamp DESC", doing="reading")
    full, bare = found.to_dicts()
    assert full == EXPECTED_SPAN
    assert (bare["SpanKind"], bare["StatusCode"], bare["ParentSpanId"], bare["start_ns"]) == ("", "Unset", "", 0)
    assert (bare["SpanAttributes"], bare["Events.Name"], bare["Duration"]) == ({}, [], 0)


def test_every_column_of_a_log_record_arrives(store: Store, connection: Connection) -> None:
    request = ExportLogsServiceRequest()
    resource_logs = request.resource_logs.add(schema_url="https://resource")
    resource_logs.resource.attributes.append(pair("service.name", "agent"))
    scope_logs = resource_logs.scope_logs.add(schema_url="https://scope")
    scope_logs.scope.name = "logger"
    scope_logs.log_records.add(
        time_unix_nano=START_NS + 1, trace_id=b"\x01" * 16, span_id=b"\x02" * 8, flags=1, severity_text="INFO",
        severity_number=9, body=AnyValue(string_value="hello"), event_name="gen_ai.evaluation.result",
        attributes=[
            pair("gen_ai.evaluation.name", "reward"),
            KeyValue(key="gen_ai.evaluation.score.value", value=AnyValue(double_value=0.5)),
        ],
    )  # fmt: skip
    scope_logs.log_records.add(observed_time_unix_nano=START_NS + 2, severity_number=1000)
    block = PolarsStrategy().prepare(prepared(("logs", request.SerializeToString())))
    assert block.insert(store).rows == 2
    first, second = connection.query(
        f"SELECT * EXCEPT (Timestamp, TimestampTime, IngestedAt), toUnixTimestamp64Nano(Timestamp) AS ns FROM "
        f"`{store.database}`.otel_logs ORDER BY Timestamp",
        doing="reading",
    ).to_dicts()
    assert first == {
        "TraceId": "01" * 16,
        "SpanId": "02" * 8,
        "TraceFlags": 1,
        "SeverityText": "INFO",
        "SeverityNumber": 9,
        "ServiceName": "agent",
        "Body": "hello",
        "ResourceSchemaUrl": "https://resource",
        "ResourceAttributes": {"service.name": "agent"},
        "ScopeSchemaUrl": "https://scope",
        "ScopeName": "logger",
        "ScopeVersion": "",
        "ScopeAttributes": {},
        "LogAttributes": {"gen_ai.evaluation.name": "reward", "gen_ai.evaluation.score.value": "0.5"},
        "EventName": "gen_ai.evaluation.result",
        "ns": START_NS + 1,
    }
    assert (second["ns"], second["SeverityNumber"]) == (START_NS + 2, 255)
    (score,) = connection.query(
        f"SELECT name, value, trace_id FROM `{store.database}`.scores", doing="reading"
    ).to_dicts()
    assert score == {"name": "reward", "value": 0.5, "trace_id": "01" * 16}


def test_a_block_that_is_inserted_again_is_stored_once(store: Store, connection: Connection) -> None:
    batch = prepared(("traces", full_request().SerializeToString()))
    for _ in range(2):
        PolarsStrategy().prepare(batch).insert(store)
    assert count(connection, f"`{store.database}`.otel_traces") == 2


def test_an_unreadable_record_becomes_a_dead_letter_alone() -> None:
    good = trace_request(1, 2).SerializeToString()
    block = PolarsStrategy().prepare(
        prepared(("traces", good), ("traces", b"\xff"), ("profiles", good), ("traces", good))
    )
    assert block.unreadable == 2
    ((signal, frame),) = block.frames
    assert (signal, frame.height) == ("traces", 4)
    letters = block.dead_letter_rows
    assert letters["reason"].to_list() == ["unreadable_record"] * 2
    assert letters["raw_base64"].to_list() == ["/w==", base64.b64encode(good).decode()]


def test_an_end_before_the_start_is_no_duration() -> None:
    request = trace_request(1)
    request.resource_spans[0].scope_spans[0].spans[0].end_time_unix_nano = 1
    rows = SpanRows()
    rows.add(request)
    assert rows.to_frame()["Duration"].to_list() == [0]


def frames_of(requests: Sequence[ExportTraceServiceRequest]) -> pl.DataFrame:
    rows = SpanRows()
    for request in requests:
        rows.add(request)
    return rows.to_frame()


TEXT = st.text(max_size=8)
ATTRIBUTES = st.lists(st.builds(pair, TEXT, TEXT), max_size=4)
TIMES = st.integers(0, 2**62)
EVENTS = st.lists(st.builds(Span.Event, time_unix_nano=TIMES, name=TEXT, attributes=ATTRIBUTES), max_size=3)
SPANS = st.lists(
    st.builds(
        Span, trace_id=st.binary(min_size=16, max_size=16), span_id=st.binary(min_size=8, max_size=8), name=TEXT,
        start_time_unix_nano=TIMES, end_time_unix_nano=st.integers(0, 2**64 - 1),
        attributes=ATTRIBUTES, events=EVENTS, dropped_attributes_count=st.integers(0, 2**32 - 1),
    ),
    max_size=4,
)  # fmt: skip


@given(st.lists(SPANS, max_size=4))
def test_rows_are_the_spans_in_their_order(groups: list[list[Span]]) -> None:
    requests: list[ExportTraceServiceRequest] = []
    for spans in groups:
        request = ExportTraceServiceRequest()
        request.resource_spans.add().scope_spans.add().spans.extend(spans)
        requests.append(request)
    rows = frames_of(requests).to_dicts()
    spans = [span for group in groups for span in group]
    assert len(rows) == len(spans)
    for row, span in zip(rows, spans, strict=True):
        assert (row["TraceId"], row["SpanName"]) == (span.trace_id.hex(), span.name)
        assert row["SpanAttributes"] == {item.key: item.value.string_value for item in span.attributes}
        assert row["Events.Name"] == [event.name for event in span.events]
        assert row["Events.Attributes"] == [
            {item.key: item.value.string_value for item in event.attributes} for event in span.events
        ]
        assert row["DroppedAttributesCount"] == span.dropped_attributes_count


def test_no_rows_make_an_empty_frame_of_the_same_shape(store: Store) -> None:
    for rows, table in ((SpanRows(), "otel_traces"), (LogRows(), "otel_logs")):
        frame = rows.to_frame()
        assert frame.is_empty()
        assert set(frame.columns) <= set(store.schema(table))


def test_nested_values_become_json() -> None:
    request = trace_request(1)
    item = request.resource_spans[0].scope_spans[0].spans[0].attributes.add()
    item.key = "messages"
    inner = item.value.array_value.values.add().kvlist_value.values.add()
    inner.key, inner.value.string_value = "role", "user"
    (row,) = frames_of([request]).to_dicts()
    assert json.loads(row["SpanAttributes"]["messages"]) == [{"role": "user"}]


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        ("SPAN_KIND_UNSPECIFIED", "Unspecified"),
        ("SPAN_KIND_INTERNAL", "Internal"),
        ("SPAN_KIND_SERVER", "Server"),
        ("SPAN_KIND_CLIENT", "Client"),
        ("SPAN_KIND_PRODUCER", "Producer"),
        ("SPAN_KIND_CONSUMER", "Consumer"),
    ],
)
def test_span_kinds_have_the_exporters_names(kind: str, word: str) -> None:
    request = trace_request(1)
    request.resource_spans[0].scope_spans[0].spans[0].kind = Span.SpanKind.Value(kind)
    assert frames_of([request])["SpanKind"].item() == word


@pytest.mark.skipif(find_spec("pandas") is None, reason="pandas is not installed: nothing can import it")
def test_rows_are_made_without_pandas() -> None:
    script = """
import sys
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from spanloop.collector.blocks.log_rows import LogRows
from spanloop.collector.blocks.span_rows import SpanRows

for rows, request in ((LogRows(), ExportLogsServiceRequest()), (SpanRows(), ExportTraceServiceRequest())):
    request.MergeFromString(bytes.fromhex(sys.argv.pop(1)))
    rows.add(request)
    print(rows.to_frame().height)
print("pandas" in sys.modules)
"""
    logs = ExportLogsServiceRequest()
    record = logs.resource_logs.add().scope_logs.add().log_records.add(time_unix_nano=START_NS)
    record.attributes.append(pair("key", "value"))
    bodies = [request.SerializeToString().hex() for request in (logs, full_request())]
    done = subprocess.run([sys.executable, "-c", script, *bodies], stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout.split() == ["1", "2", "False"]
