"""What ClickHouse cannot read itself is found on the wire, wherever it is, and nothing else is touched."""

import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from spanloop.collector.otlp.attribute_values import attributes
from spanloop.collector.otlp.clickhouse_encoding import encode_body, has_unique_keys
from spanloop.collector.otlp.wire import MalformedError, encode_field, parse, serialize

from .collectors import trace_request

TEXT = st.text(max_size=4) | st.sampled_from(["stop", "tool_calls", "*", "2", "\x12\x08*", "x" * 64, "x" * 200])
SCALARS = (
    st.builds(AnyValue, string_value=TEXT)
    | st.builds(AnyValue, int_value=st.integers(-(2**63), 2**63 - 1))
    | st.builds(AnyValue, double_value=st.floats())
    | st.builds(AnyValue, bytes_value=st.binary(max_size=8))
    | st.builds(AnyValue)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=2).map(lambda values: AnyValue(array_value=ArrayValue(values=values)))
        | st.lists(st.builds(KeyValue, key=TEXT, value=inner), max_size=2).map(
            lambda values: AnyValue(kvlist_value=KeyValueList(values=values))
        )
    ),
    max_leaves=4,
)
NUMBERS = st.lists(SCALARS, max_size=2).flatmap(
    lambda others: st.lists(
        st.integers(-(2**63), 2**63 - 1) | st.integers(0, 200_000) | st.just(1.5), min_size=1, max_size=60
    ).map(
        lambda numbers: AnyValue(
            array_value=ArrayValue(
                values=[
                    *(AnyValue(int_value=at) if isinstance(at, int) else AnyValue(double_value=at) for at in numbers),
                    *others,
                ]
            )
        )
    )
)
ATTRIBUTES = st.lists(st.builds(KeyValue, key=TEXT, value=VALUES | NUMBERS), max_size=4)
IDS = st.binary(min_size=8, max_size=8) | st.sampled_from(
    [b"\x12\x08*\x06\x12\x04\x0a\x02", b"*\x06\x0a\x04\x0a\x02ab"]
)
SPANS = st.builds(
    Span, span_id=IDS, name=TEXT, attributes=ATTRIBUTES,
    events=st.lists(st.builds(Span.Event, name=TEXT, attributes=ATTRIBUTES), max_size=1),
    links=st.lists(st.builds(Span.Link, attributes=ATTRIBUTES), max_size=1),
)  # fmt: skip
PLAIN = re.compile(r"[A-Za-z0-9_./:-]{1,64}")


def lists_of(request: ExportTraceServiceRequest) -> list[list[KeyValue]]:
    result: list[list[KeyValue]] = []
    for resource_spans in request.resource_spans:
        result.append(list(resource_spans.resource.attributes))
        for scope_spans in resource_spans.scope_spans:
            result.append(list(scope_spans.scope.attributes))
            for span in scope_spans.spans:
                result += [list(each.attributes) for each in (span, *span.events, *span.links)]
    return result


def is_readable(value: AnyValue) -> bool:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        values = value.array_value.values
        return not values or (len(values) == 1 and PLAIN.fullmatch(values[0].string_value) is not None)
    number = value.double_value
    return kind != "kvlist_value" and (kind != "double_value" or number == 0 or 1e-5 <= abs(number) < 1e15)


@settings(max_examples=120, deadline=None)
@given(st.lists(SPANS, max_size=3), ATTRIBUTES, ATTRIBUTES)
def test_nothing_that_clickhouse_cannot_read_is_left(
    spans: list[Span], resource: list[KeyValue], scope: list[KeyValue]
) -> None:
    request = ExportTraceServiceRequest()
    resource_spans = request.resource_spans.add()
    resource_spans.resource.attributes.extend(resource)
    scope_spans = resource_spans.scope_spans.add()
    scope_spans.scope.attributes.extend(scope)
    scope_spans.spans.extend(spans)
    before = [attributes(pairs) for pairs in lists_of(request)]

    body = encode_body(serialize(request)).body
    encoded_request = lists_of(parse(ExportTraceServiceRequest, body))
    for pairs in encoded_request:
        assert len({pair.key for pair in pairs}) == len(pairs)
        assert all(is_readable(pair.value) for pair in pairs)
    assert [attributes(pairs) for pairs in encoded_request] == before
    assert encode_body(body) == (body, len(spans))


def test_finish_reasons_and_other_plain_values_keep_their_bytes() -> None:
    request = trace_request(1, 2)
    for span in request.resource_spans[0].scope_spans[0].spans:
        span.attributes.add(key="gen_ai.response.finish_reasons").value.array_value.values.add().string_value = "stop"
        span.attributes.add(key="none").value.array_value.SetInParent()
        span.attributes.add(key="temperature").value.double_value = 0.7
    before = serialize(request)
    assert encode_body(before).body == before


@pytest.mark.parametrize("text", ["\x120*", "\x12\x08*", "*\x12\x7f2\x7f"])
def test_a_text_at_the_end_that_begins_like_a_value_stays_a_text(text: str) -> None:
    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add().scope_spans.add().scope
    scope.attributes.add(key="k").value.string_value = text
    assert encode_body(serialize(request)).body == serialize(request)


@pytest.mark.parametrize("unknown", [b"", b"\xa0\x06\x01", b"\xa2\x06\x03abc"])
@pytest.mark.parametrize("compound", [encode_field(5, encode_field(1, b"\x18\x07")), encode_field(6, b"")])
def test_fields_that_otlp_does_not_name_hide_nothing(compound: bytes, unknown: bytes) -> None:
    pair = encode_field(1, b"k") + encode_field(2, unknown + compound + unknown)
    span = encode_field(9, pair) + encode_field(5, b"n")
    body = encode_field(1, encode_field(2, encode_field(2, span)))
    (result,) = parse(ExportTraceServiceRequest, encode_body(body).body).resource_spans[0].scope_spans[0].spans
    assert result.attributes[0].value.string_value == ("[7]" if compound[0] == 0x2A else "{}")


