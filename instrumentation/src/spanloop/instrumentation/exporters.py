"""The OTLP/HTTP exporters of spans and log events.

Invariant: a batch is encoded by OpenTelemetry's own encoder and split until each request fits, because processors
count records and one span can carry a megabyte of messages; a record that cannot be encoded costs itself only.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Generic, TypeVar

from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk._logs.export import LogRecordExporter, LogRecordExportResult
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from spanloop.instrumentation.endpoint import OtlpSettings
from spanloop.instrumentation.guard import guard, report
from spanloop.instrumentation.sender import Rejected, Sender

MAX_REQUEST_BYTES: Final = 16 << 20
"""Before compression; receivers commonly refuse more than 64 MiB."""

_NONE_REJECTED: Final = Rejected(0, "")

T = TypeVar("T")


class _Pipe(Generic[T]):
    """Encodes batches, splits them and hands them to the sender."""

    def __init__(self, sender: Sender, encode: Callable[[Sequence[T]], bytes]) -> None:
        self.sender = sender
        self._encode = encode

    def export(self, batch: Sequence[T]) -> bool:
        outcomes = [self.sender.send(body) for body in self._bodies(batch)]  # one lost request must not stop the next
        return all(outcomes)

    def _bodies(self, batch: Sequence[T]) -> Iterator[bytes]:
        waiting: list[Sequence[T]] = [batch]
        while waiting:
            part = waiting.pop()
            try:
                body = self._encode(part)
            except Exception as error:  # noqa: BLE001  one bad record in a batch
                if len(part) == 1:
                    report("one record cannot be encoded", error)
                    continue
                body = b""
            if len(part) > 1 and (not body or len(body) > MAX_REQUEST_BYTES):
                middle = len(part) // 2
                waiting += [part[middle:], part[:middle]]
            elif body:
                yield body


class SpanloopSpanExporter(SpanExporter):
    """Sends spans to the collector."""

    def __init__(self, settings: OtlpSettings) -> None:
        self.sender = Sender(settings, _rejected_spans)
        self._pipe = _Pipe[ReadableSpan](self.sender, lambda spans: encode_spans(spans).SerializeToString())

    @guard("spans were not exported", SpanExportResult.FAILURE)
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send one batch; returns when it is acknowledged or lost."""
        return SpanExportResult.SUCCESS if self._pipe.export(spans) else SpanExportResult.FAILURE

    def shutdown(self) -> None:
        """Give up whatever is under way."""
        self.sender.close()

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """Nothing is buffered."""
        del timeout_millis
        return True


class SpanloopLogExporter(LogRecordExporter):
    """Sends log events to the collector."""

    def __init__(self, settings: OtlpSettings) -> None:
        self.sender = Sender(settings, _rejected_logs)
        self._pipe = _Pipe[ReadableLogRecord](self.sender, lambda records: encode_logs(records).SerializeToString())

    @guard("log events were not exported", LogRecordExportResult.FAILURE)
    def export(self, batch: Sequence[ReadableLogRecord]) -> LogRecordExportResult:
        """Send one batch; returns when it is acknowledged or lost."""
        return LogRecordExportResult.SUCCESS if self._pipe.export(batch) else LogRecordExportResult.FAILURE

    def shutdown(self) -> None:
        """Give up whatever is under way."""
        self.sender.close()

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """Nothing is buffered."""
        del timeout_millis
        return True


@guard("the collector's answer cannot be read", _NONE_REJECTED)
def _rejected_spans(body: bytes) -> Rejected:
    partial: Any = ExportTraceServiceResponse.FromString(body).partial_success
    return Rejected(partial.rejected_spans, partial.error_message)


@guard("the collector's answer cannot be read", _NONE_REJECTED)
def _rejected_logs(body: bytes) -> Rejected:
    partial: Any = ExportLogsServiceResponse.FromString(body).partial_success
    return Rejected(partial.rejected_log_records, partial.error_message)
