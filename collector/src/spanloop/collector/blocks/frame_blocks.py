"""Insert a block of spooled requests into ClickHouse as polars frames, each under a deduplication token.

Invariant: inserting a prepared block twice stores it once. The deduplication token of each part is made of the block's
id and the part's table; the same block always has the same parts. A row that ClickHouse refuses permanently becomes a
dead letter, and the other rows are stored.
"""

import logging
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, Protocol

import polars as pl
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from spanloop.foundation.errors import StoreError
from spanloop.spool import AnyRecord, Batch
from spanloop.store import Store
from spanloop.store.refilled_views import refill_views

from .. import dead_letters
from ..dead_letters import DeadLetter, DeadLetterRows, RejectReason, Signal
from ..otlp.wire import parse
from ..validation import PROTOBUF, count_items, dead_letter_of_items, select_item
from .insert_errors import RefusedRanges, is_permanent
from .log_rows import LogRows
from .lost_rows import lost_dead_letters, lost_rows, time_range
from .record_kinds import signal_of
from .span_rows import SpanRows

_log = logging.getLogger(__name__)
_TABLES: Final = {Signal.TRACES: "otel_traces", Signal.LOGS: "otel_logs"}


def deduplication_token(block_id: str, table: str, suffix: str = "") -> str:
    """Make the deduplication token of one part of a block: ClickHouse ignores a second insert under the same token."""
    return f"{block_id}-{table}{suffix}"


class InsertResult(NamedTuple):
    """The outcome of inserting a block."""

    rows: int
    """Spans and log records that are stored."""
    refused: int
    """Spans and log records that ClickHouse refuses permanently; they are stored as dead letters."""


class PreparedBlock(Protocol):
    """A block that is ready to be inserted, as often as needed."""

    @property
    def unreadable(self) -> int:
        """Records that could not be converted to rows; they become dead letters."""
        ...

    def insert(self, store: Store) -> InsertResult:
        """Insert the block. Raises StoreError after an outage or an unknown outcome: then insert it again."""
        ...

    def restore(self, store: Store, token_suffix: str) -> int:
        """Store what a killed server has lost of the block after `insert`; return the number of spans and log records.

        Args:
            store: The store.
            token_suffix: Distinguishes the tokens from those that the server may have noted.

        Raises:
            StoreError: As `insert`: insert and restore the block again.
        """
        ...


class BlockStrategy(Protocol):
    """Converts batches of the spool to blocks for ClickHouse."""

    def prepare(self, batch: Batch) -> PreparedBlock:
        """Do everything that needs no ClickHouse."""
        ...


