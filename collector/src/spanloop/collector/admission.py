"""The door: decides what of a request is accepted, before anything is stored or answered.

Invariant: accepted + rejected = the items of the request. Every accepted item can be represented in ClickHouse; an
item that cannot is counted under its reason and never costs its neighbours. An accepted body parses again.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, MutableSequence
from enum import StrEnum
from typing import Final, NamedTuple, TypeVar

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from .redaction import drop_from_logs, drop_from_traces, may_leak
from .salvage import salvage
from .wire import MalformedError, parse, serialize

_Request = TypeVar("_Request", ExportTraceServiceRequest, ExportLogsServiceRequest)
_Item = TypeVar("_Item", Span, LogRecord)
_TRACE_ID_BYTES: Final = 16
_SPAN_ID_BYTES: Final = 8
_ZERO_TRACE_ID: Final = bytes(_TRACE_ID_BYTES)
_ZERO_SPAN_ID: Final = bytes(_SPAN_ID_BYTES)
_TIME_LIMIT_NS: Final = 2**32 * 10**9
"""2106-02-07: the table's key and TTL count seconds in 32 bits; later times would wrap, and expire at once."""


class Signal(StrEnum):
    """What a request carries; also the ``kind`` of its record in the spool."""

    TRACES = "traces"
    LOGS = "logs"


class RejectReason(StrEnum):
    """Why an item was not accepted."""

    BAD_TRACE_ID = "bad_trace_id"
    BAD_SPAN_ID = "bad_span_id"
    BAD_PARENT_SPAN_ID = "bad_parent_span_id"
    TIMESTAMP_OUT_OF_RANGE = "timestamp_out_of_range"
    UNDECODABLE = "undecodable"


class Admission(NamedTuple):
    """What the door let in."""

    body: bytes
    """The accepted items as a request of the same signal; the request itself when nothing had to change."""
    accepted: int
    rejected: Mapping[RejectReason, int]
    repaired: int
    """Items (and resources) whose bad UTF-8 was replaced."""
    dropped_attributes: int
    """Attributes removed because they are known to carry secrets."""

    @property
    def rejected_total(self) -> int:
        """Items that were not accepted."""
        return sum(self.rejected.values())


def admit(signal: Signal, body: bytes) -> Admission:
    """Check one decompressed request.

    Raises:
        MalformedError: It is no request of this signal at all.
    """
    return _admit_traces(body) if signal is Signal.TRACES else _admit_logs(body)


def _admit_traces(body: bytes) -> Admission:
    request, body, repaired, rejected = _open(ExportTraceServiceRequest, body)
    scopes = (scope_spans for resource_spans in request.resource_spans for scope_spans in resource_spans.scope_spans)
    accepted = sum(_sift(scope_spans.spans, _span_fault, rejected) for scope_spans in scopes)
    dropped = drop_from_traces(request) if may_leak(body) else 0
    return _admission(request, body, accepted=accepted, rejected=rejected, repaired=repaired, dropped=dropped)


def _admit_logs(body: bytes) -> Admission:
    request, body, repaired, rejected = _open(ExportLogsServiceRequest, body)
    scopes = (scope_logs for resource_logs in request.resource_logs for scope_logs in resource_logs.scope_logs)
    accepted = sum(_sift(scope_logs.log_records, _log_fault, rejected) for scope_logs in scopes)
    dropped = drop_from_logs(request) if may_leak(body) else 0
    return _admission(request, body, accepted=accepted, rejected=rejected, repaired=repaired, dropped=dropped)


def _open(request_type: type[_Request], body: bytes) -> tuple[_Request, bytes, int, Counter[RejectReason]]:
    """The request, the body that it was parsed from, how much of it was repaired, and what was rejected."""
    try:
        return parse(request_type, body), body, 0, Counter()
    except MalformedError:
        body, repaired, undecodable = salvage(body, request_type)
    return parse(request_type, body), body, repaired, Counter({RejectReason.UNDECODABLE: undecodable})


def _sift(
    items: MutableSequence[_Item], fault_of: Callable[[_Item], RejectReason | None], rejected: Counter[RejectReason]
) -> int:
    """Take the faulty items out; returns how many stay."""
    faults = {at: fault for at, item in enumerate(items) if (fault := fault_of(item)) is not None}
    rejected.update(faults.values())
    for at in reversed(faults):
        del items[at]
    return len(items)


def _admission(
    request: ExportTraceServiceRequest | ExportLogsServiceRequest,
    body: bytes,
    *,
    accepted: int,
    rejected: Counter[RejectReason],
    repaired: int,
    dropped: int,
) -> Admission:
    counts = {reason: count for reason, count in rejected.items() if count}
    is_changed = dropped or any(reason is not RejectReason.UNDECODABLE for reason in counts)
    return Admission(serialize(request) if is_changed else body, accepted, counts, repaired, dropped)


def _span_fault(span: Span) -> RejectReason | None:
    if len(span.trace_id) != _TRACE_ID_BYTES or span.trace_id == _ZERO_TRACE_ID:
        return RejectReason.BAD_TRACE_ID
    if len(span.span_id) != _SPAN_ID_BYTES or span.span_id == _ZERO_SPAN_ID:
        return RejectReason.BAD_SPAN_ID
    if len(span.parent_span_id) not in {0, _SPAN_ID_BYTES}:
        return RejectReason.BAD_PARENT_SPAN_ID
    times = (span.start_time_unix_nano, *(event.time_unix_nano for event in span.events))
    return _time_fault(times)


def _log_fault(record: LogRecord) -> RejectReason | None:
    # A log record need not belong to a span.
    if len(record.trace_id) not in {0, _TRACE_ID_BYTES}:
        return RejectReason.BAD_TRACE_ID
    if len(record.span_id) not in {0, _SPAN_ID_BYTES}:
        return RejectReason.BAD_SPAN_ID
    return _time_fault((record.time_unix_nano or record.observed_time_unix_nano,))


def _time_fault(times_ns: Iterable[int]) -> RejectReason | None:
    return RejectReason.TIMESTAMP_OUT_OF_RANGE if max(times_ns) >= _TIME_LIMIT_NS else None
