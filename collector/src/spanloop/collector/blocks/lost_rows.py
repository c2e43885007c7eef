"""Store the rows of a block that a killed ClickHouse had noted and not stored.

A table notes the deduplication token of a block before it commits the block's parts. A server that is killed in between
ignores the block when it is sent again, although it has none or some of its rows. The embedded server forgets such
notes before it starts (`embedded_clickhouse.deduplication_logs`); a server of one's own does not. So when a server has
started again, the writer compares the block whose outcome it did not know with the tables.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

import polars as pl

from spanloop.store import Store

from ..dead_letters import Signal

_TRACES_AT_ONCE: Final = 1_000
_LOG_KEYS: Final = ("Timestamp", "TraceId", "SpanId", "EventName", "Body")
_TOLERANCE_S: Final = 2
"""A server says when it started in whole seconds, as the difference of two readings."""


class ServerStart(NamedTuple):
    """The start of a ClickHouse server."""

    host: str
    started_s: int
    """Seconds since the epoch, by its own clock."""


class Servers:
    """Remembers since when each server of ClickHouse has run: one that has started since may have lost rows."""

    def __init__(self) -> None:
        self._started_s: dict[str, int] = {}

    def start_of(self, store: Store) -> ServerStart:
        """Return the start of the server that answers."""
        return ServerStart(*store.query("store_server_start").row(0))

    def is_new(self, start: ServerStart) -> bool:
        """Return whether a server has started since it was remembered, or was never remembered."""
        known_s = self._started_s.get(start.host)
        return known_s is None or start.started_s > known_s + _TOLERANCE_S

    def remember(self, start: ServerStart) -> None:
        """Remember a start, after what the server may have lost is stored."""
        self._started_s[start.host] = start.started_s


def lost_rows(store: Store, signal: Signal, frame: pl.DataFrame) -> pl.DataFrame:
    """Return the rows that are not in their table.

    Args:
        store: The store.
        signal: Of the rows.
        frame: Rows of the signal's table; not empty.
    """
    if signal is Signal.TRACES:
        stored = pl.concat(_stored_spans(store, frame))
        return frame.join(stored, on=["TraceId", "SpanId"], how="anti", maintain_order="left")
    first_ns, last_ns = time_range(frame)
    stored = store.query("collector_stored_logs", first_ns=first_ns, last_ns=last_ns)
    # the n-th of equal records is stored where n records of its kind are
    numbered = frame.with_columns(pl.int_range(pl.len()).over(_LOG_KEYS).alias("_number"))
    joined = numbered.with_columns(_ns("Timestamp").alias("at_ns")).join(
        stored, on=["at_ns", *_LOG_KEYS[1:]], how="left", maintain_order="left"
    )
    is_lost = pl.col("_number") >= pl.col("stored").fill_null(0)
    return joined.filter(is_lost).select(frame.columns)


def time_range(frame: pl.DataFrame) -> tuple[int, int]:
    """Return the first and the last time of rows, in nanoseconds since the epoch."""
    first, last = frame.select(_ns("Timestamp").min().alias("first"), _ns("Timestamp").max().alias("last")).row(0)
    return first, last


def _stored_spans(store: Store, frame: pl.DataFrame) -> Iterator[pl.DataFrame]:
    first_ns, last_ns = time_range(frame)
    for traces in frame.select(pl.col("TraceId").unique()).iter_slices(_TRACES_AT_ONCE):
        trace_ids = traces["TraceId"].to_list()
        yield store.query("collector_stored_spans", trace_ids=trace_ids, first_ns=first_ns, last_ns=last_ns)


def _ns(column: str) -> pl.Expr:
    return pl.col(column).cast(pl.Datetime("ns")).dt.epoch("ns")
