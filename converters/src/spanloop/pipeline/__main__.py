"""``python -m spanloop.pipeline --data-dir D``: convert new rows every few seconds until SIGTERM.

Invariant: an outage of ClickHouse or of the control database, or a batch that ClickHouse refuses, delays the conversion
and loses nothing. The watermark stays, and the next round continues there.
"""

import logging
import math
import signal
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from types import FrameType
from typing import Final, NamedTuple

from spanloop.converters.dialects import registered_dialects
from spanloop.foundation.errors import DataDirectoryError, NotRunningError, StoreError
from spanloop.foundation.paths import DataDir
from spanloop.foundation.settings.roles import PipelineSettings
from spanloop.foundation.settings.sources import Process
from spanloop.foundation.telemetry.role_process import run_role
from spanloop.foundation.telemetry.status import Status
from spanloop.foundation.telemetry.status_listener import StatusAddress, serving_status, status_address
from spanloop.store import Store, connect
from spanloop.store.model_call_marks import mark_model_calls

from .conversion_settings import Conversion, conversion_settings
from .model_call_condition import model_call_condition
from .replaced_revisions import erase_replaced, pin_manifests
from .report import Report
from .run import BATCH_SPANS, run
from .service_metrics import PipelineMetrics
from .sharing import Sharing

SERVICE: Final = "pipeline"
ERASE_INTERVAL_S: Final = 600.0
"""Seconds between two clean-ups of replaced revisions."""
MARK_S: Final = 5.0
"""Seconds that marking the model calls of stored spans may take between two conversions."""

_log: Final = logging.getLogger(SERVICE)


def serve(
    data_dir: DataDir,
    *,
    interval_s: float,
    stop: threading.Event,
    batch_spans: int = BATCH_SPANS,
    address: StatusAddress | None = None,
) -> None:
    """Convert every ``interval_s`` seconds until ``stop`` is set.

    Args:
        data_dir: An opened data directory. The function waits for its store.
        interval_s: Pause between two rounds, in seconds.
        stop: Event that ends the loop after the current batch; what is left of the round waits for the next run.
        batch_spans: Spans that are converted at once.
        address: Where to listen for ``/healthz`` and ``/metrics``; None does not listen.

    Raises:
        SpanloopError: An error that waiting does not resolve, such as a store of a newer version.
    """
    conversion = conversion_settings(data_dir.path)
    status = Status(SERVICE)
    with (
        closing(PipelineMetrics(data_dir)) as metrics,
        serving_status(data_dir, address, status, metrics, metrics.measure_lag) as url,
        data_dir.announce(SERVICE, url),
        Sharing.joined(data_dir) as sharing,
    ):
        loop = _Loop(conversion, interval_s, batch_spans, stop, status, metrics, sharing)
        while not stop.is_set():
            try:
                with connect(data_dir) as store:
                    pin_manifests(store, data_dir.jobs)
                    _rounds(store, loop)
            except (NotRunningError, StoreError, DataDirectoryError) as error:
                if not error.is_transient and isinstance(error, DataDirectoryError):
                    raise
                status.set("waiting", error.what)
                metrics.count("errors_total")
                _log.warning("%s; trying again in %.0f s", error, interval_s)
                stop.wait(interval_s)


class _Loop(NamedTuple):
    conversion: Conversion
    interval_s: float
    batch_spans: int
    stop: threading.Event
    status: Status
    metrics: PipelineMetrics
    sharing: Sharing

    def convert(self, store: Store) -> Report:
        """Convert what is new, and show that in status and metrics."""
        began_s = time.monotonic()
        try:
            report = run(
                store,
                options=self.conversion.options,
                progress=self._show,
                batch_spans=self.batch_spans,
                should_stop=self.stop.is_set,
                sharing=self.sharing,
            )
        finally:
            self.metrics.set("converting", 0)
            self.sharing.describe("idle")
        self.status.set("idle")
        self.metrics.record(report, seconds=time.monotonic() - began_s, ended_s=time.time())
        return report

    def _show(self, _done: int, _total: int) -> None:
        self.status.set("converting")
        self.metrics.set("converting", 1)


def _rounds(store: Store, loop: _Loop) -> None:
    conversion, stop = loop.conversion, loop.stop
    erased_s = -math.inf
    condition = model_call_condition(registered_dialects())
    while not stop.is_set():
        report = loop.convert(store)
        if report.spans or report.episodes:
            _log.info(
                "%d spans, %d episodes, %d transitions (%d trainable), %d failures",
                report.spans,
                report.episodes,
                report.transitions,
                report.trainable,
                report.failures,
            )
            if conversion.judge_counts:
                _log.info("judge so far: %s", dict(conversion.judge_counts))
        if stop.is_set():
            return
        unmarked_days = mark_model_calls(store, condition, max_s=MARK_S)
        if time.monotonic() - erased_s > ERASE_INTERVAL_S:
            erase_replaced(store)
            erased_s = time.monotonic()
        stop.wait(0 if unmarked_days else loop.interval_s)


def _serve(process: Process[PipelineSettings]) -> None:
    stop = threading.Event()

    def request_stop(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, request_stop)
    settings = process.settings
    serve(
        DataDir(process.data_dir).open(),
        interval_s=settings.interval_s,
        batch_spans=settings.batch_spans,
        stop=stop,
        address=status_address(settings),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    return run_role(PipelineSettings, _serve, arguments)


if __name__ == "__main__":
    sys.exit(main())
