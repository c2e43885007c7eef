"""Attributes that are known to carry secrets never get past the door.

OpenLLMetry writes a request's extra headers, ``Authorization`` included, into ``gen_ai.headers``, with content capture
off too. Invariant: no accepted body holds one of `LEAKING_KEYS` as an attribute key of a span, event, link or
log record.
"""

from collections.abc import MutableSequence
from typing import Final

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue

LEAKING_KEYS: Final = frozenset({"gen_ai.headers", "llm.headers"})
_LEAKING_BYTES: Final = tuple(key.encode() for key in LEAKING_KEYS)


def may_leak(body: bytes) -> bool:
    """False when no leaking key can be in the body: saves the walk through nearly all of them."""
    return any(key in body for key in _LEAKING_BYTES)


def drop_from_traces(request: ExportTraceServiceRequest) -> int:
    """Remove the leaking attributes in place; returns how many there were."""
    dropped = 0
    for resource_spans in request.resource_spans:
        dropped += _drop(resource_spans.resource.attributes)
        for scope_spans in resource_spans.scope_spans:
            dropped += _drop(scope_spans.scope.attributes)
            for span in scope_spans.spans:
                dropped += _drop(span.attributes)
                dropped += sum(_drop(event.attributes) for event in span.events)
                dropped += sum(_drop(link.attributes) for link in span.links)
    return dropped


def drop_from_logs(request: ExportLogsServiceRequest) -> int:
    """Remove the leaking attributes in place; returns how many there were."""
    dropped = 0
    for resource_logs in request.resource_logs:
        dropped += _drop(resource_logs.resource.attributes)
        for scope_logs in resource_logs.scope_logs:
            dropped += _drop(scope_logs.scope.attributes)
            dropped += sum(_drop(record.attributes) for record in scope_logs.log_records)
    return dropped


def _drop(attributes: MutableSequence[KeyValue]) -> int:
    leaking = [at for at, pair in enumerate(attributes) if pair.key in LEAKING_KEYS]
    for at in reversed(leaking):
        del attributes[at]
    return len(leaking)
