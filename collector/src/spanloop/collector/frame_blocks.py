"""How a block of spooled bodies becomes rows: the writer's exchangeable strategy.

Invariant: sending a prepared block twice stores it once. The token of each part is the block's id and the part's
table; the same block always gives the same parts. A row that ClickHouse refuses for good becomes a dead letter, and
its neighbours are stored.
"""

import logging
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, Protocol

import polars as pl
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from spanloop.semconv.errors import StoreError
from spanloop.spool import AnyRecord, Batch
from spanloop.store import Store

from . import dead_letters
from .dead_letters import DeadLetter, DeadLetterRows, RejectReason, Signal
from .insert_errors import RefusedRanges, is_for_good
from .log_rows import LogRows
from .otlp.wire import parse
from .record_kinds import signal_of
from .span_rows import SpanRows
from .validation import PROTOBUF, count_items, letter_of_items, pick

_log = logging.getLogger(__name__)
_TABLES: Final = {Signal.TRACES: "otel_traces", Signal.LOGS: "otel_logs"}


class Sent(NamedTuple):
    """What became of a block."""

    rows: int
    """Spans and log records that are stored."""
    refused: int
    """Spans and log records that ClickHouse refuses for good; they are dead letters."""


class PreparedBlock(Protocol):
    """A block that is ready to be sent, as often as it takes."""

    @property
    def unreadable(self) -> int:
        """Records that could not be turned into rows; they are dead letters."""
        ...

    def send(self, store: Store) -> Sent:
        """Insert it. Raises StoreError when the outcome is an outage or unknown: then send it again."""
        ...


class BlockStrategy(Protocol):
    """Turns batches of the spool into blocks for ClickHouse."""

    def prepare(self, batch: Batch) -> PreparedBlock:
        """Everything that can be done without ClickHouse."""
        ...


class FrameBlock(NamedTuple):
    """A block as frames."""

    batch: Batch
    frames: tuple[tuple[Signal, pl.DataFrame], ...]
    """Rows in the order of the records' items."""
    letters: pl.DataFrame
    unreadable: int
    refused: RefusedRanges
    attempt: str
    """Part of every token: tells this way of sending the block from another one that was refused for good."""

    def send(self, store: Store) -> Sent:
        """Insert the frames, each under its own token."""
        rows = 0
        bad: list[tuple[Signal, int, str]] = []
        for signal, frame in self.frames:
            for first, end, error in self._send_range(store, signal, frame, 0, frame.height):
                if error:
                    bad.append((signal, first, error))
                else:
                    rows += end - first
        self._send_letters(store, self.letters, "")
        if bad:
            _log.error("ClickHouse refuses %d rows for good; they become dead letters: %s", len(bad), bad[0][2])
            refused = DeadLetterRows()
            for signal, row, error in bad:
                refused.add(*self._letter(signal, row, error))
            self._send_letters(store, refused.to_frame(), "-refused")
        return Sent(rows, len(bad))

    def _send_range(
        self, store: Store, signal: Signal, frame: pl.DataFrame, first: int, end: int
    ) -> Iterator[tuple[int, int, str]]:
        """Store a range of rows; gives the ranges that are stored (with no error), and the single rows that are not."""
        token = f"{self.batch.block_id}-{_TABLES[signal]}{self.attempt}"
        if end - first < frame.height:
            token += f"-{first}-{end}"
        detail = "refused before a restart"
        if token not in self.refused:
            try:
                store.insert(_TABLES[signal], frame[first:end], token=token)
            except StoreError as error:
                if not is_for_good(error):
                    raise
                detail = error.what
                self.refused.add(self.batch.block_id, token)
            else:
                yield first, end, ""
                return
        if end - first == 1:
            yield first, end, detail
            return
        middle = (first + end) // 2
        yield from self._send_range(store, signal, frame, first, middle)
        yield from self._send_range(store, signal, frame, middle, end)

    def _send_letters(self, store: Store, letters: pl.DataFrame, which: str) -> None:
        if not letters.is_empty():
            store.insert(
                dead_letters.TABLE, letters, token=f"{self.batch.block_id}-{dead_letters.TABLE}{self.attempt}{which}"
            )

    def _letter(self, signal: Signal, row: int, error: str) -> tuple[DeadLetter, int]:
        """The dead letter of one row, and when it was received."""
        for record in self.batch.records:
            items = count_items(signal, record.body) if signal_of(record.kind) == signal else 0
            if row < items:
                request = pick(signal, record.body, row)
                letter = letter_of_items(signal, request, RejectReason.REFUSED_BY_CLICKHOUSE, error)
                return letter, record.accepted_ns
            row -= items
        raise AssertionError(f"block {self.batch.block_id} has no row {row} of {signal}")


class PolarsStrategy:
    """Parses in Python and inserts polars frames.

    Args:
        refused: Remembers which ranges of rows were refused for good.
        attempt: Part of every token, see `FrameBlock.attempt`.
    """

    def __init__(self, refused: RefusedRanges | None = None, attempt: str = "") -> None:
        self._refused = refused or RefusedRanges()
        self._attempt = attempt

    def prepare(self, batch: Batch) -> FrameBlock:
        """Parse every record. The door has checked them: what fails here is of another spanloop or a bug of ours."""
        traces, logs, letters = SpanRows(), LogRows(), DeadLetterRows()
        unreadable = 0
        for record in batch.records:
            try:
                if record.kind == dead_letters.KIND:
                    for letter in dead_letters.decode(record.body):
                        letters.add(letter, record.accepted_ns)
                    continue
                signal = Signal(signal_of(record.kind))
                if signal is Signal.TRACES:
                    traces.add(parse(ExportTraceServiceRequest, record.body))
                else:
                    logs.add(parse(ExportLogsServiceRequest, record.body))
            except ValueError as error:  # an unknown kind, or MalformedError
                unreadable += 1
                letters.add(_unreadable(record, error), record.accepted_ns)
                _log.error("spool record %d of block %s becomes a dead letter: %s", record.seq, batch.block_id, error)
        frames = _filled([(Signal.TRACES, traces.to_frame()), (Signal.LOGS, logs.to_frame())])
        return FrameBlock(batch, frames, letters.to_frame(), unreadable, self._refused, self._attempt)


def _filled(frames: Sequence[tuple[Signal, pl.DataFrame]]) -> tuple[tuple[Signal, pl.DataFrame], ...]:
    return tuple((signal, frame) for signal, frame in frames if not frame.is_empty())


def _unreadable(record: AnyRecord, error: ValueError) -> DeadLetter:
    return DeadLetter(
        signal_of(record.kind), RejectReason.UNREADABLE_RECORD, str(error), PROTOBUF, record.body, item_count=0
    )