def test_a_key_that_comes_twice_is_seen_in_every_list() -> None:
    assert has_unique_keys(trace_request(1, 2), trace_request(1, 2).SerializeToString())
    assert has_unique_keys(ExportTraceServiceRequest(), b"")
    twice = [KeyValue(key="k", value=AnyValue(int_value=number)) for number in (1, 2)]
    for place in range(5):
        request = trace_request(1)
        scope_spans = request.resource_spans[0].scope_spans[0]
        span = scope_spans.spans[0]
        lists = (
            request.resource_spans[0].resource.attributes, scope_spans.scope.attributes, span.attributes,
            span.events.add().attributes, span.links.add().attributes,
        )  # fmt: skip
        lists[place].extend(twice)
        assert not has_unique_keys(request, request.SerializeToString())
        retained = lists_of(parse(ExportTraceServiceRequest, encode_body(serialize(request)).body))[place]
        assert [pair.value.string_value for pair in retained if pair.key == "k"] == ["2"]


def token_ids(*numbers: int) -> AnyValue:
    return AnyValue(array_value=ArrayValue(values=[AnyValue(int_value=number) for number in numbers]))


def test_spans_alike_and_one_that_is_not() -> None:
    request = trace_request(*range(1, 9))
    spans = request.resource_spans[0].scope_spans[0].spans
    for at, span in enumerate(spans):
        span.attributes.extend([KeyValue(key=f"k{key}", value=AnyValue(string_value="v")) for key in range(3 + at % 2)])
        span.attributes.add(key="ids").value.CopyFrom(token_ids(1, -1, 150_000))
    spans[5].attributes.insert(0, KeyValue(key="first", value=AnyValue(kvlist_value=KeyValueList())))
    spans[6].events.add().attributes.add(key="more").value.CopyFrom(token_ids(2))
    before = [attributes(pairs) for pairs in lists_of(request)]
    encoded_request = lists_of(parse(ExportTraceServiceRequest, encode_body(serialize(request)).body))
    assert all(is_readable(pair.value) for pairs in encoded_request for pair in pairs)
    assert [attributes(pairs) for pairs in encoded_request] == before
    assert before[2]["ids"] == "[1,-1,150000]"


def padded(number: int, payload: bytes) -> bytes:
    """A field whose length takes four bytes, as .NET's exporter writes it."""
    size = len(payload)
    length = bytes([size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14 & 0x7F | 0x80, size >> 21])
    return bytes([number << 3 | 2]) + length + payload


@pytest.mark.parametrize("field", [encode_field, padded])
def test_an_array_in_two_pieces_is_one(field: Callable[[int, bytes], bytes]) -> None:
    pieces = [field(5, field(1, b"\x18" + bytes([number])) * 2) for number in (1, 2)]
    pair = field(1, b"k") + field(2, b"".join(pieces))
    body = field(1, field(2, field(2, field(9, pair) + field(5, b"name"))))
    before = [attributes(pairs) for pairs in lists_of(parse(ExportTraceServiceRequest, body))]
    assert before[2] == {"k": "[1,1,2,2]"}
    assert [attributes(pairs) for pairs in lists_of(parse(ExportTraceServiceRequest, encode_body(body).body))] == before


@pytest.mark.parametrize(
    "compound",
    [
        encode_field(5, encode_field(1, encode_field(1, b"\xff"))),
        encode_field(5, b"\x0a\x05\x18"),
        encode_field(5, encode_field(1, b"\x18\x07") * 40 + b"\x0a\x05\x18"),
        encode_field(6, b"\x0a"),
    ],
)
def test_what_is_wrong_within_a_value_is_wrong(compound: bytes) -> None:
    pair = encode_field(1, b"k") + encode_field(2, compound)
    with pytest.raises(MalformedError):
        encode_body(encode_field(1, encode_field(2, encode_field(2, encode_field(9, pair)))))


@pytest.mark.parametrize("place", range(5))
def test_how_deep_a_value_may_be_depends_on_where_it_is(place: int) -> None:
    for levels in range(40, 50):
        value = AnyValue(int_value=1)
        for _ in range(levels):
            value = AnyValue(array_value=ArrayValue(values=[value]))
        request = trace_request(1)
        scope_spans = request.resource_spans[0].scope_spans[0]
        span = scope_spans.spans[0]
        lists = (
            request.resource_spans[0].resource.attributes, scope_spans.scope.attributes, span.attributes,
            span.events.add().attributes, span.links.add().attributes,
        )  # fmt: skip
        lists[place].append(KeyValue(key="deep", value=value))
        body = serialize(request)
        try:
            parse(ExportTraceServiceRequest, body)
        except MalformedError:
            with pytest.raises(MalformedError):
                encode_body(body)
        else:
            assert "[" * levels + "1" + "]" * levels in encode_body(body).body.decode("utf-8", "replace")


def test_nothing_is_lost_where_something_else_grows() -> None:
    """A kind of -1 in five bytes comes out in ten: as long as a piece of an array that would be lost."""
    pieces = [encode_field(5, encode_field(1, bytes([0x18, number]))) for number in (1, 2)]
    pair = encode_field(1, b"k") + encode_field(2, b"".join(pieces))
    span = encode_field(9, pair) + b"\x30" + b"\xff\xff\xff\xff\x0f"
    (result,) = lists_of(
        parse(ExportTraceServiceRequest, encode_body(encode_field(1, encode_field(2, encode_field(2, span)))).body)
    )[2:]
    assert attributes(result) == {"k": "[1,2]"}
