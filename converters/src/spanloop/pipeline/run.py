"""One run of the pipeline: what arrived since the last one, converted and stored.

Invariant: the watermark moves only after everything before it is stored, and everything is stored under keys that
depend on the data alone; so a run that dies anywhere is mended by the next one, and a second run changes nothing.
Runs at the same time take turns: what one of them has read is never written after another has written something newer.
"""

from collections.abc import Callable
from typing import Final

from spanloop.converters import Options, convert
from spanloop.store import Store

from . import state, turn
from .load import batches, load
from .report import Report
from .settings import configured
from .write import write

BATCH_SPANS: Final = 20_000
"""Spans of touched traces that are converted at once; bounds memory."""

Progress = Callable[[int, int], None]
"""Called with the new spans converted so far, and all new spans of the run."""


def run(
    store: Store,
    *,
    full: bool = False,
    progress: Progress | None = None,
    options: Options | None = None,
    batch_spans: int = BATCH_SPANS,
) -> Report:
    """Convert what has arrived, or everything.

    Args:
        store: Read from and written to.
        full: Convert everything again, whatever the watermark says.
        progress: Told after each batch.
        options: How to convert; None converts as the environment says (``settings``).
        batch_spans: Spans converted at once.

    Raises:
        StoreError: ClickHouse refused or is out of reach; the next run takes up where this one stopped.
        ConfigurationError: The environment names a reward function that cannot be found.
    """
    chosen = configured() if options is None else options
    again: state.Watermark | None = state.START if full else None
    if again is None and _nothing_new(store):
        return Report()
    while True:
        with turn.held(store) as mine:
            if again is None and _nothing_new(store):
                return Report()
            known = again or state.load(store)
            try:
                return _convert(store, mine, known, full=full, progress=progress, options=chosen, size=batch_spans)
            except turn.TurnLostError:
                again = known


def _nothing_new(store: Store) -> bool:
    known = state.load(store)
    arrived = state.arrivals(store, max(0, known.until_us - state.OVERLAP_US))
    return (arrived.until_us, arrived.arrived) == known


def _convert(
    store: Store,
    mine: turn.Turn,
    known: state.Watermark,
    *,
    full: bool,
    progress: Progress | None,
    options: Options,
    size: int,
) -> Report:
    since_us = max(0, known.until_us - state.OVERLAP_US)
    until_us = state.arrivals(store, since_us).until_us
    ahead = state.arrivals(store, max(0, until_us - state.OVERLAP_US))
    work = batches(store, since_us=since_us, until_us=until_us, counted_since_us=known.until_us, max_spans=size)
    total = sum(batch.new_spans for batch in work)
    report = Report()
    for batch in work:
        loaded = load(store, batch, session_is_episode=options.session_is_episode)
        converted = convert(
            loaded.spans,
            scores=loaded.scores,
            generations=loaded.generations,
            logs=loaded.logs,
            options=options,
            traces=loaded.concerned,
        )
        mine.renew()
        report += write(store, converted, loaded, touched=batch.trace_ids, full=full)
        report += Report(spans=batch.new_spans)
        if progress is not None:
            progress(report.spans, total)
    mine.renew()
    state.save(store, state.Watermark(until_us, ahead.arrived))
    return report
