"""Divide the rows to convert: windows of ingestion time, pages of touched traces, batches of spans.

A trace is touched when new spans, log events, scores or captures concern it. Invariant: the process holds one page of
traces at a time, however many rows arrived. Every touched trace is in one batch of each window in which it arrived.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

import polars as pl

from spanloop.store import Store

WINDOW_SPANS: Final = 1_000_000
"""Spans in a window. A long run saves the watermark after each window; a window scans the ids of all spans once."""

_PAGE_TRACES: Final = 100_000
"""Traces in memory at once, about 100 bytes each."""

_BEFORE_ALL_NS: Final = -(2**63)


class Window(NamedTuple):
    """Rows that were ingested after ``since_us`` until ``until_us``, microseconds since the epoch."""

    since_us: int
    until_us: int
    counted_since_us: int
    """Spans ingested after this are new."""
    new_spans: int


@dataclass(frozen=True)
class Batch:
    """Touched traces, oldest first."""

    traces: pl.DataFrame
    """Columns of ``pipeline_touched.sql``."""

    @cached_property
    def trace_ids(self) -> frozenset[str]:
        """The ids of the traces."""
        return frozenset(self.traces["trace_id"].to_list())

    @property
    def started_ns(self) -> int:
        """The earliest start of a span, nanoseconds since the epoch."""
        return int(self.traces["started_ns"].min() or 0)  # type: ignore[arg-type]

    @property
    def ended_ns(self) -> int:
        """The latest start of a span, nanoseconds since the epoch."""
        return int(self.traces["ended_ns"].max() or 0)  # type: ignore[arg-type]

    @property
    def new_spans(self) -> int:
        """The number of new spans."""
        return int(self.traces["new_spans"].sum())

    @property
    def is_named(self) -> bool:
        """Whether any trace has an episode, conversation or session id."""
        return bool(self.traces["is_named"].max())

    def halves(self) -> "tuple[Batch, Batch]":
        """Return the older and the newer half of the traces."""
        middle = self.traces.height // 2
        return Batch(self.traces[:middle]), Batch(self.traces[middle:])


def windows(store: Store, *, since_us: int, until_us: int, counted_since_us: int) -> list[Window]:
    """Divide the time after ``since_us`` until ``until_us`` into windows of about ``WINDOW_SPANS`` spans."""
    rows = store.query(
        "pipeline_windows",
        since_us=since_us,
        until_us=until_us,
        counted_since_us=counted_since_us,
        max_spans=WINDOW_SPANS,
    )
    ends = [(int(end), int(new)) for end, new in rows.iter_rows()] or [(until_us, 0)]
    # Scores and captures may be newer than the newest span.
    ends[-1] = (until_us, ends[-1][1])
    divided: list[Window] = []
    for end, new in ends:
        divided.append(Window(since_us, end, max(since_us, counted_since_us), new))
        since_us = end
    return divided


def pages(store: Store, window: Window, *, max_spans: int) -> Iterator[list[Batch]]:
    """Yield the touched traces of a window, oldest first, in batches of whole traces with about ``max_spans`` spans.

    Each list holds the batches of one page of traces.
    """
    after = (_BEFORE_ALL_NS, "")
    while True:
        page = store.query(
            "pipeline_touched",
            since_us=window.since_us,
            until_us=window.until_us,
            counted_since_us=window.counted_since_us,
            after_ns=after[0],
            after_trace_id=after[1],
            max_traces=_PAGE_TRACES,
        )
        number = (page["spans"].cum_sum() - page["spans"]) // max_spans
        yield [
            Batch(part) for part in page.with_columns(number.alias("batch")).partition_by("batch", maintain_order=True)
        ]
        if page.height < _PAGE_TRACES:
            return
        after = (int(page["started_ns"][-1]), str(page["trace_id"][-1]))
