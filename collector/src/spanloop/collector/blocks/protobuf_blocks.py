"""Insert a block's spans as OTLP protobuf that ClickHouse parses: half the CPU of rows that Python makes.

Invariant: the rows are those of `frame_blocks.PolarsStrategy`. When ClickHouse refuses the protobuf block permanently,
or cannot parse it, the spans are inserted as frames under other deduplication tokens; the refusal is durable before, so
only one of the two is stored. Logs and dead letters are inserted as frames.
"""

import logging
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from spanloop.foundation.errors import StoreError
from spanloop.spool import AnyRecord, Batch
from spanloop.store import Store

from .frame_blocks import FrameBlock, InsertResult, PolarsStrategy, deduplication_token
from .insert_errors import RefusedRanges, can_retry_as_rows
from .record_kinds import encoded_span_count

_log = logging.getLogger(__name__)
_STATEMENT: Final = "collector_insert_spans"
_CHUNK_BYTES: Final = 256 * 1024
"""Small bodies are joined up to this size, because each chunk is a system call. Larger ones are sent unchanged."""


class Bodies:
    """The concatenated bodies of records: one OTLP request, read from the spool in chunks each time it is sent.

    Args:
        records: Requests that are encoded for ClickHouse.
    """

    def __init__(self, records: Sequence[AnyRecord]) -> None:
        self._records = records
        self.size_bytes = sum(record.body_bytes for record in records)
        """Size of all bodies together."""

    def __iter__(self) -> Iterator[bytes]:
        chunks: list[bytes] = []
        size_bytes = 0
        for record in self._records:
            if size_bytes + record.body_bytes > _CHUNK_BYTES and chunks:
                yield b"".join(chunks)
                chunks, size_bytes = [], 0
            chunks.append(record.body)
            size_bytes += record.body_bytes
        if chunks:
            yield b"".join(chunks)


class ProtobufBlock(NamedTuple):
    """A block with its spans as one OTLP request."""

    frames: FrameBlock
    """Logs, dead letters, and records that are no request."""
    traces: Batch
    """The records of the spans."""
    request: Bodies
    """One OTLP request: concatenated requests are one request."""
    spans: int
    refused_ranges: RefusedRanges

    @property
    def unreadable(self) -> int:
        """Records that could not be converted to rows; they become dead letters."""
        return self.frames.unreadable

    def insert(self, store: Store) -> InsertResult:
        """Insert the spans, then the frames, each under its own deduplication token."""
        spans = self._insert_spans(store) if self.spans else InsertResult(0, 0)
        frames = self.frames.insert(store)
        return InsertResult(spans.rows + frames.rows, spans.refused + frames.refused)

    def restore(self, store: Store, token_suffix: str) -> int:
        """Compare the spans, as frames, and the frames with their tables."""
        spans = self._as_frames().restore(store, token_suffix) if self.spans else 0
        return spans + self.frames.restore(store, token_suffix)

    def _as_frames(self) -> FrameBlock:
        return PolarsStrategy(self.refused_ranges, "-rows").prepare(self.traces)

    def _insert_spans(self, store: Store) -> InsertResult:
        token = deduplication_token(self.traces.block_id, "otel_traces")
        if token not in self.refused_ranges:
            try:
                store.insert_from(_STATEMENT, self.request, token=token)
            except StoreError as error:
                if not can_retry_as_rows(error):
                    raise
                _log.warning(
                    "ClickHouse refuses %d spans as protobuf; inserting them as rows: %s", self.spans, error.what
                )
                self.refused_ranges.add(self.traces.block_id, token)
            else:
                return InsertResult(self.spans, 0)
        return self._as_frames().insert(store)


class ProtobufStrategy:
    """Lets ClickHouse parse the spans.

    Args:
        refused_ranges: Remembers which blocks were refused permanently.
    """

    def __init__(self, refused_ranges: RefusedRanges | None = None) -> None:
        self._refused_ranges = refused_ranges or RefusedRanges()

    def prepare(self, batch: Batch) -> ProtobufBlock:
        """Collect the trace requests, encoded for ClickHouse."""
        traces: list[AnyRecord] = []
        remaining: list[AnyRecord] = []
        spans = 0
        for record in batch.records:
            count = encoded_span_count(record.kind)
            if count is None:
                remaining.append(record)
                continue
            traces.append(record)
            spans += count
        frames = PolarsStrategy(self._refused_ranges).prepare(Batch(batch.block_id, tuple(remaining)))
        return ProtobufBlock(frames, Batch(batch.block_id, tuple(traces)), Bodies(traces), spans, self._refused_ranges)