class FrameBlock(NamedTuple):
    """A block as one frame a table."""

    batch: Batch
    frames: tuple[tuple[Signal, pl.DataFrame], ...]
    """Rows in the order of the records' items."""
    dead_letter_rows: pl.DataFrame
    unreadable: int
    refused_ranges: RefusedRanges
    token_suffix: str
    """Part of every deduplication token: distinguishes these rows from a raw insert that was refused permanently."""

    def insert(self, store: Store) -> InsertResult:
        """Insert the frames, each under its own deduplication token."""
        rows = 0
        refused: list[tuple[Signal, int, str]] = []
        for signal, frame in self.frames:
            for first, end, error in self._insert_range(store, signal, frame, 0, frame.height):
                if error:
                    refused.append((signal, first, error))
                else:
                    rows += end - first
        self._insert_dead_letters(store, self.dead_letter_rows, "")
        if refused:
            _log.error("ClickHouse refuses %d rows; they become dead letters: %s", len(refused), refused[0][2])
            refused_rows = DeadLetterRows()
            for signal, row, error in refused:
                refused_rows.add(*self._dead_letter_of_row(signal, row, error))
            self._insert_dead_letters(store, refused_rows.to_frame(), "-refused")
        return InsertResult(rows, len(refused))

    def restore(self, store: Store, token_suffix: str) -> int:
        """Compare the frames with their tables; rows that ClickHouse refuses for good are dead letters already."""
        again = self._replace(token_suffix=f"{self.token_suffix}{token_suffix}")
        restored = 0
        for signal, frame in self.frames:
            lost = lost_rows(store, signal, frame)
            if not lost.is_empty():
                ranges = again._insert_range(store, signal, lost, 0, lost.height)  # noqa: SLF001 - of this class
                restored += sum(end - first for first, end, error in ranges if not error)
            refill_views(store, _TABLES[signal], frame["TraceId"].unique().to_list(), *time_range(frame))
        again._insert_dead_letters(store, lost_dead_letters(store, self.dead_letter_rows), "")  # noqa: SLF001 - of this class
        return restored

    def _insert_range(
        self, store: Store, signal: Signal, frame: pl.DataFrame, first: int, end: int
    ) -> Iterator[tuple[int, int, str]]:
        """Insert a range of rows; yield the stored ranges with an empty error, and each refused row with its error."""
        token = deduplication_token(self.batch.block_id, _TABLES[signal], self.token_suffix)
        if end - first < frame.height:
            token += f"-{first}-{end}"
        detail = "refused before a restart"
        if token not in self.refused_ranges:
            try:
                store.insert(_TABLES[signal], frame[first:end], token=token)
            except StoreError as error:
                if not is_permanent(error):
                    raise
                detail = error.what
                self.refused_ranges.add(self.batch.block_id, token)
            else:
                yield first, end, ""
                return
        if end - first == 1:
            yield first, end, detail
            return
        middle = (first + end) // 2
        yield from self._insert_range(store, signal, frame, first, middle)
        yield from self._insert_range(store, signal, frame, middle, end)

    def _insert_dead_letters(self, store: Store, rows: pl.DataFrame, suffix: str) -> None:
        if not rows.is_empty():
            token = deduplication_token(self.batch.block_id, dead_letters.TABLE, f"{self.token_suffix}{suffix}")
            store.insert(dead_letters.TABLE, rows, token=token)

    def _dead_letter_of_row(self, signal: Signal, row: int, error: str) -> tuple[DeadLetter, int]:
        """Return the dead letter of one row, and the time when it was accepted."""
        for record in self.batch.records:
            items = count_items(signal, record.body) if signal_of(record.kind) == signal else 0
            if row < items:
                request = select_item(signal, record.body, row)
                dead_letter = dead_letter_of_items(signal, request, RejectReason.REFUSED_BY_CLICKHOUSE, error)
                return dead_letter, record.accepted_ns
            row -= items
        raise AssertionError(f"block {self.batch.block_id} has no row {row} of {signal}")


class PolarsStrategy:
    """Parses requests in Python and inserts polars frames.

    Args:
        refused_ranges: Remembers which ranges of rows were refused permanently.
        token_suffix: Part of every deduplication token, see `FrameBlock.token_suffix`.
    """

    def __init__(self, refused_ranges: RefusedRanges | None = None, token_suffix: str = "") -> None:
        self._refused_ranges = refused_ranges or RefusedRanges()
        self._token_suffix = token_suffix

    def prepare(self, batch: Batch) -> FrameBlock:
        """Parse every record. Requests were validated, so a failure means another spanloop version or a bug."""
        spans, logs, dead_letter_rows = SpanRows(), LogRows(), DeadLetterRows()
        unreadable = 0
        for record in batch.records:
            try:
                if record.kind == dead_letters.KIND:
                    for dead_letter in dead_letters.decode(record.body):
                        dead_letter_rows.add(dead_letter, record.accepted_ns)
                    continue
                signal = Signal(signal_of(record.kind))
                if signal is Signal.TRACES:
                    spans.add(parse(ExportTraceServiceRequest, record.body))
                else:
                    logs.add(parse(ExportLogsServiceRequest, record.body))
            except ValueError as error:  # an unknown kind, or MalformedError
                unreadable += 1
                dead_letter_rows.add(_dead_letter_of_record(record, error), record.accepted_ns)
                _log.error("spool record %d of block %s becomes a dead letter: %s", record.seq, batch.block_id, error)
        frames = _non_empty([(Signal.TRACES, spans.to_frame()), (Signal.LOGS, logs.to_frame())])
        return FrameBlock(
            batch, frames, dead_letter_rows.to_frame(), unreadable, self._refused_ranges, self._token_suffix
        )


def _non_empty(frames: Sequence[tuple[Signal, pl.DataFrame]]) -> tuple[tuple[Signal, pl.DataFrame], ...]:
    return tuple((signal, frame) for signal, frame in frames if not frame.is_empty())


def _dead_letter_of_record(record: AnyRecord, error: ValueError) -> DeadLetter:
    return DeadLetter(
        signal_of(record.kind), RejectReason.UNREADABLE_RECORD, str(error), PROTOBUF, record.body, item_count=0
    )
