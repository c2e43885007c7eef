"""Trace one attempt of a job as OpenTelemetry spans in ``otel_traces``.

Invariant: tracing neither fails nor delays a job. Spans are kept in memory until the store takes them, and lost with a
killed process. They go into the store as the metrics do, and not through the collector, so a job needs no collector
and no API key. No span is a model call, so the conversion makes no episode of the trace.
"""

import hashlib
import logging
import os
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from spanloop.foundation.errors import SpanloopError
from spanloop.foundation.paths import DataDir
from spanloop.foundation.tables.arrivals import OTEL_TRACES
from spanloop.semconv import attributes as names
from spanloop.store import Store, connect

from ...spec.stored_spec import Job
from ...verl_plugin.drift import KL
from .metrics import BATCH_REWARD, StepMetrics

TABLE: Final = OTEL_TRACES.name
_log: Final = logging.getLogger(__name__)
SERVICE: Final = "spanloop-training"
ROOT: Final = "rl.job"
STEP: Final = "rl.step"
CHECKPOINT: Final = "rl.checkpoint"
_FLUSH_EVERY_S: Final = 10.0
_SAVING: Final = "timing_s/save_checkpoint"
_METRICS: Final[Mapping[str, tuple[str, ...]]] = {
    names.RL_LOSS: ("actor/pg_loss", "train/loss"),
    names.RL_REWARD: (BATCH_REWARD,),
    names.RL_KL: (KL,),
    names.RL_ENTROPY: ("actor/entropy",),
    names.RL_GRAD_NORM: ("actor/grad_norm", "train/grad_norm"),
}
"""Attribute of a step's span to the metrics that give its value, the first that the step has."""

Attributes = Mapping[str, str | float]


@dataclass
class OpenSpan:
    """A span that has not ended; its attributes may still be added to."""

    name: str
    span_id: str
    parent_id: str
    start_ns: int
    attributes: dict[str, str | float] = field(default_factory=dict[str, "str | float"])


def trace_id_of(job_id: str, attempt: int) -> str:
    """Return the trace id of an attempt: 32 hex digits, the same for every process."""
    return hashlib.blake2b(f"{job_id}/{attempt}".encode(), digest_size=16).hexdigest()


class JobTrace:
    """The trace of one attempt.

    Args:
        job_id: The job.
        attempt: Its number.
        attributes: Of the root span.
    """

    def __init__(self, job_id: str, attempt: int, attributes: Attributes) -> None:
        self.trace_id = trace_id_of(job_id, attempt)
        identity: dict[str, str | float] = {names.RL_JOB_ID: job_id, names.RL_JOB_ATTEMPT: attempt}
        self._open = [OpenSpan(ROOT, _span_id(), "", time.time_ns(), identity | dict(attributes))]
        self._ended: list[dict[str, object]] = []
        self._blocks = 0
        self._flushed_s = time.monotonic()
        self._step_end_ns = 0

    @contextmanager
    def span(self, name: str, attributes: Attributes | None = None) -> Generator[OpenSpan]:
        """Open a child of the innermost open span; an exception that leaves the block is its error."""
        opened = OpenSpan(name, _span_id(), self._open[-1].span_id, time.time_ns(), dict(attributes or {}))
        self._open.append(opened)
        self._step_end_ns = opened.start_ns
        try:
            yield opened
        except BaseException as error:
            self._end(self._open.pop(), error)
            raise
        self._end(self._open.pop(), None)

    def steps(self, steps: Sequence[StepMetrics]) -> None:
        """Add a span for each step that was logged since the last call; together they fill the time since then."""
        now_ns = time.time_ns()
        each_ns = (now_ns - self._step_end_ns) // max(1, len(steps))
        for step in steps:
            start_ns, end_ns = self._step_end_ns, self._step_end_ns + each_ns
            parent = self._open[-1].span_id
            self._add(OpenSpan(STEP, _span_id(), parent, start_ns, _step_attributes(step)), end_ns)
            if _SAVING in step.values:
                saved_ns = end_ns - min(each_ns, int(step.values[_SAVING] * 1e9))
                self._add(OpenSpan(CHECKPOINT, _span_id(), parent, saved_ns, {names.RL_STEP: step.step}), end_ns)
            self._step_end_ns = end_ns

    def finish(self, error: BaseException | None = None) -> None:
        """End the root span."""
        self._end(self._open.pop(), error)

    def flush(self, store: Store, *, is_last: bool = False) -> None:
        """Send the ended spans when some time has passed, or ``is_last``; a store that refuses gets them next time."""
        if not self._ended or not (is_last or time.monotonic() - self._flushed_s > _FLUSH_EVERY_S):
            return
        self._flushed_s = time.monotonic()
        try:
            store.insert(TABLE, OTEL_TRACES.from_dicts(self._ended), token=f"job-{self.trace_id}-{self._blocks}")
        except SpanloopError as error:
            _log.warning("%d spans of the job wait for the store: %s", len(self._ended), error.what)
            return
        self._ended.clear()
        self._blocks += 1

    def _end(self, span: OpenSpan, error: BaseException | None) -> None:
        self._add(span, time.time_ns(), error)

    def _add(self, span: OpenSpan, end_ns: int, error: BaseException | None = None) -> None:
        attributes = dict(span.attributes)
        if error is not None:
            attributes[names.ERROR_TYPE] = type(error).__name__
        self._ended.append({
            "Timestamp": span.start_ns,
            "TraceId": self.trace_id,
            "SpanId": span.span_id,
            "ParentSpanId": span.parent_id,
            "TraceState": "",
            "SpanName": span.name,
            "SpanKind": "Internal",
            "ServiceName": SERVICE,
            "ResourceAttributes": _map({names.SERVICE_NAME: SERVICE}),
            "ScopeName": "spanloop.training",
            "ScopeVersion": "",
            "SpanAttributes": _map(attributes),
            "Duration": max(0, end_ns - span.start_ns),
            "StatusCode": "Error" if error is not None else "Unset",
            "StatusMessage": "" if error is None else str(getattr(error, "what", error)),
            **{f"Events.{name}": [] for name in ("Timestamp", "Name", "Attributes")},
            **{f"Links.{name}": [] for name in ("TraceId", "SpanId", "TraceState", "Attributes")},
            "ScopeAttributes": [],
        })  # fmt: skip


@contextmanager
def traced_job(data_dir: DataDir, job: Job) -> Generator[JobTrace]:
    """Trace one attempt of ``job``; its spans are stored when the block ends, if ClickHouse answers."""
    attributes: Attributes = {names.RL_JOB_KIND: job.spec.kind, names.RL_MODEL_BASE: job.spec.base}
    trace = JobTrace(job.id, job.attempt, attributes)
    error: BaseException | None = None
    try:
        yield trace
    except BaseException as raised:
        error = raised
        raise
    finally:
        trace.finish(error)
        try:
            with connect(data_dir) as store:
                trace.flush(store, is_last=True)
        except SpanloopError as unreachable:
            _log.warning("the job's trace is not stored: %s", unreachable.what)


def _step_attributes(step: StepMetrics) -> dict[str, str | float]:
    values = {
        attribute: next((step.values[name] for name in metrics if name in step.values), None)
        for attribute, metrics in _METRICS.items()
    }
    present = {name: value for name, value in values.items() if value is not None}
    return {names.RL_STEP: step.step, **present}


def _map(attributes: Attributes) -> list[dict[str, str]]:
    return [{"key": name, "value": str(value)} for name, value in attributes.items()]


def _span_id() -> str:
    return os.urandom(8).hex()
