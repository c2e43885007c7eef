"""Blocks whose spans ClickHouse parses itself: half the CPU of rows that Python makes.

Invariant: the rows are those of `blocks.PolarsStrategy`. When ClickHouse refuses the raw block for good, or cannot read
it, the block goes as rows, under tokens of their own; the refusal is durable before, so that only one of the two is
stored. Logs and dead letters go as rows.
"""

import logging
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from spanloop.semconv.errors import StoreError
from spanloop.spool import AnyRecord, Batch, Record
from spanloop.store import Store

from .dead_letters import Signal
from .frame_blocks import FrameBlock, PolarsStrategy, Sent
from .insert_errors import RefusedRanges, is_unreadable
from .otlp.clickhouse_encoding import tidy
from .otlp.wire import MalformedError
from .record_kinds import ready_spans

_log = logging.getLogger(__name__)
_STATEMENT: Final = "collector_insert_spans"
_PIECE_BYTES: Final = 256 * 1024
"""Small bodies are joined up to this: each piece is a call of the operating system. Larger ones go as they are."""


class Bodies:
    """The bodies of records, one OTLP request in a row, read from the spool piece by piece as often as they are sent.

    Args:
        records: Requests that ClickHouse can read.
    """

    def __init__(self, records: Sequence[AnyRecord]) -> None:
        self._records = records
        self.size_bytes = sum(record.body_bytes for record in records)
        """Of all together."""

    def __iter__(self) -> Iterator[bytes]:
        pieces: list[bytes] = []
        size_bytes = 0
        for record in self._records:
            if size_bytes + record.body_bytes > _PIECE_BYTES and pieces:
                yield b"".join(pieces)
                pieces, size_bytes = [], 0
            pieces.append(record.body)
            size_bytes += record.body_bytes
        if pieces:
            yield b"".join(pieces)


class ProtobufBlock(NamedTuple):
    """A block, its spans as one OTLP request."""

    others: FrameBlock
    """Logs, dead letters, and what is no request."""
    traces: Batch
    """The records of the spans."""
    request: Bodies
    """One OTLP request: bodies in a row are one."""
    spans: int
    refused: RefusedRanges

    @property
    def unreadable(self) -> int:
        """Records that could not be turned into rows; they are dead letters."""
        return self.others.unreadable

    def send(self, store: Store) -> Sent:
        """Insert the spans, then the others, each under its own token."""
        spans = self._send_spans(store) if self.spans else Sent(0, 0)
        others = self.others.send(store)
        return Sent(spans.rows + others.rows, spans.refused + others.refused)

    def _send_spans(self, store: Store) -> Sent:
        token = f"{self.traces.block_id}-otel_traces"
        if token not in self.refused:
            try:
                store.insert_from(_STATEMENT, self.request, token=token)
            except StoreError as error:
                if not is_unreadable(error):
                    raise
                _log.warning("ClickHouse refuses %d spans as protobuf, so they go as rows: %s", self.spans, error.what)
                self.refused.add(self.traces.block_id, token)
            else:
                return Sent(self.spans, 0)
        return PolarsStrategy(self.refused, "-rows").prepare(self.traces).send(store)


class ProtobufStrategy:
    """Lets ClickHouse parse the spans.

    Args:
        refused: Remembers what was refused for good.
    """

    def __init__(self, refused: RefusedRanges | None = None) -> None:
        self._refused = refused or RefusedRanges()

    def prepare(self, batch: Batch) -> ProtobufBlock:
        """Collect the trace requests, in the form that ClickHouse reads."""
        requests: list[AnyRecord] = []
        traces: list[AnyRecord] = []
        others: list[AnyRecord] = []
        spans = 0
        for record in batch.records:
            count = ready_spans(record.kind)
            request: AnyRecord | None = record
            if count is None:
                request, count = _tidied(record)
            if request is None:
                others.append(record)
                continue
            traces.append(record)
            requests.append(request)
            spans += count
        rest = PolarsStrategy(self._refused).prepare(Batch(batch.block_id, tuple(others)))
        return ProtobufBlock(rest, Batch(batch.block_id, tuple(traces)), Bodies(requests), spans, self._refused)


def _tidied(record: AnyRecord) -> tuple[Record | None, int]:
    """A record of an older spanloop as ClickHouse reads it, and its spans; None for what is no trace request."""
    if record.kind != Signal.TRACES:
        return None, 0
    try:
        tidied = tidy(record.body)
    except MalformedError:
        return None, 0
    return Record(record.kind, tidied.body, record.seq, record.accepted_ns), tidied.spans
