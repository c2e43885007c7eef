"""Batching that ends with the process, within a bound.

Invariant: at exit all exporters together get ``EXIT_BUDGET_S``, whatever the endpoint does; a forked child never uses
its parent's connection.
"""

import os
import time
from typing import Final, Protocol, runtime_checkable

from opentelemetry.sdk._logs.export import BatchLogRecordProcessor, LogRecordExporter
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

from spanloop.instrumentation.exception_guard import guarded
from spanloop.instrumentation.sender import Sender
from spanloop.semconv.environment import EXIT_TIMEOUT_ENV

_DEFAULT_EXIT_BUDGET_S: Final = 1.0
_LONGEST_EXIT_BUDGET_S: Final = 3600.0


def exit_budget_s(text: str) -> float:
    """The budget that the environment asks for, in seconds; up to an hour; else one second."""
    try:
        seconds = float(text)
    except ValueError:
        return _DEFAULT_EXIT_BUDGET_S
    return seconds if 0 < seconds <= _LONGEST_EXIT_BUDGET_S else _DEFAULT_EXIT_BUDGET_S


EXIT_BUDGET_S: Final = exit_budget_s(os.environ.get(EXIT_TIMEOUT_ENV, ""))
_LEAST_JOIN_S: Final = 0.05
_SCHEDULE_DELAY_MS: Final = 1000  # OpenTelemetry's 5 s for spans is five seconds lost to a SIGKILL


class ExitBudget:
    """One clock for every exporter of the process: it starts with the first one that shuts down.

    An app may shut one provider down long before it ends; the others then get a clock of their own.
    """

    def __init__(self) -> None:
        self._ends_at: float | None = None

    def remaining_s(self) -> float:
        """What is left of the budget; starts the clock."""
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
        except KeyboardInterrupt:  # a second Ctrl-C ends the wait; without us there would have been none
            return


def _keep_apart_after_fork(exporter: object) -> None:
    if isinstance(exporter, _HasSender):
        os.register_at_fork(after_in_child=exporter.sender.after_fork)


class BoundedSpanProcessor(BatchSpanProcessor):
    """OpenTelemetry's batch processor with an end in sight."""

    def __init__(self, span_exporter: SpanExporter) -> None:
        delay_ms = None if "OTEL_BSP_SCHEDULE_DELAY" in os.environ else _SCHEDULE_DELAY_MS
        super().__init__(span_exporter, schedule_delay_millis=delay_ms)
        self._bounded_exporter = span_exporter
        _keep_apart_after_fork(span_exporter)

    def shutdown(self) -> None:
        """Flush what the exit budget allows and give up the rest."""
        _shut_down(self._batch_processor, self._bounded_exporter)


class BoundedLogProcessor(BatchLogRecordProcessor):
    """OpenTelemetry's batch processor with an end in sight."""

    def __init__(self, exporter: LogRecordExporter) -> None:
        super().__init__(exporter)
        self._bounded_exporter = exporter
        _keep_apart_after_fork(exporter)

    def shutdown(self) -> None:
        """Flush what the exit budget allows and give up the rest."""
        _shut_down(self._batch_processor, self._bounded_exporter)
