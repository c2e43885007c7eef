"""Decode OTLP/JSON requests to protobuf, which then passes the same checks.

OTLP/JSON is protobuf's JSON mapping with two differences: ids are hex (of either case) instead of base64, and unknown
fields are ignored. Invariant: an invalid item affects no other item. It is left out, and `Decoded.left_out` contains it
as JSON, in its envelope.
"""

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeAlias, cast

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span

from spanloop.foundation.surrogates import load_json

from .wire import MalformedError, parse_json, serialize

_FAULTS: Final = (ValueError, TypeError, RecursionError)
"""Errors that an invalid item raises, here or in the runtime."""
_IDS: Final = ("traceId", "spanId", "parentSpanId")
Json: TypeAlias = Mapping[str, object]


class Decoded(NamedTuple):
    """A JSON request as protobuf."""

    body: bytes
    undecodable: int
    """Number of items that could not be decoded."""
    left_out: bytes
    """These items as a JSON request; empty without any."""
    detail: str
    """The first item's error."""


class _Signal(NamedTuple):
    """JSON names, field names and message types of one signal; traces and logs have the same envelope."""

    resources: tuple[str, str]
    scopes: tuple[str, str]
    items: tuple[str, str]
    request: Callable[..., object]
    resource: Callable[..., object]
    scope: Callable[..., object]
    item: type[Span] | type[LogRecord]


class _Decoder:
    """One pass over a request: decodes items and collects invalid ones."""

    def __init__(self, signal: _Signal) -> None:
        self._signal = signal
        self.undecodable = 0
        self.detail = ""
        self.left_out: list[Json] = []

    def request(self, root: object) -> object:
        json_name, name = self._signal.resources
        return self._signal.request(**{name: [self._resource(item) for item in _list(_object(root), json_name)]})

    def _resource(self, data: object) -> object:
        source, (json_name, name) = _object(data), self._signal.scopes
        invalid: list[Json] = []
        scopes = [self._scope(item, invalid) for item in _list(source, json_name)]
        if invalid:
            self.left_out.append({**source, json_name: invalid})
        context = parse_json(Resource, _object(source.get("resource")))
        return self._signal.resource(resource=context, schema_url=_schema_url(source), **{name: scopes})

    def _scope(self, data: object, invalid_scopes: list[Json]) -> object:
        source, (json_name, name) = _object(data), self._signal.items
        items: list[object] = []
        invalid: list[object] = []
        for item in _list(source, json_name):
            try:
                items.append(parse_json(self._signal.item, _with_base64_ids(_object(item))))
            except _FAULTS as error:
                invalid.append(item)
                self.detail = self.detail or str(error)
        self.undecodable += len(invalid)
        if invalid:
            invalid_scopes.append({**source, json_name: invalid})
        context = parse_json(InstrumentationScope, _object(source.get("scope")))
        return self._signal.scope(scope=context, schema_url=_schema_url(source), **{name: items})


def decode_traces(body: bytes) -> Decoded:
    """Decode an OTLP/JSON trace request.

    Raises:
        MalformedError: The body is not JSON, or its envelope is invalid.
    """
    return _decode(body, _TRACES)


def decode_logs(body: bytes) -> Decoded:
    """Decode an OTLP/JSON log request.

    Raises:
        MalformedError: As `decode_traces`.
    """
    return _decode(body, _LOGS)


def _decode(body: bytes, signal: _Signal) -> Decoded:
    decoder = _Decoder(signal)
    try:
        request = decoder.request(_load(body))
        left_out = json.dumps({signal.resources[0]: decoder.left_out}).encode() if decoder.left_out else b""
    except _FAULTS as error:
        raise MalformedError(f"JSON of {len(body)} bytes: {error}") from error
    return Decoded(serialize(request), decoder.undecodable, left_out, decoder.detail)


def _load(body: bytes) -> object:
    """Return the JSON value; invalid UTF-8 and lone surrogates in escapes become U+FFFD."""
    return load_json(body.decode("utf-8", "replace") or "{}")


def _with_base64_ids(item: Json) -> Json:
    ids = {name: _base64_id(name, item[name]) for name in _IDS if item.get(name)}
    links = [_with_base64_ids(_object(link)) for link in _list(item, "links")]
    return {**item, **ids, "links": links} if links else {**item, **ids}


def _base64_id(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name} is {_kind(value)}, expected hex text")
    try:
        return base64.b64encode(binascii.unhexlify(value)).decode()
    except ValueError as error:
        raise ValueError(f"{name} {value[:40]!r} is no hex: {error}") from error


def _schema_url(data: Json) -> str:
    value = data.get("schemaUrl")
    return value if isinstance(value, str) else ""


def _object(value: object) -> Json:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise TypeError(f"got {_kind(value)}, expected an object")
    return cast("Json", value)


def _list(data: Json, name: str) -> list[object]:
    value = data.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise TypeError(f"{name} is {_kind(value)}, expected an array")
    return cast("list[object]", value)


def _kind(value: object) -> str:
    return f"{type(value).__name__} {str(value)[:40]!r}"


_TRACES: Final = _Signal(
    ("resourceSpans", "resource_spans"), ("scopeSpans", "scope_spans"), ("spans", "spans"),
    ExportTraceServiceRequest, ResourceSpans, ScopeSpans, Span,
)  # fmt: skip
_LOGS: Final = _Signal(
    ("resourceLogs", "resource_logs"), ("scopeLogs", "scope_logs"), ("logRecords", "log_records"),
    ExportLogsServiceRequest, ResourceLogs, ScopeLogs, LogRecord,
)  # fmt: skip
