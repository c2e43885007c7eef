"""Metrics of a pipeline process, and the lag of the conversion.

Invariant: the lag is measured when it is asked for, by one query that reads no more than the next round of the
conversion does. So a process that waits for its turn, or hangs, shows the lag too.
"""

import threading
from typing import Final

from spanloop.foundation.errors import SpanloopError
from spanloop.foundation.paths import DataDir
from spanloop.foundation.telemetry import metrics
from spanloop.store import Store, connect

from . import watermark
from .report import Report

FAMILIES: Final[metrics.Families] = {
    "rounds_total": ("counter", "Rounds that ended without an error; most of them find nothing new."),
    "errors_total": ("counter", "Rounds that ended with an error; each is repeated."),
    "converting": (
        "gauge",
        "1 while this process leads a run; other pipelines of the store may convert its batches too.",
    ),
    "round_seconds": ("histogram", "Duration of the rounds that converted something."),
    "last_round_timestamp_seconds": ("gauge", "When the last round ended without an error; 0 before the first."),
    "spans_total": ("counter", "New spans of the runs that this process led, whichever pipelines converted them."),
    "episodes_total": ("counter", "Episodes that were written: new ones and new revisions."),
    "transitions_total": ("counter", "Transitions that were written, by whether they may be trained on."),
    "rejected_total": ("counter", "Spans and scores that were rejected, by reason."),
    "failures_total": ("counter", "Failures that were attributed."),
    "lag_spans": ("gauge", "Spans in the store that are not converted yet."),
    "lag_seconds": ("gauge", "Age of the oldest span that is not converted yet; 0 when there is none."),
    "store_up": ("gauge", "Whether ClickHouse answered when the lag was measured."),
}


class PipelineMetrics(metrics.Metrics):
    """Counters and gauges of one pipeline process.

    Args:
        data_dir: Its store is asked for the lag.
    """

    def __init__(self, data_dir: DataDir) -> None:
        super().__init__("spanloop_pipeline_", FAMILIES)
        for name in (
            "rounds_total",
            "errors_total",
            "spans_total",
            "episodes_total",
            "last_round_timestamp_seconds",
            "converting",
        ):
            self.set(name, 0)
        self._data_dir = data_dir
        self._store: Store | None = None
        self._store_lock = threading.Lock()

    def record(self, report: Report, *, seconds: float, ended_s: float) -> None:
        """Count a round.

        Args:
            report: Its result.
            seconds: Its duration.
            ended_s: When it ended, seconds since the epoch.
        """
        self.count("rounds_total")
        self.set("last_round_timestamp_seconds", ended_s)
        if not (report.spans or report.episodes):
            return
        self.observe("round_seconds", seconds)
        self.count("spans_total", report.spans)
        self.count("episodes_total", report.episodes)
        self.count("transitions_total", report.trainable, trainable="true")
        self.count("transitions_total", report.transitions - report.trainable, trainable="false")
        self.count("failures_total", report.failures)
        for reason, rejected in report.rejected.items():
            self.count("rejected_total", rejected, reason=reason)

    def measure_lag(self) -> None:
        """Set the gauges of the lag; an unreachable store is one of them."""
        with self._store_lock:
            try:
                if self._store is None:
                    self._store = connect(self._data_dir)
                lag = self._store.query("pipeline_lag", since_us=watermark.load(self._store).until_us)
            except SpanloopError:
                self.close()
                self.set("store_up", 0)
                return
        self.set("store_up", 1)
        self.set("lag_spans", int(lag.item(0, "spans")))
        self.set("lag_seconds", round(float(lag.item(0, "oldest_age_s")), 3))

    def close(self) -> None:
        """Close the connection; the next measurement opens another one."""
        if self._store is not None:
            self._store.close()
            self._store = None
