"""Spans that ClickHouse parses: the same rows as from Python, stored once."""

import json
import struct
import tracemalloc
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from spanloop.collector.blocks.frame_blocks import BlockStrategy, PolarsStrategy
from spanloop.collector.blocks.insert_errors import RefusedRanges
from spanloop.collector.blocks.protobuf_blocks import Bodies, ProtobufStrategy
from spanloop.collector.otlp.wire import encode_field, serialize
from spanloop.foundation.errors import StoreError
from spanloop.importing.sdk_dumps import convert_span
from spanloop.spool import Batch, Record, Spool
from spanloop.store import Store
from spanloop.store.client import Address, Connection

from .collectors import NOW_NS, SECOND_NS, trace_record, trace_request
from .test_insert_errors import BAD, BLOCK, GOOD
from .test_insert_errors import strict as strict  # noqa: PLC0414 - a fixture
from .test_rows import full_request
from .test_writer import stored

MIB = 2**20
RECORDINGS = Path(__file__).parents[4] / "shared" / "data" / "spans"


def rows(store: Store, connection: Connection, strategy: BlockStrategy, bodies: list[bytes]) -> list[str]:
    """Every insertable column of what the strategy stores, as text; the table is emptied."""
    table = f"`{store.database}`.otel_traces"
    records = tuple(trace_record(body, at) for at, body in enumerate(bodies, 1))
    strategy.prepare(Batch(uuid.uuid4().hex, records)).insert(store)
    sql = f"SELECT formatRow('JSONCompactEachRow', * EXCEPT (IngestedAt)) AS row FROM {table} ORDER BY row"
    rows_as_text = connection.query(sql, doing="reading")["row"].to_list()
    connection.command(f"TRUNCATE TABLE {table}", doing="emptying")
    return cast("list[str]", rows_as_text)


def assert_same(store: Store, connection: Connection, *bodies: bytes) -> int:
    ours = rows(store, connection, PolarsStrategy(), list(bodies))
    assert rows(store, connection, ProtobufStrategy(), list(bodies)) == ours
    return len(ours)


def test_every_column_of_a_full_span(store: Store, connection: Connection) -> None:
    body = full_request().SerializeToString()
    assert assert_same(store, connection, body, trace_request(1, 2).SerializeToString(), b"", body) == 6


TEXT = st.text(max_size=6) | st.sampled_from(["stop", "end_turn", "a.b/c:d-1"])
DOUBLES = st.floats() | st.sampled_from([0.0, -0.0, 1e15, 1e-5, 123456.789, 1e14, 9.99e-6, 1e21, 5e-324, 0.1 + 0.2])
SCALARS = st.one_of(
    st.builds(AnyValue, string_value=TEXT),
    st.builds(AnyValue, int_value=st.integers(-(2**63), 2**63 - 1)),
    st.builds(AnyValue, bool_value=st.booleans()),
    st.builds(AnyValue, double_value=DOUBLES),
    st.builds(AnyValue, bytes_value=st.binary(max_size=5)),
    st.builds(AnyValue),
)


def compound(inner: st.SearchStrategy[AnyValue]) -> st.SearchStrategy[AnyValue]:
    lists = st.lists(inner, max_size=3).map(lambda values: AnyValue(array_value=ArrayValue(values=values)))
    pairs = st.lists(st.builds(KeyValue, key=TEXT, value=inner), max_size=3)
    return lists | pairs.map(lambda values: AnyValue(kvlist_value=KeyValueList(values=values)))


VALUES = st.recursive(SCALARS, compound, max_leaves=5)
ATTRIBUTES = st.lists(
    st.builds(KeyValue, key=st.sampled_from(["a", "b", "c", "", "é"]) | TEXT, value=VALUES), max_size=5
)
IDS, SPAN_IDS = st.binary(min_size=16, max_size=16), st.binary(min_size=8, max_size=8)
TIMES = st.integers(0, 2**32 * SECOND_NS - 1) | st.just(NOW_NS)
COUNTS = st.integers(0, 2**32 - 1)
SPANS = st.builds(
    Span, trace_id=IDS, span_id=SPAN_IDS, parent_span_id=st.sampled_from([b"", bytes(8), b"12345678"]),
    trace_state=TEXT, flags=COUNTS, name=TEXT, kind=st.integers(-3, 9), start_time_unix_nano=TIMES,
    end_time_unix_nano=st.integers(0, 2**64 - 1), attributes=ATTRIBUTES, dropped_attributes_count=COUNTS,
    dropped_events_count=COUNTS, dropped_links_count=COUNTS,
    events=st.lists(st.builds(Span.Event, time_unix_nano=TIMES, name=TEXT, attributes=ATTRIBUTES), max_size=2),
    links=st.lists(
        st.builds(Span.Link, trace_id=IDS, span_id=SPAN_IDS, trace_state=TEXT, attributes=ATTRIBUTES), max_size=2
    ),
    status=st.builds(Status, code=st.integers(-2, 5), message=TEXT),
)  # fmt: skip


def request_of(spans: list[Span], around: list[KeyValue], service: str) -> bytes:
    request = ExportTraceServiceRequest()
    resource_spans = request.resource_spans.add(schema_url=service)
    resource_spans.resource.attributes.extend(
        [KeyValue(key="service.name", value=AnyValue(string_value=service)), *around]
    )
    scope_spans = resource_spans.scope_spans.add(schema_url="s")
    scope_spans.scope.name, scope_spans.scope.version = service, "1"
    scope_spans.scope.attributes.extend(around)
    scope_spans.spans.extend(spans)
    return serialize(request)


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(st.lists(st.builds(request_of, st.lists(SPANS, max_size=6), ATTRIBUTES, TEXT), max_size=3))
def test_any_span_gives_the_row_that_python_makes(store: Store, connection: Connection, bodies: list[bytes]) -> None:
    assert_same(store, connection, *bodies)


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    st.lists(
        st.floats() | st.binary(min_size=8, max_size=8).map(lambda raw: float(struct.unpack("d", raw)[0])), max_size=300
    )
)
def test_any_double_has_the_digits_that_python_writes(
    store: Store, connection: Connection, numbers: list[float]
) -> None:
    request = trace_request(1)
    for at, number in enumerate(numbers):
        pair = request.resource_spans[0].scope_spans[0].spans[0].attributes.add()
        pair.key, pair.value.double_value = str(at), number
    assert_same(store, connection, request.SerializeToString())


