"""Validate OTLP requests: split their items into accepted and rejected ones, before anything is stored or acknowledged.

Invariant: accepted + rejected = the items of the request. Every accepted item can be represented in ClickHouse. Every
other item is counted under its reason and becomes a dead letter, and the rest of the request is accepted. An accepted
body parses again.
"""

from collections.abc import Callable, Iterator, Mapping, MutableSequence
from itertools import count
from typing import Final, NamedTuple, TypeAlias, cast

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from .dead_letters import DeadLetter, RejectReason, Signal, hex_ids
from .otlp.clickhouse_encoding import encode_body, encode_request
from .otlp.json_encoding import decode_logs, decode_traces
from .otlp.protobuf_repair import repair_request
from .otlp.schema import SHALLOW_REQUEST
from .otlp.wire import MalformedError, parse, serialize
from .redaction.redactor import RedactionCounts, Redactor, count_by_rule

__all__ = [
    "JSON", "PROTOBUF", "RejectReason", "Signal", "Validation", "dead_letter_of_body", "dead_letter_of_items",
    "validate_request",
]  # fmt: skip

PROTOBUF: Final = "application/x-protobuf"
JSON: Final = "application/json"
_Request: TypeAlias = ExportTraceServiceRequest | ExportLogsServiceRequest
_Item: TypeAlias = Span | LogRecord
_TRACE_ID_BYTES: Final = 16
_SPAN_ID_BYTES: Final = 8
_ZERO_TRACE_ID: Final = bytes(_TRACE_ID_BYTES)
_ZERO_SPAN_ID: Final = bytes(_SPAN_ID_BYTES)
_TIME_LIMIT_NS: Final = 2**32 * 10**9
"""2106-02-07: the table's key and TTL count seconds in 32 bits; later times would wrap and expire at once."""
_KNOWN_LEAKS_ONLY: Final = Redactor()
_EXPECTED: Final[Mapping[RejectReason, str]] = {
    RejectReason.BAD_TRACE_ID: "expected a trace id of 16 bytes that are not all zero",
    RejectReason.BAD_SPAN_ID: "expected a span id of 8 bytes that are not all zero",
    RejectReason.BAD_PARENT_SPAN_ID: "expected a parent span id of 8 bytes, or none",
    RejectReason.TIMESTAMP_OUT_OF_RANGE: "expected nanoseconds since 1970 that are before 2106-02-07",
}


class Validation(NamedTuple):
    """The result of validating a request."""

    body: bytes
    """The accepted items as a protobuf request of the same signal, spans encoded for ClickHouse (`encode_body`); the
    request itself when nothing had to change."""
    accepted: int
    rejected: Mapping[RejectReason, int]
    repaired: int
    """Items and resources whose invalid UTF-8 was replaced."""
    redacted: Mapping[str, int]
    """Values that were dropped or masked, by redaction rule."""
    dead_letters: tuple[DeadLetter, ...] = ()
    """The rejected items, one dead letter a reason."""

    @property
    def rejected_total(self) -> int:
        """Number of rejected items."""
        return sum(self.rejected.values())


class _ParsedBody(NamedTuple):
    """A body that parses, its request, and what was repaired or rejected on the way."""

    body: bytes
    request: _Request
    repaired: int
    dead_letters: tuple[DeadLetter, ...]


def validate_request(
    signal: Signal, body: bytes, content_type: str = PROTOBUF, *, redactor: Redactor = _KNOWN_LEAKS_ONLY
) -> Validation:
    """Validate one decompressed request.

    Args:
        signal: The signal of the route that received the request.
        body: The request.
        content_type: `PROTOBUF` or `JSON`.
        redactor: Removes secrets; the default removes the known leaks.

    Raises:
        MalformedError: The body is no request of this signal.
    """
    if signal is Signal.TRACES and content_type == PROTOBUF:
        validation = _validate_unchanged(body, redactor)
        if validation is not None:
            return validation
    parsed = _parse_json(signal, body, redactor) if content_type == JSON else _parse_protobuf(signal, body, redactor)
    request = parsed.request
    redacted = count_by_rule(redactor.redact(request) if redactor.may_match(parsed.body) else RedactionCounts())
    reasons = {fault for items in _item_lists(request) for item in items if (fault := _find_fault(item)) is not None}
    dead_letters = [*parsed.dead_letters, *(_dead_letter(signal, request, reason) for reason in sorted(reasons))]
    if reasons:
        _filter_items(request, lambda item: _find_fault(item) is None)
    return Validation(
        body=_accepted_body(request, parsed.body, is_changed=bool(redacted or reasons)),
        accepted=sum(len(items) for items in _item_lists(request)),
        rejected={dead_letter.reason: dead_letter.item_count for dead_letter in dead_letters},
        repaired=parsed.repaired,
        redacted=redacted,
        dead_letters=tuple(dead_letters),
    )


