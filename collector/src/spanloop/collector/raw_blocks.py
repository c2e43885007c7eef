"""Blocks whose spans ClickHouse parses itself: half the CPU of rows that Python makes.

Invariant: the rows are those of `blocks.PolarsStrategy`. When ClickHouse refuses the raw block for good, or cannot read
it, the block goes as rows, under tokens of their own; the refusal is durable before, so that only one of the two is
stored. Logs and dead letters go as rows.
"""

import logging
from typing import Final, NamedTuple

from spanloop.semconv.errors import StoreError
from spanloop.store import Store
from spanloop.store.spool import Batch, Record

from .blocks import FrameBlock, PolarsStrategy, Sent
from .dead_letters import Signal
from .records import ready_spans
from .refused_rows import RefusedRanges, is_unreadable
from .tidy import Tidied, tidy
from .wire import MalformedError

_log = logging.getLogger(__name__)
_STATEMENT: Final = "collector_insert_spans"


class RawBlock(NamedTuple):
    """A block, its spans as one OTLP request."""

    others: FrameBlock
    """Logs, dead letters, and what is no request."""
    traces: Batch
    """The records of the spans."""
    request: tuple[bytes, ...]
    """Pieces of one OTLP request: bodies in a row are one."""
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

    def prepare(self, batch: Batch) -> RawBlock:
        """Collect the trace requests, in the form that ClickHouse reads."""
        requests: list[bytes] = []
        traces: list[Record] = []
        others: list[Record] = []
        spans = 0
        for record in batch.records:
            tidied = _tidied(record)
            if tidied is None:
                others.append(record)
                continue
            traces.append(record)
            requests.append(tidied.body)
            spans += tidied.spans
        rest = PolarsStrategy(self._refused).prepare(Batch(batch.block_id, tuple(others)))
        return RawBlock(rest, Batch(batch.block_id, tuple(traces)), tuple(requests), spans, self._refused)


def _tidied(record: Record) -> Tidied | None:
    """None for what is no trace request."""
    spans = ready_spans(record.kind)
    if spans is not None:
        return Tidied(record.body, spans)
    try:
        return tidy(record.body) if record.kind == Signal.TRACES else None
    except MalformedError:
        return None
