"""Batch processors whose shutdown has a time limit.

Invariant: at exit all exporters together take at most ``EXIT_BUDGET_S``; a forked child never uses
its parent's connection.
"""

import os
import time
from typing import Final, Protocol, runtime_checkable

from opentelemetry.sdk._logs.export import BatchLogRecordProcessor, LogRecordExporter
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

from spanloop.instrumentation.exception_guard import guarded
from spanloop.instrumentation.sending.sender import Sender
from spanloop.semconv.environment import EXIT_TIMEOUT_ENV

_DEFAULT_EXIT_BUDGET_S: Final = 1.0
_LONGEST_EXIT_BUDGET_S: Final = 3600.0


def exit_budget_s(text: str) -> float:
    """Return the budget of ``SPANLOOP_EXIT_TIMEOUT_S`` in seconds, at most an hour; the default is one second."""
    try:
        seconds = float(text)
    except ValueError:
        return _DEFAULT_EXIT_BUDGET_S
    return seconds if 0 < seconds <= _LONGEST_EXIT_BUDGET_S else _DEFAULT_EXIT_BUDGET_S


EXIT_BUDGET_S: Final = exit_budget_s(os.environ.get(EXIT_TIMEOUT_ENV, ""))
_LEAST_JOIN_S: Final = 0.05
_SCHEDULE_DELAY_MS: Final = 1000  # with OpenTelemetry's 5 s, SIGKILL loses five seconds of spans


class ExitBudget:
    """One deadline for all exporters of the process; it starts at the first shutdown.

    An app may shut one provider down long before it ends; the others then get a new deadline.
    """

    def __init__(self) -> None:
        self._ends_at: float | None = None

    def remaining_s(self) -> float:
        """Return the rest of the budget; the first call starts the clock."""
        now = time.monotonic()
        if self._ends_at is None or now > self._ends_at + EXIT_BUDGET_S:
            self._ends_at = now + EXIT_BUDGET_S
        return max(self._ends_at - now, _LEAST_JOIN_S)


@runtime_checkable
class _HasSender(Protocol):
    sender: Sender


class _Stoppable(Protocol):
    def shutdown(self, timeout_millis: int = ...) -> None: ...


exit_budget: Final = ExitBudget()


def _shut_down(batches: _Stoppable, exporter: object) -> None:
    with guarded("telemetry was not flushed at exit"):
        if isinstance(exporter, _HasSender):
            exporter.sender.hurry()
        try:
            batches.shutdown(timeout_millis=int(exit_budget.remaining_s() * 1000))
        except KeyboardInterrupt:  # a second Ctrl-C ends the wait; without spanloop there is none
            return


def _reset_after_fork(exporter: object) -> None:
    if isinstance(exporter, _HasSender):
        os.register_at_fork(after_in_child=exporter.sender.after_fork)


class BoundedSpanProcessor(BatchSpanProcessor):
    """OpenTelemetry's batch processor with bounded shutdown."""

    def __init__(self, span_exporter: SpanExporter) -> None:
        delay_ms = None if "OTEL_BSP_SCHEDULE_DELAY" in os.environ else _SCHEDULE_DELAY_MS
        super().__init__(span_exporter, schedule_delay_millis=delay_ms)
        self._bounded_exporter = span_exporter
        _reset_after_fork(span_exporter)

    def shutdown(self) -> None:
        """Flush within the exit budget and drop the rest."""
        _shut_down(self._batch_processor, self._bounded_exporter)


class BoundedLogProcessor(BatchLogRecordProcessor):
    """OpenTelemetry's batch processor with bounded shutdown."""

    def __init__(self, exporter: LogRecordExporter) -> None:
        super().__init__(exporter)
        self._bounded_exporter = exporter
        _reset_after_fork(exporter)

    def shutdown(self) -> None:
        """Flush within the exit budget and drop the rest."""
        _shut_down(self._batch_processor, self._bounded_exporter)
