"""OTLP/JSON: the same rows as protobuf, with the liberties and the strictness that the specification asks for."""

import json

import pytest
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from spanloop.collector.otlp.wire import MalformedError
from spanloop.collector.validation import JSON, Signal, validate_request

from .collectors import App, trace_request
from .test_rows import full_request

Json = dict[str, object]
TRACE_ID, SPAN_ID = "5B8EFFF798038103D269b633813fc60c", "EEE19B7EC3C1B174"


def span(**changed: object) -> Json:
    return {"traceId": TRACE_ID, "spanId": SPAN_ID, "name": "j", "startTimeUnixNano": "1544712660000000000"} | changed


def body(*spans: object, **envelope: object) -> bytes:
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]} | envelope]}).encode()


def admitted(*spans: object) -> list[Span]:
    validation = validate_request(Signal.TRACES, body(*spans), JSON)
    assert validation.rejected == {}
    request = ExportTraceServiceRequest()
    request.MergeFromString(validation.body)
    return list(request.resource_spans[0].scope_spans[0].spans)


def hex_ids(data: object) -> object:
    """Protobuf's own JSON (base64 ids) as OTLP's (hex ids)."""
    text = json.dumps(data)
    for first in (bytes(range(16)), bytes(range(8)), b"\xff" * 8, b"\x01" * 16, b"\x02" * 8, b"\x03" * 16, b"\x04" * 8):
        encoded: str = json_format.MessageToDict(Span(trace_id=first))["traceId"]
        text = text.replace(json.dumps(encoded), json.dumps(first.hex()))
    return json.loads(text)


def test_every_field_of_a_span_is_read() -> None:
    request = full_request()
    request.resource_spans[0].scope_spans[0].spans[1].parent_span_id = b""  # eight zeros look like base64 of another id
    as_json = json.dumps(hex_ids(json_format.MessageToDict(request))).encode()
    validation = validate_request(Signal.TRACES, as_json, JSON)
    again = ExportTraceServiceRequest()
    again.MergeFromString(validation.body)
    assert again == request


def test_every_field_of_a_log_record_is_read() -> None:
    request = ExportLogsServiceRequest()
    resource_logs = request.resource_logs.add(schema_url="https://resource")
    resource_logs.resource.dropped_attributes_count = 3
    scope_logs = resource_logs.scope_logs.add()
    scope_logs.scope.name = "logger"
    record = scope_logs.log_records.add(
        time_unix_nano=2**63, observed_time_unix_nano=7, severity_number=9, severity_text="INFO", flags=1,
        trace_id=b"\x01" * 16, span_id=b"\x02" * 8, event_name="e",
    )  # fmt: skip
    record.time_unix_nano = 12
    record.body.kvlist_value.values.add(key="k").value.bytes_value = b"\x00\xff"
    as_json = json.dumps(hex_ids(json_format.MessageToDict(request))).encode()
    validation = validate_request(Signal.LOGS, as_json, JSON)
    again = ExportLogsServiceRequest()
    again.MergeFromString(validation.body)
    assert again == request


def test_ids_of_either_case_enums_of_either_form_and_integers_of_either_form() -> None:
    (decoded,) = admitted(span(kind="SPAN_KIND_SERVER", startTimeUnixNano=1544712660000000000, status={"code": 2}))
    assert decoded.trace_id.hex() == TRACE_ID.lower()
    assert (decoded.kind, decoded.status.code, decoded.start_time_unix_nano) == (2, 2, 1544712660000000000)
    (decoded,) = admitted(span(kind=3, status={"code": "STATUS_CODE_OK"}))
    assert (decoded.kind, decoded.status.code, decoded.start_time_unix_nano) == (3, 1, 1544712660000000000)


def test_unknown_fields_nulls_and_kinds_are_ignored() -> None:
    (decoded,) = admitted(span(unknownField={"a": [1]}, events=None, links=None, attributes=[], kind="SPAN_KIND_NEW"))
    assert (decoded.name, decoded.kind) == ("j", 0)


def test_special_numbers_and_lone_surrogates() -> None:
    values = [{"key": str(at), "value": {"doubleValue": number}} for at, number in enumerate(("NaN", "Infinity", 1))]
    (decoded,) = admitted(span(name="a\ud800b", attributes=values))
    assert decoded.name == "a\ufffdb"
    texts = [pair.value.string_value or pair.value.double_value for pair in decoded.attributes]
    assert texts == ["NaN", "Infinity", 1.0]


