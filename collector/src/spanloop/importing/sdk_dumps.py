"""Convert spans and log records printed by OpenTelemetry's Python SDK (``ConsoleSpanExporter``, ``to_json``) to OTLP.

Invariant: all values of the dump are kept; values that it lacks (dropped counts, span flags) are absent. A field of the
wrong type is rejected by name, never guessed.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, cast

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs, SeverityNumber
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status

from spanloop.foundation.surrogates import replace_surrogates

from .import_requests import any_value, iso_nanoseconds, key_values
from .report import BadItemError

_SPAN_KINDS: Final = {"INTERNAL": 1, "SERVER": 2, "CLIENT": 3, "PRODUCER": 4, "CONSUMER": 5}
_STATUS: Final = {"UNSET": 0, "OK": 1, "ERROR": 2}
_TRACE_STATE_ITEM: Final = re.compile(r"\{key=([^,{}]*), value=([^{}]*)\}")
_TRACE_ID_DIGITS: Final = 32
_SPAN_ID_DIGITS: Final = 16
_BYTE: Final = 0xFF
_MAX_SEVERITY: Final = 24


class _Context(NamedTuple):
    """Resource and scope of a span or log record."""

    resource: Resource
    schema_url: str
    scope: InstrumentationScope
    scope_schema_url: str


def convert_span(dumped: Mapping[str, object]) -> ExportTraceServiceRequest:
    """Convert one dumped span to a request.

    Raises:
        BadItemError: A field is missing or of the wrong type.
    """
    ids = _mapping(dumped, "context")
    status = _mapping(dumped, "status")
    code = str(status.get("status_code", "UNSET")).upper()
    span = Span(
        trace_id=_id(ids.get("trace_id"), _TRACE_ID_DIGITS, "context.trace_id"),
        span_id=_id(ids.get("span_id"), _SPAN_ID_DIGITS, "context.span_id"),
        parent_span_id=_optional_id(dumped.get("parent_id"), _SPAN_ID_DIGITS, "parent_id"),
        trace_state=_trace_state(ids.get("trace_state")),
        name=_text(dumped, "name"),
        kind=Span.SpanKind.ValueType(_SPAN_KINDS.get(str(dumped.get("kind", "")).rpartition(".")[2].upper(), 0)),
        start_time_unix_nano=iso_nanoseconds(dumped.get("start_time"), "start_time"),
        end_time_unix_nano=iso_nanoseconds(dumped.get("end_time"), "end_time"),
        attributes=key_values(_mapping(dumped, "attributes")),
        events=[_event(event, f"events[{index}]") for index, event in enumerate(_items(dumped, "events"))],
        links=[_link(link, f"links[{index}]") for index, link in enumerate(_items(dumped, "links"))],
        status=Status(code=Status.StatusCode.ValueType(_STATUS.get(code, 0)), message=_text(status, "description")),
    )
    context = _context(dumped)
    spans = ScopeSpans(scope=context.scope, schema_url=context.scope_schema_url, spans=[span])
    return ExportTraceServiceRequest(
        resource_spans=[ResourceSpans(resource=context.resource, schema_url=context.schema_url, scope_spans=[spans])]
    )


def convert_log_record(dumped: Mapping[str, object]) -> ExportLogsServiceRequest:
    """Convert one dumped log record to a request.

    Raises:
        BadItemError: A field is missing or of the wrong type.
    """
    time, observed = dumped.get("timestamp"), dumped.get("observed_timestamp")
    severity = min(max(_number(dumped, "severity_number"), 0), _MAX_SEVERITY)
    record = LogRecord(
        time_unix_nano=iso_nanoseconds(time, "timestamp") if time else 0,
        observed_time_unix_nano=iso_nanoseconds(observed, "observed_timestamp") if observed or not time else 0,
        severity_text=_text(dumped, "severity_text"),
        severity_number=SeverityNumber.ValueType(severity),
        body=any_value(dumped.get("body")),
        attributes=key_values(_mapping(dumped, "attributes")),
        flags=_number(dumped, "trace_flags") & _BYTE,
        trace_id=_optional_id(dumped.get("trace_id"), _TRACE_ID_DIGITS, "trace_id"),
        span_id=_optional_id(dumped.get("span_id"), _SPAN_ID_DIGITS, "span_id"),
        event_name=_text(dumped, "event_name"),
    )
    context = _context(dumped)
    records = ScopeLogs(scope=context.scope, schema_url=context.scope_schema_url, log_records=[record])
    return ExportLogsServiceRequest(
        resource_logs=[ResourceLogs(resource=context.resource, schema_url=context.schema_url, scope_logs=[records])]
    )


def _context(dumped: Mapping[str, object]) -> _Context:
    resource, scope = _mapping(dumped, "resource"), _mapping(dumped, "instrumentation_scope")
    return _Context(
        Resource(attributes=key_values(_mapping(resource, "attributes"))),
        _text(resource, "schema_url"),
        InstrumentationScope(
            name=_text(scope, "name"),
            version=_text(scope, "version"),
            attributes=key_values(_mapping(scope, "attributes")),
        ),
        _text(scope, "schema_url"),
    )


def _event(event: Mapping[str, object], where: str) -> Span.Event:
    return Span.Event(
        time_unix_nano=iso_nanoseconds(event.get("timestamp"), f"{where}.timestamp"),
        name=_text(event, "name"),
        attributes=key_values(_mapping(event, "attributes")),
    )


def _link(link: Mapping[str, object], where: str) -> Span.Link:
    ids = _mapping(link, "context")
    return Span.Link(
        trace_id=_id(ids.get("trace_id"), _TRACE_ID_DIGITS, f"{where}.context.trace_id"),
        span_id=_id(ids.get("span_id"), _SPAN_ID_DIGITS, f"{where}.context.span_id"),
        trace_state=_trace_state(ids.get("trace_state")),
        attributes=key_values(_mapping(link, "attributes")),
    )


def _id(value: object, digits: int, where: str) -> bytes:
    expected = f"{digits} hexadecimal digits"
    if not isinstance(value, str):
        raise BadItemError("bad_id", where, value, expected)
    try:
        decoded = bytes.fromhex(value.lower().removeprefix("0x"))
    except ValueError:
        raise BadItemError("bad_id", where, value, expected) from None
    if len(decoded) * 2 != digits:
        raise BadItemError("bad_id", where, value, expected)
    return decoded


def _optional_id(value: object, digits: int, where: str) -> bytes:
    return b"" if value is None or not value else _id(value, digits, where)


def _trace_state(printed: object) -> str:
    """Convert the SDK's ``['{key=a, value=1}', '{key=b, value=2}']`` to ``a=1,b=2``."""
    return ",".join(f"{key}={value}" for key, value in _TRACE_STATE_ITEM.findall(str(printed or "")))


def _mapping(fields: Mapping[str, object], name: str) -> Mapping[str, object]:
    """Return the object of that name; an absent one is empty."""
    value = fields.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadItemError("wrong_type", name, value, "an object")
    return cast("Mapping[str, object]", value)


def _items(fields: Mapping[str, object], name: str) -> Sequence[Mapping[str, object]]:
    value = fields.get(name)
    if value is None:
        return ()
    if not isinstance(value, list):
        raise BadItemError("wrong_type", name, value, "a list of objects")
    items = cast("list[object]", value)
    for index, item in enumerate(items):
        if not isinstance(item, dict):
            raise BadItemError("wrong_type", f"{name}[{index}]", item, "an object")
    return cast("list[Mapping[str, object]]", items)


def _text(fields: Mapping[str, object], name: str) -> str:
    value = fields.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadItemError("wrong_type", name, value, "text")
    return replace_surrogates(value)


def _number(fields: Mapping[str, object], name: str) -> int:
    value = fields.get(name)
    if value is None:
        return 0
    if not isinstance(value, int):
        raise BadItemError("wrong_type", name, value, "an integer")
    return value
