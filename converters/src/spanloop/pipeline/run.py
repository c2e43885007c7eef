"""One run of the pipeline: what arrived since the last one, converted and stored.

Invariant: the watermark moves only after everything before it is stored, and everything is stored under keys that
depend on the data alone; so a run that dies anywhere is mended by the next one, and a second run changes nothing.
Runs at the same time take turns: what one of them has read is never written after another has written something newer.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Final, NamedTuple

import polars as pl

from spanloop.converters import Options, convert
from spanloop.store import Store

from . import run_lease, state
from .affected_traces import Closure, closures
from .arrivals import batches, windows
from .load import load
from .report import Report
from .settings import configured
from .settings import memory_bytes as memory_from_environment
from .write import write

BATCH_SPANS: Final = 50_000
"""Spans of touched traces that are converted at once."""

_FIXED_BYTES: Final = 400 << 20
"""Of the interpreter, its libraries and a page of traces."""

_BYTES_A_BYTE: Final = 10
"""What a byte of text costs while it is read, taken apart, put together and written: seven measured, and some room."""


class Size(NamedTuple):
    """How much is converted at once."""

    batch_spans: int
    memory_bytes: int

    @property
    def text_bytes(self) -> int:
        """Of spans, log events and captured tokens in memory at once."""
        return max(1 << 20, (self.memory_bytes - _FIXED_BYTES) // _BYTES_A_BYTE)


Progress = Callable[[int, int], None]
"""Called with the new spans converted so far, and all new spans of the run."""


def run(
    store: Store,
    *,
    full: bool = False,
    since: datetime | None = None,
    progress: Progress | None = None,
    options: Options | None = None,
    batch_spans: int = BATCH_SPANS,
    memory_bytes: int | None = None,
) -> Report:
    """Convert what has arrived, or everything.

    Args:
        store: Read from and written to.
        full: Convert everything again, whatever the watermark says.
        since: Convert again what was ingested since then (without a zone: UTC), besides what is new.
        progress: Told after each batch.
        options: How to convert; None converts as the environment says (``settings``).
        batch_spans: Spans converted at once.
        memory_bytes: About what this process may need at its peak; None takes what the environment says. A batch whose
            text is larger is divided; of an episode whose text is larger, the earliest spans are converted and the
            others rejected.

    Raises:
        StoreError: ClickHouse refused or is out of reach; the next run takes up where this one stopped.
        ConfigurationError: The environment names a reward function that cannot be found, or no number of MiB.
    """
    size = Size(batch_spans, memory_from_environment() if memory_bytes is None else memory_bytes)
    chosen = configured() if options is None else options
    again = state.START if full else None if since is None else state.at_most(store, since)
    writes_all = full or since is not None
    if again is None and _nothing_new(store):
        return Report()
    while True:
        with run_lease.held(store) as mine:
            if again is None and _nothing_new(store):
                return Report()
            known = again or state.load(store)
            try:
                return _convert(store, mine, known, full=writes_all, progress=progress, options=chosen, size=size)
            except run_lease.TurnLostError:
                again = known


def _nothing_new(store: Store) -> bool:
    known = state.load(store)
    arrived = state.arrivals(store, max(0, known.until_us - state.OVERLAP_US))
    return (arrived.until_us, arrived.arrived) == known


def _convert(
    store: Store,
    mine: run_lease.Turn,
    known: state.Watermark,
    *,
    full: bool,
    progress: Progress | None,
    options: Options,
    size: Size,
) -> Report:
    since_us = max(0, known.until_us - state.OVERLAP_US)
    until_us = state.arrivals(store, since_us).until_us
    ahead = state.arrivals(store, max(0, until_us - state.OVERLAP_US))
    work = windows(store, since_us=since_us, until_us=until_us, counted_since_us=known.until_us)
    total = sum(window.new_spans for window in work)
    report = Report()
    for window in work:
        for batch in batches(store, window, max_spans=size.batch_spans):
            for closure in closures(
                store, batch, max_bytes=size.text_bytes, session_is_episode=options.session_is_episode
            ):
                report += _convert_one(store, mine, closure, full=full, options=options)
                if progress is not None:
                    progress(report.spans, total)
        if window is not work[-1] and not full:
            # What is left of the run is left to the next one, should this one die.
            mine.renew()
            state.save(store, state.Watermark(window.until_us, state.UNFINISHED))
    mine.renew()
    state.save(store, state.Watermark(until_us, ahead.arrived))
    return report


def _convert_one(store: Store, mine: run_lease.Turn, closure: Closure, *, full: bool, options: Options) -> Report:
    loaded = load(store, closure)
    converted = convert(
        loaded.spans,
        scores=loaded.scores,
        generations=loaded.generations,
        logs=loaded.logs,
        options=options,
        traces=closure.concerned,
        together=closure.stored.filter(pl.col("is_deleted") == 0)["trace_ids"].to_list(),
    )
    mine.renew()
    return write(store, converted, loaded, full=full) + Report(spans=closure.batch.new_spans)