def _validate_unchanged(body: bytes, redactor: Redactor) -> Validation | None:
    """Validate spans that have no fault and nothing to redact, the common case; return None for others."""
    if redactor.may_match(body):
        return None
    try:
        request = parse(SHALLOW_REQUEST, body)
        spans = 0
        for items in _span_lists(request):
            spans += len(items)
            for span in items:
                if _find_span_fault(span) is not None:
                    return None
        encoded = encode_request(request, body)
    except MalformedError:
        return None
    return Validation(encoded, spans, {}, 0, {})


def _accepted_body(request: _Request, body: bytes, *, is_changed: bool) -> bytes:
    if isinstance(request, ExportTraceServiceRequest):
        encoded = encode_body(serialize(request)).body
        return body if encoded == body else encoded
    return serialize(request) if is_changed else body


def dead_letter_of_body(
    signal: Signal, body: bytes, content_type: str, error: MalformedError, *, redactor: Redactor = _KNOWN_LEAKS_ONLY
) -> DeadLetter:
    """Create the dead letter of a whole body for which `validate_request` raised."""
    return _dead_letter_of_bytes(
        signal, RejectReason.MALFORMED_BODY, str(error), content_type, body, redactor=redactor, item_count=0
    )


def dead_letter_of_items(signal: Signal, request: _Request, reason: RejectReason, detail: str) -> DeadLetter:
    """Create one dead letter of all items of a request."""
    flat_items = [item for items in _item_lists(request) for item in items]
    return DeadLetter(
        signal=signal,
        reason=reason,
        detail=detail,
        content_type=PROTOBUF,
        raw=serialize(request),
        item_count=len(flat_items),
        trace_ids=hex_ids([item.trace_id for item in flat_items]),
        span_ids=hex_ids([item.span_id for item in flat_items]),
    )


def count_items(signal: Signal, body: bytes) -> int:
    """Count the spans or log records of a body; 0 when it is no request, because such a record has no rows."""
    try:
        return sum(len(items) for items in _item_lists(parse(_REQUESTS[signal], body)))
    except MalformedError:
        return 0


def select_item(signal: Signal, body: bytes, index: int) -> _Request:
    """Return a request with one item of a request that parses, in its envelope; ``index`` starts at 0."""
    request = parse(_REQUESTS[signal], body)
    indexes = count()
    _filter_items(request, lambda _: next(indexes) == index)
    return request


def _parse_protobuf(signal: Signal, body: bytes, redactor: Redactor) -> _ParsedBody:
    request_type = _REQUESTS[signal]
    try:
        return _ParsedBody(body, parse(request_type, body), 0, ())
    except MalformedError:
        repaired = repair_request(body, request_type)
    dead_letters: tuple[DeadLetter, ...] = ()
    if repaired.undecodable:
        detail = "expected protobuf that the runtime parses: complete fields, values nested at most some 45 deep"
        dead_letter = _dead_letter_of_bytes(
            signal, RejectReason.UNDECODABLE, detail, PROTOBUF, repaired.left_out, redactor=redactor,
            item_count=repaired.undecodable,
        )  # fmt: skip
        dead_letters = (dead_letter,)
    return _ParsedBody(repaired.body, parse(request_type, repaired.body), repaired.repaired, dead_letters)


def _parse_json(signal: Signal, body: bytes, redactor: Redactor) -> _ParsedBody:
    decoded = decode_traces(body) if signal is Signal.TRACES else decode_logs(body)
    parsed = _parse_protobuf(signal, decoded.body, redactor)
    if not decoded.undecodable:
        return parsed
    dead_letter = _dead_letter_of_bytes(
        signal, RejectReason.UNDECODABLE, decoded.detail, JSON, decoded.left_out, redactor=redactor,
        item_count=decoded.undecodable,
    )  # fmt: skip
    return parsed._replace(dead_letters=(dead_letter, *parsed.dead_letters))


