"""Store the rows of a block that a killed ClickHouse had noted and not stored.

A table notes the deduplication token of a block before it commits the block's parts. A server that is killed in between
ignores the block when it is sent again, although it has none or some of its rows. The embedded server forgets such
notes before it starts (`embedded_clickhouse.deduplication_logs`); a server of one's own does not. So when a server has
started since a block was accepted, the writer compares the block whose outcome it did not know with the tables.

Invariant: nothing is compared while an earlier insert of the block runs, because its rows are noted and not there yet.
"""

import logging
from collections.abc import Iterator
from typing import Final

import polars as pl

from spanloop.foundation.errors import StoreError
from spanloop.spool import Batch
from spanloop.store import Store

from ..dead_letters import Signal
from .insert_errors import is_forbidden

_log = logging.getLogger(__name__)
_IDS_AT_ONCE: Final = 1_000
_LOG_KEYS: Final = ("Timestamp", "TraceId", "SpanId", "EventName", "Body")
_CLOCKS_DIFFER_S: Final = 600
"""The server's clock may be behind this host's by at most this much."""
_SECOND_NS: Final = 10**9


def may_have_lost_rows(store: Store, batch: Batch) -> bool:
    """Return whether the server has started since a block's records were accepted; False where it may not be asked.

    Raises:
        StoreError: The server is unreachable, or an earlier insert of the block still runs: insert and ask again.
    """
    try:
        started_s, running_inserts = store.query("collector_server_start", block_id=batch.block_id).row(0)
    except StoreError as error:
        if not is_forbidden(error):
            raise
        # without the right a block must not wait forever
        _log.warning("block %s is not compared with its tables after an unknown outcome: %s", batch.block_id, error)
        return False
    accepted_s = max(record.accepted_ns for record in batch.records) // _SECOND_NS
    if started_s + _CLOCKS_DIFFER_S < accepted_s:
        return False
    if running_inserts:
        raise StoreError(f"An earlier insert of block {batch.block_id} still runs.", is_transient=True)
    return True


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


def lost_dead_letters(store: Store, rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of ``dead_letters`` that are not in this table."""
    lost = rows
    for part in rows.iter_slices(_IDS_AT_ONCE):
        ids = part["dead_letter_id"].to_list()
        stored = store.query("collector_stored_dead_letters", dead_letter_ids=ids)
        lost = lost.join(stored, on="dead_letter_id", how="anti", maintain_order="left")
    return lost


def time_range(frame: pl.DataFrame) -> tuple[int, int]:
    """Return the first and the last time of rows, in nanoseconds since the epoch."""
    first, last = frame.select(_ns("Timestamp").min().alias("first"), _ns("Timestamp").max().alias("last")).row(0)
    return first, last


def _stored_spans(store: Store, frame: pl.DataFrame) -> Iterator[pl.DataFrame]:
    first_ns, last_ns = time_range(frame)
    for traces in frame.select(pl.col("TraceId").unique()).iter_slices(_IDS_AT_ONCE):
        trace_ids = traces["TraceId"].to_list()
        yield store.query("collector_stored_spans", trace_ids=trace_ids, first_ns=first_ns, last_ns=last_ns)


def _ns(column: str) -> pl.Expr:
    return pl.col(column).cast(pl.Datetime("ns")).dt.epoch("ns")