def test_an_unpaired_surrogate_anywhere_costs_nothing_of_the_request() -> None:
    values: list[dict[str, object]] = [
        {"stringValue": "cut \ud83d"},
        {"arrayValue": {"values": [{"stringValue": "\udc00 low"}]}},
        {"kvlistValue": {"values": [{"key": "\ud83d", "value": {"stringValue": "\ud83d\ud83d"}}]}},
        {"stringValue": json.dumps({"escaped once more": "\ud83d"})},
    ]
    attributes = [{"key": f"{at}\udfff", "value": value} for at, value in enumerate(values)]
    (decoded,) = admitted(span(name="\N{GRINNING FACE}", attributes=attributes))
    assert decoded.name == "\N{GRINNING FACE}"
    assert [pair.key for pair in decoded.attributes] == [f"{at}\ufffd" for at in range(4)]
    first, second, third, fourth = (pair.value.string_value for pair in decoded.attributes)
    assert (first, json.loads(second), json.loads(third)) == ("cut \ufffd", ["\ufffd low"], {"\ufffd": "\ufffd\ufffd"})
    # JSON within a text stays as it came: the span keeps what the app wrote.
    assert fourth == values[3]["stringValue"]


def test_bad_utf8_is_replaced() -> None:
    validation = validate_request(Signal.TRACES, body(span(name="MARK")).replace(b"MARK", b"a\xffb"), JSON)
    assert (validation.accepted, "a\ufffdb".encode() in validation.body) == (1, True)


@pytest.mark.parametrize(
    "bad",
    [
        7, "text", ["list"],
        span(name=3), span(traceId="xyz"), span(spanId=12), span(startTimeUnixNano="soon"),
        span(startTimeUnixNano=-1), span(startTimeUnixNano=2**64), span(attributes={"a": 1}), span(events="none"),
        span(attributes=[{"key": "k", "value": {"intValue": str(2**63)}}]), span(links=[3]),
    ],
)  # fmt: skip
def test_a_wrong_item_costs_only_itself_and_is_kept_as_it_came(bad: object) -> None:
    validation = validate_request(Signal.TRACES, body(span(name="good"), bad, resource={"attributes": []}), JSON)
    (letter,) = validation.dead_letters
    assert (validation.accepted, validation.rejected_total, letter.item_count) == (1, 1, 1)
    raw_request = json.loads(letter.raw)
    assert letter.detail
    assert raw_request["resourceSpans"][0]["scopeSpans"][0]["spans"] == [bad]
    assert raw_request["resourceSpans"][0]["resource"] == {"attributes": []}


@pytest.mark.parametrize(
    "wrong",
    [b"{", b"[]", b'"x"', b"7", b"[" * 100_000, b"9" * 5000, b'{"resourceSpans": {}}', b'{"resourceSpans": [5]}',
     b'{"resourceSpans": [{"resource": 5}]}', b'{"resourceSpans": [{"scopeSpans": [{"spans": {}}]}]}', b"\xff\xfe"],
)  # fmt: skip
@pytest.mark.parametrize("signal", [Signal.TRACES])
def test_a_wrong_envelope_is_malformed(wrong: bytes, signal: Signal) -> None:
    with pytest.raises(MalformedError):
        validate_request(signal, wrong, JSON)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
FIELDS = ["traceId", "spanId", "name", "attributes", "events", "links", "status", "kind", "startTimeUnixNano", "flags"]


@given(st.dictionaries(st.sampled_from(FIELDS), JSON_VALUES))
def test_any_json_item_is_accepted_or_rejected(item: Json) -> None:
    validation = validate_request(Signal.TRACES, body(span() | item), JSON)
    assert validation.accepted + validation.rejected_total == 1


async def test_responses_are_json(app: App) -> None:
    response = await app.post(body(span()), content_type="application/json; charset=utf-8")
    assert (response.status_code, response.headers["content-type"], response.json()) == (200, JSON, {})
    response = await app.post(body(span(), span(traceId="00")), content_type=JSON)
    partial = response.json()["partialSuccess"]
    assert (response.status_code, partial["rejectedSpans"]) == (200, "1")
    assert "bad_trace_id" in partial["errorMessage"]
    response = await app.post(b"{", content_type=JSON)
    assert (response.status_code, response.headers["content-type"]) == (400, JSON)
    assert response.json()["code"] == 3
    response = await app.post(b"", "/v1/logs", content_type=JSON)
    assert (response.status_code, response.json()) == (200, {})


async def test_json_and_protobuf_store_the_same_record(app: App) -> None:
    request = trace_request(1)
    scope_spans = request.resource_spans[0].scope_spans[0]
    scope_spans.scope.SetInParent()
    decoded = json.loads(json_format.MessageToJson(request))
    for each in decoded["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        each["traceId"], each["spanId"] = (1).to_bytes(16).hex(), (1).to_bytes(8).hex()
    await app.post(json.dumps(decoded).encode(), content_type=JSON)
    ((kind, stored),) = app.spooled()
    again = ExportTraceServiceRequest()
    again.MergeFromString(stored)
    assert (kind, again) == ("traces", request)
