"""Validation: an invalid item is rejected alone, and every item is counted."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from spanloop.collector.otlp.wire import MalformedError
from spanloop.collector.validation import RejectReason, Signal, Validation, validate_request

from .collectors import trace_request

YEAR_2106_NS = 2**32 * 10**9


def spans_of(request: ExportTraceServiceRequest) -> list[Span]:
    return [
        span
        for resource_spans in request.resource_spans
        for scope_spans in resource_spans.scope_spans
        for span in scope_spans.spans
    ]


def admitted(body: bytes) -> tuple[Validation, list[Span]]:
    validation = validate_request(Signal.TRACES, body)
    request = ExportTraceServiceRequest()
    request.MergeFromString(validation.body)
    return validation, spans_of(request)


def test_a_valid_body_is_unchanged() -> None:
    body = trace_request(1, 2, 3).SerializeToString()
    validation = validate_request(Signal.TRACES, body)
    assert validation.body is body
    assert (validation.accepted, validation.rejected, validation.repaired) == (3, {}, 0)


def test_an_empty_body_is_an_empty_request() -> None:
    assert validate_request(Signal.TRACES, b"").accepted == 0
    assert validate_request(Signal.LOGS, b"").accepted == 0


def spoil_trace_id(span: Span) -> None:
    span.trace_id = b"short"


def zero_trace_id(span: Span) -> None:
    span.trace_id = bytes(16)


def spoil_span_id(span: Span) -> None:
    span.span_id = b"nine byte"


def zero_span_id(span: Span) -> None:
    span.span_id = bytes(8)


def spoil_parent(span: Span) -> None:
    span.parent_span_id = b"abc"


def far_future(span: Span) -> None:
    span.start_time_unix_nano = YEAR_2106_NS


def beyond_64_bits(span: Span) -> None:
    span.start_time_unix_nano = 2**64 - 1


def far_future_event(span: Span) -> None:
    span.events.add(time_unix_nano=YEAR_2106_NS)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (spoil_trace_id, RejectReason.BAD_TRACE_ID),
        (zero_trace_id, RejectReason.BAD_TRACE_ID),
        (spoil_span_id, RejectReason.BAD_SPAN_ID),
        (zero_span_id, RejectReason.BAD_SPAN_ID),
        (spoil_parent, RejectReason.BAD_PARENT_SPAN_ID),
        (far_future, RejectReason.TIMESTAMP_OUT_OF_RANGE),
        (beyond_64_bits, RejectReason.TIMESTAMP_OUT_OF_RANGE),
        (far_future_event, RejectReason.TIMESTAMP_OUT_OF_RANGE),
    ],
)
def test_an_invalid_span_is_rejected_alone(spoil: Callable[[Span], None], reason: RejectReason) -> None:
    request = trace_request(1, 2, 3, 4)
    spans = spans_of(request)
    spoil(spans[1])
    spoil(spans[3])
    validation, accepted_spans = admitted(request.SerializeToString())
    assert (validation.accepted, validation.rejected) == (2, {reason: 2})
    assert [span.name for span in accepted_spans] == ["span 1", "span 3"]


def test_the_last_representable_second_is_accepted() -> None:
    request = trace_request(1)
    spans_of(request)[0].start_time_unix_nano = YEAR_2106_NS - 1
    assert validate_request(Signal.TRACES, request.SerializeToString()).accepted == 1


def test_bad_utf8_is_replaced_in_the_one_span_that_has_it() -> None:
    request = trace_request(1, 2, 3)
    spans_of(request)[1].name = "MARK"
    pair = spans_of(request)[1].attributes.add()
    pair.key, pair.value.array_value.values.add().string_value = "k", "MARK"
    body = request.SerializeToString().replace(b"MARK", b"a\xff\xc3b")
    validation, accepted_spans = admitted(body)
    assert (validation.accepted, validation.rejected, validation.repaired) == (3, {}, 1)
    assert [span.name for span in accepted_spans] == ["span 1", "a\ufffd\ufffdb", "span 3"]
    assert accepted_spans[1].attributes[0].value.string_value == '["a\ufffd\ufffdb"]'


def test_bad_utf8_in_the_resource_keeps_every_span() -> None:
    body = trace_request(1, 2).SerializeToString().replace(b"test", b"te\xfft")
    validation, accepted_spans = admitted(body)
    assert (validation.accepted, validation.repaired, len(accepted_spans)) == (2, 1, 2)


def nested(depth: int) -> AnyValue:
    value = AnyValue(string_value="bottom")
    for _ in range(depth):
        outer = AnyValue()
        outer.array_value.values.add().CopyFrom(value)
        value = outer
    return value


@pytest.mark.parametrize("depth", [48, 49, 60])  # the first two fit the span alone, but not the span in its request
def test_a_value_nested_too_deeply_rejects_only_its_span(depth: int) -> None:
    request = trace_request(1, 2, 3)
    pair = spans_of(request)[1].attributes.add()
    pair.key = "deep"
    pair.value.CopyFrom(nested(depth))
    validation, accepted_spans = admitted(request.SerializeToString())
    assert (validation.accepted, validation.rejected) == (2, {RejectReason.UNDECODABLE: 1})
    assert [span.name for span in accepted_spans] == ["span 1", "span 3"]


def test_a_corrupt_span_is_rejected_alone() -> None:
    request = trace_request(1, 2, 3)
    spans_of(request)[1].trace_state = "MARK"
    body = request.SerializeToString().replace(b"\x1a\x04MARK", b"\x1a\x7fMARK")
    validation, accepted_spans = admitted(body)
    assert (validation.accepted, validation.rejected) == (2, {RejectReason.UNDECODABLE: 1})
    assert [span.name for span in accepted_spans] == ["span 1", "span 3"]


@pytest.mark.parametrize(
    "garbage", [b"\xff\xfe\x01garbage", b"not protobuf at all", b"\x0a", b"\x0a\xff\xff\xff\xff\x0f"]
)
@pytest.mark.parametrize("signal", list(Signal))
def test_garbage_is_malformed(garbage: bytes, signal: Signal) -> None:
    with pytest.raises(MalformedError):
        validate_request(signal, garbage)


def test_logs_on_the_traces_path_are_rejected_one_by_one() -> None:
    request = ExportLogsServiceRequest()
    records = request.resource_logs.add().scope_logs.add().log_records
    for _ in range(3):
        records.add(time_unix_nano=1, severity_text="INFO")
    validation = validate_request(Signal.TRACES, request.SerializeToString())
    assert (validation.accepted, validation.rejected_total) == (0, 3)


def test_traces_on_the_logs_path_are_not_accepted() -> None:
    body = trace_request(1, 2).SerializeToString()
    try:
        validation = validate_request(Signal.LOGS, body)
    except MalformedError:
        return
    assert (validation.accepted, validation.rejected_total) == (0, 2)


def test_a_log_record_needs_no_span_but_valid_ids() -> None:
    request = ExportLogsServiceRequest()
    records = request.resource_logs.add().scope_logs.add().log_records
    records.add(severity_text="free")
    records.add(severity_text="bound", trace_id=b"1" * 16, span_id=b"2" * 8)
    records.add(severity_text="half", trace_id=b"1" * 15)
    records.add(severity_text="late", observed_time_unix_nano=YEAR_2106_NS)
    validation = validate_request(Signal.LOGS, request.SerializeToString())
    assert validation.accepted == 2
    assert validation.rejected == {RejectReason.BAD_TRACE_ID: 1, RejectReason.TIMESTAMP_OUT_OF_RANGE: 1}


def test_headers_with_secrets_do_not_pass() -> None:
    request = trace_request(1, 2)
    span = spans_of(request)[0]
    for attributes in (span.attributes, span.events.add().attributes):
        for key, value in (("gen_ai.headers", "Authorization: hunter2"), ("gen_ai.request.model", "m")):
            pair = attributes.add()
            pair.key, pair.value.string_value = key, value
    validation, accepted_spans = admitted(request.SerializeToString())
    assert (validation.accepted, validation.redacted) == (2, {"known_leaks": 2})
    assert b"hunter2" not in validation.body
    assert [pair.key for pair in accepted_spans[0].attributes] == ["gen_ai.request.model", "spanloop.redacted"]


@given(st.binary(max_size=200), st.sampled_from(list(Signal)))
def test_any_bytes_are_validated_or_malformed(body: bytes, signal: Signal) -> None:
    try:
        validation = validate_request(signal, body)
    except MalformedError:
        return
    again = validate_request(signal, validation.body)
    assert (again.accepted, again.rejected) == (validation.accepted, {})


@given(st.data())
def test_any_flipped_request_keeps_its_count(data: st.DataObject) -> None:
    """After any bit flip, the accepted body parses again and no item is counted twice."""
    request = ExportTraceServiceRequest()
    spans = request.resource_spans.add().scope_spans.add().spans
    for at in range(1, 4):
        span = spans.add(trace_id=at.to_bytes(16), span_id=at.to_bytes(8), name=f"span {at}", start_time_unix_nano=at)
        pair = span.attributes.add()
        pair.key, pair.value.string_value = "key", "value"
    body = bytearray(request.SerializeToString())
    for at in data.draw(st.lists(st.integers(0, len(body) - 1), max_size=4)):
        body[at] ^= 1 << data.draw(st.integers(0, 7))
    try:
        validation, accepted_spans = admitted(bytes(body))
    except MalformedError:
        return
    assert len(accepted_spans) == validation.accepted
    assert validation.accepted + validation.rejected_total <= 4
