"""OTLP/JSON requests as protobuf ones, which then take the same road.

OTLP/JSON is protobuf's JSON mapping with two differences: ids are hex (of either case) instead of base64, and unknown
fields are ignored. Invariant: one item that is wrong costs itself only: it is left out, and `Decoded.left_out` holds
it as JSON, in its envelope.
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

from .wire import MalformedError, parse_json, serialize

_FAULTS: Final = (ValueError, TypeError, RecursionError)
"""What a wrong item raises, here or in the runtime."""
_IDS: Final = ("traceId", "spanId", "parentSpanId")
Json: TypeAlias = Mapping[str, object]


class Decoded(NamedTuple):
    """A JSON request as protobuf."""

    body: bytes
    undecodable: int
    """Items that are not in the body."""
    left_out: bytes
    """Those items as a JSON request of their own; empty when there are none."""
    detail: str
    """What was wrong with the first of them."""


class _Signal(NamedTuple):
    """JSON names, field names and makers of one signal; traces and logs have the same envelope."""

    resources: tuple[str, str]
    scopes: tuple[str, str]
    items: tuple[str, str]
    request: Callable[..., object]
    resource: Callable[..., object]
    scope: Callable[..., object]
    item: type[Span] | type[LogRecord]


class _Walk:
    """One pass over a request: what could be read, and what could not."""

    def __init__(self, signal: _Signal) -> None:
        self._signal = signal
        self.undecodable = 0
        self.detail = ""
        self.left_out: list[Json] = []

    def request(self, root: object) -> object:
        json_name, name = self._signal.resources
        return self._signal.request(**{name: [self._resource(each) for each in _list(_object(root), json_name)]})

    def _resource(self, data: object) -> object:
        source, (json_name, name) = _object(data), self._signal.scopes
        bad: list[Json] = []
        scopes = [self._scope(each, bad) for each in _list(source, json_name)]
        if bad:
            self.left_out.append({**source, json_name: bad})
        context = parse_json(Resource, _object(source.get("resource")))
        return self._signal.resource(resource=context, schema_url=_schema_url(source), **{name: scopes})

    def _scope(self, data: object, bad_scopes: list[Json]) -> object:
        source, (json_name, name) = _object(data), self._signal.items
        good: list[object] = []
        bad: list[object] = []
        for each in _list(source, json_name):
            try:
                good.append(parse_json(self._signal.item, _with_base64_ids(_object(each))))
            except _FAULTS as error:
                bad.append(each)
                self.detail = self.detail or str(error)
        self.undecodable += len(bad)
        if bad:
            bad_scopes.append({**source, json_name: bad})
        context = parse_json(InstrumentationScope, _object(source.get("scope")))
        return self._signal.scope(scope=context, schema_url=_schema_url(source), **{name: good})


def decode_traces(body: bytes) -> Decoded:
    """An OTLP/JSON trace request as protobuf.

    Raises:
        MalformedError: No JSON, or no such request: its envelope is wrong.
    """
    return _decode(body, _TRACES)


def decode_logs(body: bytes) -> Decoded:
    """An OTLP/JSON log request as protobuf.

    Raises:
        MalformedError: As `decode_traces`.
    """
    return _decode(body, _LOGS)


def _decode(body: bytes, signal: _Signal) -> Decoded:
    walk = _Walk(signal)
    try:
        request = walk.request(_load(body))
        left_out = json.dumps({signal.resources[0]: walk.left_out}).encode() if walk.left_out else b""
    except _FAULTS as error:
        raise MalformedError(f"JSON of {len(body)} bytes: {error}") from error
    return Decoded(serialize(request), walk.undecodable, left_out, walk.detail)


def _load(body: bytes) -> object:
    """The JSON value; what is no UTF-8, and a lone surrogate that an escape wrote, becomes U+FFFD."""
    text = body.decode("utf-8", "replace") or "{}"
    found: object = json.loads(text)
    if "\\ud" not in text.lower():
        return found
    whole = json.dumps(found, ensure_ascii=False).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return json.loads(whole)


def _with_base64_ids(item: Json) -> Json:
    ids = {name: _base64_id(name, item[name]) for name in _IDS if item.get(name)}
    links = [_with_base64_ids(_object(each)) for each in _list(item, "links")]
    return {**item, **ids, "links": links} if links else {**item, **ids}


def _base64_id(name: str, found: object) -> str:
    if not isinstance(found, str):
        raise TypeError(f"{name} is {_kind(found)}, expected hex text")
    try:
        return base64.b64encode(binascii.unhexlify(found)).decode()
    except ValueError as error:
        raise ValueError(f"{name} {found[:40]!r} is no hex: {error}") from error


def _schema_url(data: Json) -> str:
    found = data.get("schemaUrl")
    return found if isinstance(found, str) else ""


def _object(found: object) -> Json:
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise TypeError(f"got {_kind(found)}, expected an object")
    return cast("Json", found)


def _list(data: Json, name: str) -> list[object]:
    found = data.get(name)
    if found is None:
        return []
    if not isinstance(found, list):
        raise TypeError(f"{name} is {_kind(found)}, expected an array")
    return cast("list[object]", found)


def _kind(found: object) -> str:
    return f"{type(found).__name__} {str(found)[:40]!r}"


_TRACES: Final = _Signal(
    ("resourceSpans", "resource_spans"), ("scopeSpans", "scope_spans"), ("spans", "spans"),
    ExportTraceServiceRequest, ResourceSpans, ScopeSpans, Span,
)  # fmt: skip
_LOGS: Final = _Signal(
    ("resourceLogs", "resource_logs"), ("scopeLogs", "scope_logs"), ("logRecords", "log_records"),
    ExportLogsServiceRequest, ResourceLogs, ScopeLogs, LogRecord,
)  # fmt: skip