def field_twice(body: bytes) -> bytes:
    """A value that is a string and, later, an integer: the last one counts."""
    both = encode_field(1, b"text") + b"\x18\x07"
    return with_attribute(body, encode_field(1, b"k") + encode_field(2, both))


def unknown_fields(body: bytes) -> bytes:
    """Fields that OTLP does not name: a varint, a fixed64, a group."""
    odd = b"\xa0\x06\x01" + b"\xa9\x06" + bytes(8) + b"\xb3\x06\x08\x01\xb4\x06"
    return with_attribute(body, encode_field(1, b"k") + encode_field(2, encode_field(1, b"v")) + odd)


def message_twice(body: bytes) -> bytes:
    """A status in two parts, which are one message to protobuf."""
    return with_field(body, encode_field(15, encode_field(2, b"m")) + encode_field(15, b"\x18\x02"))


def with_attribute(body: bytes, pair: bytes) -> bytes:
    return with_field(body, encode_field(9, pair))


def with_field(body: bytes, field: bytes) -> bytes:
    request = ExportTraceServiceRequest()
    request.MergeFromString(body)
    span: bytes = request.resource_spans[0].scope_spans[0].spans[0].SerializeToString()
    return encode_field(1, encode_field(2, encode_field(2, span + field)))


@pytest.mark.parametrize("make", [field_twice, unknown_fields, message_twice])
def test_unusual_wire_formats_give_the_same_rows(
    store: Store, connection: Connection, make: Callable[[bytes], bytes]
) -> None:
    assert assert_same(store, connection, make(trace_request(1).SerializeToString())) == 1


@pytest.mark.skipif(not RECORDINGS.is_dir(), reason="the recordings are not here")
def test_recorded_spans_give_the_rows_that_python_makes(store: Store, connection: Connection) -> None:
    bodies: list[bytes] = []
    for path in sorted(RECORDINGS.glob("*.json")):
        dumped = json.loads(path.read_text())["spans"]
        bodies.extend(convert_span(span).SerializeToString() for span in dumped)
    assert assert_same(store, connection, *bodies) == len(bodies)


def test_a_block_that_is_inserted_again_is_stored_once(store: Store, connection: Connection, address: Address) -> None:
    bodies = [trace_request(*range(at, at + 3000)).SerializeToString() for at in (1, 3001, 6001)]
    records = tuple(trace_record(body, at) for at, body in enumerate(bodies, 1))
    for _ in range(3):
        sent = ProtobufStrategy().prepare(Batch("ab" * 16, records)).insert(store)
        assert sent == (9000, 0)
    assert stored(connection, address) == list(range(1, 9001))


async def test_a_block_of_the_spool_is_sent_from_disk(tmp_path: Path) -> None:
    """At most one chunk of a block is in memory."""
    with Spool(tmp_path / "spool", max_bytes=64 * MIB) as spool:
        bodies = [bytes([at]) * (MIB // 8) for at in range(128)]
        await spool.append_all([("traces 1", body) for body in bodies])
        whole = b"".join(bodies)
        del bodies
        tracemalloc.start()
        try:
            batch = spool.read(64 * MIB)
            assert batch is not None
            block = ProtobufStrategy().prepare(batch)
            assert (block.spans, block.request.size_bytes) == (128, len(whole))
            for _ in range(2):  # as often as it takes
                at = 0
                for piece in block.request:
                    assert whole[at : at + len(piece)] == piece
                    at += len(piece)
                assert at == len(whole)
            assert tracemalloc.get_traced_memory()[1] < 4 * MIB
        finally:
            tracemalloc.stop()


@pytest.mark.usefixtures("strict")
def test_bad_rows_of_a_protobuf_block_become_dead_letters(
    store: Store, connection: Connection, address: Address
) -> None:
    assert ProtobufStrategy().prepare(BLOCK).insert(store) == (len(GOOD), len(BAD))
    assert ProtobufStrategy().prepare(BLOCK).unreadable == 1
    assert stored(connection, address) == GOOD


def test_a_server_that_cannot_read_protobuf_gets_rows(
    store: Store, connection: Connection, address: Address, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = RefusedRanges(tmp_path / "refused")
    prepared = ProtobufStrategy(refused).prepare(BLOCK)

    def nonsense(*_: object, **__: object) -> None:
        store.execute("pipeline_nonsense")

    monkeypatch.setattr(store, "insert_from", nonsense)
    with pytest.raises(StoreError, match="pipeline_nonsense"):  # not ClickHouse's error: no conclusion
        prepared.insert(store)
    monkeypatch.undo()
    spoiled = prepared._replace(request=Bodies([Record("traces", b"\xff", 1, 0), *prepared.traces.records]))
    assert spoiled.insert(store) == (13, 0)
    assert stored(connection, address) == list(range(1, 14))
    assert ProtobufStrategy(RefusedRanges(tmp_path / "refused")).prepare(BLOCK).insert(store) == (13, 0)
    assert stored(connection, address) == list(range(1, 14)), "the raw block went beside the rows"
