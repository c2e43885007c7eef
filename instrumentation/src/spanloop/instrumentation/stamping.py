"""Processors that set the current attempt's attributes on every span and log event.

Invariant: attributes that the app or an instrumentor set are never overwritten, and a failure loses these attributes,
not the span. Apps that set up OpenTelemetry themselves can add these processors to their own providers.
"""

from opentelemetry.context import Context
from opentelemetry.sdk._logs import LogRecordProcessor, ReadWriteLogRecord
from opentelemetry.sdk.trace import Span, SpanProcessor

from spanloop.instrumentation.attempts import attempt_in
from spanloop.instrumentation.exception_guard import guard


class AttemptSpanProcessor(SpanProcessor):
    """Sets the attributes when a span starts."""

    @guard("a span was not stamped with its task", None)
    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Add the attempt's attributes that ``span`` does not have yet."""
        attempt = attempt_in(parent_context)
        if attempt is None:
            return
        present = span.attributes or {}
        for name, value in attempt.attributes().items():
            if name not in present:
                span.set_attribute(name, value)


class AttemptLogProcessor(LogRecordProcessor):
    """Sets the attributes when a log event is emitted."""

    @guard("a log event was not stamped with its task", None)
    def on_emit(self, log_record: ReadWriteLogRecord) -> None:
        """Add the attempt's attributes that ``log_record`` does not have yet."""
        record = log_record.log_record
        attempt = attempt_in(record.context)
        if attempt is not None:
            record.attributes = {**attempt.attributes(), **(record.attributes or {})}

    def shutdown(self) -> None:
        """Nothing is buffered."""

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """Nothing is buffered."""
        del timeout_millis
        return True
