"""The OTLP/HTTP exporters of spans and log events.

Invariant: a batch is encoded by OpenTelemetry's own encoder and split until each request fits, because processors
count records and one span can carry a megabyte of messages; only a record that cannot be encoded is lost.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeVar

from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk._logs.export import LogRecordExporter, LogRecordExportResult
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from spanloop.instrumentation.exception_guard import guard, report
from spanloop.instrumentation.sending.endpoint import OtlpSettings
from spanloop.instrumentation.sending.sender import Rejected, Sender

MAX_REQUEST_BYTES: Final = 16 << 20
"""Before compression; receivers commonly reject more than 64 MiB."""

_NONE_REJECTED: Final = Rejected(0, "")

T = TypeVar("T")


def encode_in_chunks(batch: Sequence[T], encode: Callable[[Sequence[T]], bytes], limit_bytes: int) -> Iterator[bytes]:
    """Encode ``batch`` as one body, or halve it until every body has at most ``limit_bytes``.

    A single record may be larger: the receiver decides whether it is too large. A record that ``encode`` fails on is
    reported and left out.
    """
    pending: list[Sequence[T]] = [batch] if batch else []
    while pending:
        chunk = pending.pop()
        body = _encoded(chunk, encode)
        if len(chunk) > 1 and (body is None or len(body) > limit_bytes):
            middle = len(chunk) // 2
            pending += [chunk[middle:], chunk[:middle]]
        elif body is not None:
            yield body


def _encoded(chunk: Sequence[T], encode: Callable[[Sequence[T]], bytes]) -> bytes | None:
    try:
        return encode(chunk)
    except Exception as error:  # noqa: BLE001  one bad record in a batch
        if len(chunk) == 1:
            report("one record cannot be encoded", error)
        return None


def _send_all(sender: Sender, bodies: Iterator[bytes]) -> bool:
    outcomes = [sender.send(body) for body in bodies]  # one lost request must not stop the next
    return all(outcomes)


class SpanloopSpanExporter(SpanExporter):
    """Sends spans to the collector."""

    def __init__(self, settings: OtlpSettings) -> None:
        self.sender = Sender(settings, _rejected_spans)

    @guard("spans were not exported", SpanExportResult.FAILURE)
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send one batch; returns when it is acknowledged or lost."""
        bodies = encode_in_chunks(spans, lambda chunk: encode_spans(chunk).SerializeToString(), MAX_REQUEST_BYTES)
        return SpanExportResult.SUCCESS if _send_all(self.sender, bodies) else SpanExportResult.FAILURE

    def shutdown(self) -> None:
        """Abort requests in flight."""
        self.sender.close()

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """Nothing is buffered."""
        del timeout_millis
        return True


class SpanloopLogExporter(LogRecordExporter):
    """Sends log events to the collector."""

    def __init__(self, settings: OtlpSettings) -> None:
        self.sender = Sender(settings, _rejected_logs)

    @guard("log events were not exported", LogRecordExportResult.FAILURE)
    def export(self, batch: Sequence[ReadableLogRecord]) -> LogRecordExportResult:
        """Send one batch; returns when it is acknowledged or lost."""
        bodies = encode_in_chunks(batch, lambda chunk: encode_logs(chunk).SerializeToString(), MAX_REQUEST_BYTES)
        return LogRecordExportResult.SUCCESS if _send_all(self.sender, bodies) else LogRecordExportResult.FAILURE

    def shutdown(self) -> None:
        """Abort requests in flight."""
        self.sender.close()

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """Nothing is buffered."""
        del timeout_millis
        return True


@guard("the collector's response cannot be read", _NONE_REJECTED)
def _rejected_spans(body: bytes) -> Rejected:
    partial: Any = ExportTraceServiceResponse.FromString(body).partial_success
    return Rejected(partial.rejected_spans, partial.error_message)


@guard("the collector's response cannot be read", _NONE_REJECTED)
def _rejected_logs(body: bytes) -> Rejected:
    partial: Any = ExportLogsServiceResponse.FromString(body).partial_success
    return Rejected(partial.rejected_log_records, partial.error_message)