def _dead_letter_of_bytes(
    signal: Signal,
    reason: RejectReason,
    detail: str,
    content_type: str,
    raw: bytes,
    *,
    redactor: Redactor,
    item_count: int,
) -> DeadLetter:
    """Create a dead letter of bytes that cannot be parsed, and so cannot be redacted."""
    if redactor.may_match_escaped(raw):
        # The detail quotes the bytes.
        detail, raw = f"withheld: {len(raw)} bytes that may contain values to redact", b""
    return DeadLetter(signal, reason, detail, content_type, raw, item_count)


def _dead_letter(signal: Signal, request: _Request, reason: RejectReason) -> DeadLetter:
    """Create the dead letter of the items that have this fault, in their envelope."""
    faulty = _REQUESTS[signal]()
    faulty.MergeFromString(serialize(request))
    _filter_items(faulty, lambda item: _find_fault(item) is reason)
    first = next(item for items in _item_lists(faulty) for item in items)
    return dead_letter_of_items(signal, faulty, reason, f"{_EXPECTED[reason]}; got {_describe_fault(first, reason)}")


def _filter_items(request: _Request, is_selected: Callable[[_Item], bool]) -> None:
    for items in _item_lists(request):
        selected = [item for item in items if is_selected(item)]
        if len(selected) < len(items):
            # All at once: deleting many one by one moves the rest as many times.
            del items[:]
            items.extend(selected)


def _item_lists(request: _Request) -> Iterator[MutableSequence[_Item]]:
    if isinstance(request, ExportTraceServiceRequest):
        yield from cast("Iterator[MutableSequence[_Item]]", _span_lists(request))
    else:
        for resource_logs in request.resource_logs:
            for scope_logs in resource_logs.scope_logs:
                yield cast("MutableSequence[_Item]", scope_logs.log_records)


def _span_lists(request: ExportTraceServiceRequest) -> Iterator[MutableSequence[Span]]:
    for resource_spans in request.resource_spans:
        for scope_spans in resource_spans.scope_spans:
            yield scope_spans.spans


def _find_fault(item: _Item) -> RejectReason | None:
    return _find_span_fault(item) if isinstance(item, Span) else _find_log_fault(item)


def _find_span_fault(span: Span) -> RejectReason | None:
    if len(span.trace_id) != _TRACE_ID_BYTES or span.trace_id == _ZERO_TRACE_ID:
        return RejectReason.BAD_TRACE_ID
    if len(span.span_id) != _SPAN_ID_BYTES or span.span_id == _ZERO_SPAN_ID:
        return RejectReason.BAD_SPAN_ID
    if len(span.parent_span_id) not in {0, _SPAN_ID_BYTES}:
        return RejectReason.BAD_PARENT_SPAN_ID
    if span.start_time_unix_nano >= _TIME_LIMIT_NS:
        return RejectReason.TIMESTAMP_OUT_OF_RANGE
    for event in span.events:
        if event.time_unix_nano >= _TIME_LIMIT_NS:
            return RejectReason.TIMESTAMP_OUT_OF_RANGE
    return None


def _find_log_fault(record: LogRecord) -> RejectReason | None:
    # A log record need not belong to a span.
    if len(record.trace_id) not in {0, _TRACE_ID_BYTES}:
        return RejectReason.BAD_TRACE_ID
    if len(record.span_id) not in {0, _SPAN_ID_BYTES}:
        return RejectReason.BAD_SPAN_ID
    return RejectReason.TIMESTAMP_OUT_OF_RANGE if _log_time(record) >= _TIME_LIMIT_NS else None


def _span_times(span: Span) -> tuple[int, ...]:
    return (span.start_time_unix_nano, *(event.time_unix_nano for event in span.events))


def _log_time(record: LogRecord) -> int:
    return record.time_unix_nano or record.observed_time_unix_nano


def _describe_fault(item: _Item, reason: RejectReason) -> str:
    """Describe what a faulty item has instead."""
    if reason is RejectReason.TIMESTAMP_OUT_OF_RANGE:
        return str(max(_span_times(item)) if isinstance(item, Span) else _log_time(item))
    if reason is RejectReason.BAD_PARENT_SPAN_ID and isinstance(item, Span):
        actual_id = item.parent_span_id
    else:
        actual_id = item.trace_id if reason is RejectReason.BAD_TRACE_ID else item.span_id
    return f"{len(actual_id)} bytes, hex {actual_id[:32].hex() or 'none'}"


_REQUESTS: Final[Mapping[Signal, type[ExportTraceServiceRequest] | type[ExportLogsServiceRequest]]] = {
    Signal.TRACES: ExportTraceServiceRequest,
    Signal.LOGS: ExportLogsServiceRequest,
}
