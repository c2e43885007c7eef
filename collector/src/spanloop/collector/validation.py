"""The door: decides what of a request is accepted, before anything is stored or answered.

Invariant: accepted + rejected = the items of the request. Every accepted item can be represented in ClickHouse; an
item that cannot is counted under its reason, kept as a dead letter, and never costs its neighbours. An accepted body
parses again.
"""

from collections.abc import Callable, Iterator, Mapping, MutableSequence
from itertools import count
from typing import Final, NamedTuple, TypeAlias, cast

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from .dead_letters import DeadLetter, RejectReason, Signal, first_ids
from .otlp.clickhouse_encoding import for_clickhouse, tidy
from .otlp.json_encoding import decode_logs, decode_traces
from .otlp.schema import SHALLOW_REQUEST
from .otlp.wire import MalformedError, parse, serialize
from .protobuf_repair import salvage
from .redaction import Hits, Redactor, by_rule

__all__ = [
    "JSON",
    "PROTOBUF",
    "RejectReason",
    "Signal",
    "Validation",
    "letter_of_items",
    "malformed_letter",
    "validate_request",
]

PROTOBUF: Final = "application/x-protobuf"
JSON: Final = "application/json"
_Request: TypeAlias = ExportTraceServiceRequest | ExportLogsServiceRequest
_Item: TypeAlias = Span | LogRecord
_TRACE_ID_BYTES: Final = 16
_SPAN_ID_BYTES: Final = 8
_ZERO_TRACE_ID: Final = bytes(_TRACE_ID_BYTES)
_ZERO_SPAN_ID: Final = bytes(_SPAN_ID_BYTES)
_TIME_LIMIT_NS: Final = 2**32 * 10**9
"""2106-02-07: the table's key and TTL count seconds in 32 bits; later times would wrap, and expire at once."""
_KNOWN_LEAKS_ONLY: Final = Redactor()
_EXPECTED: Final[Mapping[RejectReason, str]] = {
    RejectReason.BAD_TRACE_ID: "expected a trace id of 16 bytes that are not all zero",
    RejectReason.BAD_SPAN_ID: "expected a span id of 8 bytes that are not all zero",
    RejectReason.BAD_PARENT_SPAN_ID: "expected a parent span id of 8 bytes, or none",
    RejectReason.TIMESTAMP_OUT_OF_RANGE: "expected nanoseconds since 1970 that are before 2106-02-07",
}


class Validation(NamedTuple):
    """What the door let in."""

    body: bytes
    """The accepted items as a protobuf request of the same signal, spans in the form that ClickHouse reads (`tidy`);
    the request itself when nothing had to change."""
    accepted: int
    rejected: Mapping[RejectReason, int]
    repaired: int
    """Items (and resources) whose bad UTF-8 was replaced."""
    redacted: Mapping[str, int]
    """Values that were dropped or masked, by the rule's name."""
    dead_letters: tuple[DeadLetter, ...] = ()
    """The rejected items, one letter for each reason."""

    @property
    def rejected_total(self) -> int:
        """Items that were not accepted."""
        return sum(self.rejected.values())


class _Opened(NamedTuple):
    """A body that parses, and what it took."""

    body: bytes
    request: _Request
    repaired: int
    letters: tuple[DeadLetter, ...]


def validate_request(
    signal: Signal, body: bytes, content_type: str = PROTOBUF, *, redactor: Redactor = _KNOWN_LEAKS_ONLY
) -> Validation:
    """Check one decompressed request.

    Args:
        signal: What the sender says it is.
        body: The request.
        content_type: `PROTOBUF` or `JSON`.
        redactor: What nobody may store; default the known leaks.

    Raises:
        MalformedError: It is no request of this signal at all.
    """
    if signal is Signal.TRACES and content_type == PROTOBUF:
        validation = _admit_faultless(body, redactor)
        if validation is not None:
            return validation
    opened = _open_json(signal, body, redactor) if content_type == JSON else _open(signal, body, redactor)
    request = opened.request
    redacted = by_rule(redactor.redact(request) if redactor.may_hit(opened.body) else Hits())
    reasons = {fault for items in _item_lists(request) for item in items if (fault := _fault(item)) is not None}
    letters = [*opened.letters, *(_letter(signal, request, reason) for reason in sorted(reasons))]
    if reasons:
        _keep(request, lambda item: _fault(item) is None)
    return Validation(
        body=_accepted_body(request, opened.body, is_changed=bool(redacted or reasons)),
        accepted=sum(len(items) for items in _item_lists(request)),
        rejected={letter.reason: letter.item_count for letter in letters},
        repaired=opened.repaired,
        redacted=redacted,
        dead_letters=tuple(letters),
    )


def _admit_faultless(body: bytes, redactor: Redactor) -> Validation | None:
    """The same for spans that have no fault and nothing to redact, as nearly all; None for others."""
    if redactor.may_hit(body):
        return None
    try:
        request = parse(SHALLOW_REQUEST, body)
        spans = 0
        for items in _span_lists(request):
            spans += len(items)
            for span in items:
                if _span_fault(span) is not None:
                    return None
        tidied = for_clickhouse(request, body)
    except MalformedError:
        return None
    return Validation(tidied, spans, {}, 0, {})


def _accepted_body(request: _Request, body: bytes, *, is_changed: bool) -> bytes:
    if isinstance(request, ExportTraceServiceRequest):
        tidied = tidy(serialize(request)).body
        return body if tidied == body else tidied
    return serialize(request) if is_changed else body


