"""Convert and store everything that arrived since the last run.

Invariant: the watermark moves only after everything before it is stored, under keys that depend on the data alone. So
the next run completes a run that died, and a second run changes nothing. Only the run that holds the lease writes, and
pipelines that share its work (`spanloop.pipeline.sharing`): rows that one of them read are never written after another
has written newer ones.
"""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Final, NamedTuple

import polars as pl

from spanloop.converters import Options, convert
from spanloop.converters.rewards import reward_functions
from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.leases import LeaseLostError, WaitStoppedError
from spanloop.semconv.environment import CONVERT_MEMORY_ENV, REWARDS_ENV
from spanloop.store import Store

from . import run_lease, watermark
from .affected_traces import AffectedTraces, affected_traces
from .batches import Batch, pages, windows
from .leased_inserts import LeasedInserts
from .load import load
from .report import Report
from .run_lease import RunLease
from .sharing import Sharing
from .sharing.sharing import Claim, Conversion
from .write import write

MEMORY_MIB: Final = 2_048
BATCH_SPANS: Final = 50_000
"""Spans that are converted at once."""

_FIXED_BYTES: Final = 400 << 20
"""Memory of the interpreter, its libraries and a page of traces."""

_BYTES_A_BYTE: Final = 10
"""Memory for a byte of text while it is read, parsed, converted and written: seven measured, and a reserve."""

_log: Final = logging.getLogger("pipeline")


