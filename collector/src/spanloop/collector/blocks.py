"""How a block of spooled bodies becomes rows: the writer's exchangeable strategy.

Invariant: sending a prepared block twice stores it once. The token of each part is the block's id and the part's
table; the same block always gives the same parts.
"""

import logging
from typing import NamedTuple, Protocol

import polars as pl
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from spanloop.store import Store
from spanloop.store.spool import Batch, Record

from . import dead_letters
from .admission import PROTOBUF
from .dead_letters import DeadLetter, DeadLetterRows, RejectReason, Signal
from .log_rows import LogRows
from .trace_rows import TraceRows
from .wire import parse

_log = logging.getLogger(__name__)


class PreparedBlock(Protocol):
    """A block that is ready to be sent, as often as it takes."""

    @property
    def unreadable(self) -> int:
        """Records that could not be turned into rows."""
        ...

    def send(self, store: Store) -> int:
        """Insert it; returns the rows. Raises StoreError when the outcome is a failure or unknown."""
        ...


class BlockStrategy(Protocol):
    """Turns batches of the spool into blocks for ClickHouse."""

    def prepare(self, batch: Batch) -> PreparedBlock:
        """Everything that can be done without ClickHouse."""
        ...


class FrameBlock(NamedTuple):
    """A block as frames, one for each table."""

    block_id: str
    frames: tuple[tuple[str, pl.DataFrame], ...]
    unreadable: int

    def send(self, store: Store) -> int:
        """Insert the frames, each under its own token."""
        return sum(store.insert(table, frame, token=f"{self.block_id}-{table}") for table, frame in self.frames)


class PolarsStrategy:
    """Parses in Python and inserts polars frames."""

    def prepare(self, batch: Batch) -> FrameBlock:
        """Parse every record. The door has checked them: what fails here is of another spanloop or a bug of ours."""
        traces, logs, letters = TraceRows(), LogRows(), DeadLetterRows()
        unreadable = 0
        for record in batch.records:
            try:
                if record.kind == dead_letters.KIND:
                    for letter in dead_letters.decode(record.body):
                        letters.add(letter, record.accepted_ns)
                elif Signal(record.kind) is Signal.TRACES:
                    traces.add(parse(ExportTraceServiceRequest, record.body))
                else:
                    logs.add(parse(ExportLogsServiceRequest, record.body))
            except ValueError as error:  # an unknown kind, or MalformedError
                unreadable += 1
                letters.add(_unreadable(record, error), record.accepted_ns)
                _log.error("spool record %d of block %s becomes a dead letter: %s", record.seq, batch.block_id, error)
        frames = (
            ("otel_traces", traces.to_frame()),
            ("otel_logs", logs.to_frame()),
            (dead_letters.TABLE, letters.to_frame()),
        )
        filled = tuple((table, frame) for table, frame in frames if not frame.is_empty())
        return FrameBlock(batch.block_id, filled, unreadable)


def _unreadable(record: Record, error: ValueError) -> DeadLetter:
    return DeadLetter(record.kind, RejectReason.UNREADABLE_RECORD, str(error), PROTOBUF, record.body, item_count=0)