def malformed_letter(
    signal: Signal,
    body: bytes,
    content_type: str,
    error: MalformedError,
    *,
    redactor: Redactor = _KNOWN_LEAKS_ONLY,
) -> DeadLetter:
    """The dead letter of a whole body that `validate_request` refused."""
    return _raw_letter(
        signal, RejectReason.MALFORMED_BODY, str(error), content_type, body, redactor=redactor, item_count=0
    )


def letter_of_items(signal: Signal, request: _Request, reason: RejectReason, detail: str) -> DeadLetter:
    """The dead letter of every item of a request."""
    spans = [item for items in _item_lists(request) for item in items]
    return DeadLetter(
        signal=signal,
        reason=reason,
        detail=detail,
        content_type=PROTOBUF,
        raw=serialize(request),
        item_count=len(spans),
        trace_ids=first_ids([span.trace_id for span in spans]),
        span_ids=first_ids([span.span_id for span in spans]),
    )


def count_items(signal: Signal, body: bytes) -> int:
    """Spans or log records of a body; none when it is no request: the writer has left that one out."""
    try:
        return sum(len(items) for items in _item_lists(parse(_REQUESTS[signal], body)))
    except MalformedError:
        return 0


def pick(signal: Signal, body: bytes, at: int) -> _Request:
    """One item of a request that parses, in its envelope; ``at`` counts from 0."""
    request = parse(_REQUESTS[signal], body)
    numbers = count()
    _keep(request, lambda _: next(numbers) == at)
    return request


def _open(signal: Signal, body: bytes, redactor: Redactor) -> _Opened:
    request_type = _REQUESTS[signal]
    try:
        return _Opened(body, parse(request_type, body), 0, ())
    except MalformedError:
        salvaged = salvage(body, request_type)
    letters: tuple[DeadLetter, ...] = ()
    if salvaged.undecodable:
        detail = "expected protobuf that the runtime reads: whole fields, values nested at most some 45 deep"
        letters = (
            _raw_letter(
                signal,
                RejectReason.UNDECODABLE,
                detail,
                PROTOBUF,
                salvaged.left_out,
                redactor=redactor,
                item_count=salvaged.undecodable,
            ),
        )
    return _Opened(salvaged.body, parse(request_type, salvaged.body), salvaged.repaired, letters)


def _open_json(signal: Signal, body: bytes, redactor: Redactor) -> _Opened:
    decoded = decode_traces(body) if signal is Signal.TRACES else decode_logs(body)
    opened = _open(signal, decoded.body, redactor)
    if not decoded.undecodable:
        return opened
    letter = _raw_letter(
        signal, RejectReason.UNDECODABLE, decoded.detail, JSON, decoded.left_out, redactor=redactor,
        item_count=decoded.undecodable,
    )  # fmt: skip
    return opened._replace(letters=(letter, *opened.letters))


def _raw_letter(
    signal: Signal,
    reason: RejectReason,
    detail: str,
    content_type: str,
    raw: bytes,
    *,
    redactor: Redactor,
    item_count: int,
) -> DeadLetter:
    """A letter of bytes that nobody could read, and so nobody could redact."""
    if redactor.may_hit_unread(raw):
        # The detail quotes from it.
        detail, raw = f"withheld: {len(raw)} bytes that may hold what is to be redacted", b""
    return DeadLetter(signal, reason, detail, content_type, raw, item_count)


def _letter(signal: Signal, request: _Request, reason: RejectReason) -> DeadLetter:
    """The items that have this fault, in their envelope."""
    only = _REQUESTS[signal]()
    only.MergeFromString(serialize(request))
    _keep(only, lambda item: _fault(item) is reason)
    first = next(item for items in _item_lists(only) for item in items)
    return letter_of_items(signal, only, reason, f"{_EXPECTED[reason]}; got {_got(first, reason)}")


def _keep(request: _Request, is_kept: Callable[[_Item], bool]) -> None:
    for items in _item_lists(request):
        kept = [item for item in items if is_kept(item)]
        if len(kept) < len(items):
            # All at once: taking many out one by one moves the rest as many times.
            del items[:]
            items.extend(kept)


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


def _fault(item: _Item) -> RejectReason | None:
    return _span_fault(item) if isinstance(item, Span) else _log_fault(item)


def _span_fault(span: Span) -> RejectReason | None:
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


def _log_fault(record: LogRecord) -> RejectReason | None:
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


def _got(item: _Item, reason: RejectReason) -> str:
    """What the first faulty item has instead."""
    if reason is RejectReason.TIMESTAMP_OUT_OF_RANGE:
        return str(max(_span_times(item)) if isinstance(item, Span) else _log_time(item))
    if reason is RejectReason.BAD_PARENT_SPAN_ID and isinstance(item, Span):
        found = item.parent_span_id
    else:
        found = item.trace_id if reason is RejectReason.BAD_TRACE_ID else item.span_id
    return f"{len(found)} bytes, hex {found[:32].hex() or 'none'}"


_REQUESTS: Final[Mapping[Signal, type[ExportTraceServiceRequest] | type[ExportLogsServiceRequest]]] = {
    Signal.TRACES: ExportTraceServiceRequest,
    Signal.LOGS: ExportLogsServiceRequest,
}
