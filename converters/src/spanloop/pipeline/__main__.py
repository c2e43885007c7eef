"""``python -m spanloop.pipeline --data-dir D``: convert new rows every few seconds until SIGTERM.

Invariant: an outage of ClickHouse, or a batch that it refuses, delays the conversion and loses nothing. The watermark
stays, and the next round continues there.
"""

import argparse
import logging
import math
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Final

from spanloop.converters.dialects import registered_dialects
from spanloop.datadir import DataDir
from spanloop.semconv.environment import default_data_dir
from spanloop.semconv.errors import NotRunningError, SpanloopError, StoreError
from spanloop.store import Store, connect
from spanloop.store.model_call_marks import mark_model_calls

from .conversion_settings import Conversion, conversion_settings
from .legacy_transitions import move_legacy
from .model_call_condition import model_call_condition
from .replaced_revisions import erase_replaced, pin_manifests
from .run import run

SERVICE: Final = "pipeline"
INTERVAL_S: Final = 5.0
ERASE_INTERVAL_S: Final = 600.0
"""Seconds between two clean-ups of replaced revisions."""
MOVE_S: Final = 5.0
"""Seconds that marking, or moving, the rows of an older version may take between two conversions."""

_log: Final = logging.getLogger(SERVICE)


def serve(data_dir: DataDir, *, interval_s: float, stop: threading.Event, config: Path | None = None) -> None:
    """Convert every ``interval_s`` seconds until ``stop`` is set.

    Args:
        data_dir: An opened data directory. The function waits for its store.
        config: The configuration file; None looks for ``spanloop.toml``.
        interval_s: Pause between two rounds, in seconds.
        stop: Event that ends the loop after the current round.

    Raises:
        SpanloopError: An error that waiting does not resolve, such as a store of a newer version.
    """
    conversion = conversion_settings(data_dir.path, config)
    with data_dir.announce(SERVICE, ""):
        while not stop.is_set():
            try:
                with connect(data_dir) as store:
                    pin_manifests(store, data_dir.jobs)
                    _rounds(store, conversion, interval_s, stop)
            except (NotRunningError, StoreError) as error:
                _log.warning("%s; trying again in %.0f s", error, interval_s)
                stop.wait(interval_s)


def _rounds(store: Store, conversion: Conversion, interval_s: float, stop: threading.Event) -> None:
    erased_s = -math.inf
    condition = model_call_condition(registered_dialects())
    while not stop.is_set():
        report = run(store, options=conversion.options)
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
        unmarked_days = mark_model_calls(store, condition, max_s=MOVE_S)
        legacy_rows = move_legacy(store, max_s=MOVE_S)
        if time.monotonic() - erased_s > ERASE_INTERVAL_S:
            erase_replaced(store)
            erased_s = time.monotonic()
        stop.wait(0 if legacy_rows or unmarked_days else interval_s)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m spanloop.pipeline", description=__doc__)
    parser.add_argument("--data-dir", default=str(default_data_dir()), help="the data directory (%(default)s)")
    parser.add_argument("--interval-s", type=float, default=INTERVAL_S, help="seconds between rounds (%(default)s)")
    parser.add_argument("--config", type=Path, help="configuration file (default: spanloop.toml, where there is one)")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    stop = threading.Event()

    def request_stop(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, request_stop)
    try:
        serve(DataDir(options.data_dir).open(), interval_s=options.interval_s, stop=stop, config=options.config)
    except SpanloopError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