class Size(NamedTuple):
    """Limits of what is converted at once."""

    batch_spans: int
    memory_bytes: int

    @property
    def text_bytes(self) -> int:
        """Most text of spans, log events and captured tokens in memory at once, in bytes."""
        return max(1 << 20, (self.memory_bytes - _FIXED_BYTES) // _BYTES_A_BYTE)


Progress = Callable[[int, int], None]
"""Callback with the number of new spans converted so far, and of all new spans of the run."""


def run(
    store: Store,
    *,
    full: bool = False,
    since: datetime | None = None,
    progress: Progress | None = None,
    options: Options | None = None,
    batch_spans: int = BATCH_SPANS,
    memory_bytes: int | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    sharing: Sharing | None = None,
) -> Report:
    """Convert what arrived since the last run, or everything.

    Args:
        store: The store to read from and write to.
        full: Convert everything again, regardless of the watermark.
        since: Convert again what was ingested since then (without a zone: UTC), besides what is new.
        progress: Called when this run converts, and after each batch.
        options: How to convert; None takes the options from the environment.
        batch_spans: Spans converted at once.
        memory_bytes: Approximate peak memory of this process; None takes the limit from the environment. A larger
            batch is divided. Of a larger episode, the earliest spans are converted and the others rejected.
        should_stop: Asked after each batch whether to end the run, which the next one continues.
        sharing: Shares batches with other pipelines, and converts theirs during a wait; None converts alone.

    Returns:
        The counts of the run, whichever pipelines converted its batches.

    Raises:
        StoreError: ClickHouse refused or is unreachable; the next run continues where this one stopped.
        ConfigurationError: The environment names an unknown reward function, or an invalid number of MiB.
    """
    size = Size(batch_spans, memory_from_environment() if memory_bytes is None else memory_bytes)
    conversion_options = options_from_environment() if options is None else options
    again = watermark.START if full else None if since is None else watermark.at_most(store, since)
    writes_all = full or since is not None
    if again is None and _nothing_new(store):
        return Report()
    conversion = Conversion(
        store,
        partial(_convert_set, store, conversion_options),
        size.text_bytes,
        conversion_options.session_is_episode,
        should_stop,
    )
    help_other = partial(sharing.help, conversion) if sharing is not None else _wait
    while True:
        with suppress(WaitStoppedError), run_lease.acquire(store, should_stop, help_other) as lease:
            previous = again or watermark.load(store)
            arrived = _arrivals(store, previous)
            if again is None and (arrived.until_us, arrived.arrived) == previous:
                return Report()
            try:
                return _convert(
                    conversion,
                    lease,
                    previous,
                    until_us=arrived.until_us,
                    full=writes_all,
                    progress=progress,
                    batch_spans=size.batch_spans,
                    sharing=sharing,
                )
            except LeaseLostError as error:
                _log.warning("%s Its work is repeated.", error)
                again = previous
        if should_stop():
            return Report()


def _wait(_owner: str) -> None:
    """Do nothing during the wait for a shared lease."""


def _nothing_new(store: Store) -> bool:
    previous = watermark.load(store)
    arrived = _arrivals(store, previous)
    return (arrived.until_us, arrived.arrived) == previous


def _arrivals(store: Store, previous: watermark.Watermark) -> watermark.Arrivals:
    """Return the newest ingestion time, and the number of rows since the overlap before a watermark."""
    return watermark.arrivals(store, max(0, previous.until_us - watermark.OVERLAP_US))


def _convert(
    conversion: Conversion,
    lease: RunLease,
    previous: watermark.Watermark,
    *,
    until_us: int,
    full: bool,
    progress: Progress | None,
    batch_spans: int,
    sharing: Sharing | None,
) -> Report:
    store = conversion.store
    since_us = max(0, previous.until_us - watermark.OVERLAP_US)
    tail = watermark.arrivals(store, max(0, until_us - watermark.OVERLAP_US))
    pending_windows = windows(store, since_us=since_us, until_us=until_us, counted_since_us=previous.until_us)
    total = sum(window.new_spans for window in pending_windows)
    report, done = Report(), 0

    def show(spans: int) -> None:
        nonlocal done
        done += spans
        if sharing is not None:
            sharing.describe("converting", more_spans=spans)
        if progress is not None:
            progress(done, total)

    show(0)
    for window in pending_windows:
        for page in pages(store, window, max_spans=batch_spans):
            if sharing is not None and len(page) > 1 and sharing.has_others():
                report += sharing.lead(conversion, lease, page, full=full, on_spans=show)
            else:
                report += _convert_page(conversion, lease, page, full=full, on_spans=show)
            if conversion.should_stop():
                return report
        if window is not pending_windows[-1] and not full:
            # If this run dies, the next one continues here.
            lease.renew()
            watermark.save(store, watermark.Watermark(window.until_us, watermark.UNFINISHED))
    lease.renew()
    watermark.save(store, watermark.Watermark(until_us, tail.arrived))
    return report


def _convert_page(
    conversion: Conversion, lease: RunLease, page: Sequence[Batch], *, full: bool, on_spans: Callable[[int], None]
) -> Report:
    """Convert a page of batches alone."""
    inserts, report = LeasedInserts(conversion.store, lease), Report()
    for batch in page:
        for affected in affected_traces(
            conversion.store,
            batch,
            max_bytes=conversion.max_bytes,
            session_is_episode=conversion.session_is_episode,
        ):
            converted = conversion.convert_set(affected, inserts, full=full)
            report += converted
            on_spans(converted.spans)
            if conversion.should_stop():
                return report
    return report


def _convert_set(
    store: Store,
    options: Options,
    affected: AffectedTraces,
    inserts: LeasedInserts,
    *,
    full: bool,
    claim: Claim = lambda _: None,
) -> Report:
    loaded = load(store, affected)
    converted = convert(
        loaded.spans,
        scores=loaded.scores,
        generations=loaded.generations,
        logs=loaded.logs,
        judgements=loaded.judgements,
        options=options,
        traces=affected.reconverted,
        stored_groups=affected.stored.filter(pl.col("is_deleted") == 0)["trace_ids"].to_list(),
    )
    claim(converted.episodes["episode_id"].to_list())
    inserts.renew()
    return write(store, inserts, converted, loaded, full=full) + Report(spans=affected.batch.new_spans)


def options_from_environment(environment: Mapping[str, str] = os.environ) -> Options:
    """Return the conversion options of the environment.

    Raises:
        ConfigurationError: A reward function is unknown.
    """
    references = [reference for reference in environment.get(REWARDS_ENV, "").split(",") if reference.strip()]
    return Options(reward_functions=reward_functions(references))


def memory_from_environment(environment: Mapping[str, str] = os.environ) -> int:
    """Return the memory limit of a conversion, in bytes.

    Raises:
        ConfigurationError: The variable is not a number.
    """
    mebibytes = environment.get(CONVERT_MEMORY_ENV, "") or str(MEMORY_MIB)
    if not mebibytes.isdecimal() or int(mebibytes) < 1:
        raise ConfigurationError(
            f"{CONVERT_MEMORY_ENV} is {mebibytes!r}, expected a number of MiB.",
            next_step=f"Set it to {MEMORY_MIB}, or unset it.",
        )
    return int(mebibytes) << 20
