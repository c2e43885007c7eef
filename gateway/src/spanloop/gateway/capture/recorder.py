"""Write captured logprobs to the spool before the response ends, and from there to the table ``generations``.

`spanloop.converters.tokens.captures` joins the rows to spans, by ``gen_ai.response.id``.

Invariant: when `Recorder.record` returned True, the capture is on disk and is inserted into ClickHouse exactly once,
sooner or later. A block is sent under its block id until ClickHouse accepts it; newer blocks wait.
"""

import asyncio
import json
import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import polars as pl

from spanloop.foundation.errors import SpanloopError
from spanloop.foundation.tables.arrivals import GENERATIONS
from spanloop.spool import AnyRecord, Batch, Spool, SpoolStats
from spanloop.store import Store

from ..canary.call import KIND as CANARY_KIND
from ..canary.call import TABLE as CANARY_TABLE
from ..canary.call import CanaryCall, calls_frame, decode_call, encode_call
from ..canary.shadow_answer import KIND as SHADOW_KIND
from ..canary.shadow_answer import TABLE as SHADOW_TABLE
from ..canary.shadow_answer import ShadowAnswer, decode_shadow, encode_shadow, shadow_frame
from ..metrics import Metrics
from .tokens import Capture, decode_captures, encode_captures

_log: Final = logging.getLogger(__name__)
_KIND: Final = "generation"
_BLOCK_BYTES: Final = 8 * 2**20
_LINGER_S: Final = 0.1
_MAX_PAUSE_S: Final = 15.0
_POLL_S: Final = 5.0
_LAST_DRAIN_S: Final = 1.5
_TABLE: Final = GENERATIONS.name


def to_frame(captures: Sequence[Capture]) -> pl.DataFrame:
    """Return rows of the table ``generations``, one for each capture.

    Raises:
        polars.exceptions.PolarsError: A value does not fit its column.
        TypeError: A value has another type.
        OverflowError: A number is out of its column's range.
    """
    return GENERATIONS.from_records(captures, {"started_at": "started_ns"})


class _RecordKind(NamedTuple):
    """Makes rows of the records of one kind."""

    table: str
    decode: Callable[[bytes], Sequence[Any]]
    to_frame: Callable[[Sequence[Any]], pl.DataFrame]


def _decode_call(body: bytes) -> list[CanaryCall]:
    return [decode_call(body)]


def _decode_shadow(body: bytes) -> list[ShadowAnswer]:
    return [decode_shadow(body)]


_KINDS: Final = {
    _KIND: _RecordKind(_TABLE, decode_captures, to_frame),
    CANARY_KIND: _RecordKind(CANARY_TABLE, _decode_call, calls_frame),
    SHADOW_KIND: _RecordKind(SHADOW_TABLE, _decode_shadow, shadow_frame),
}


class Recorder:
    """Appends captures to the spool and inserts them into ClickHouse.

    Args:
        spool: An open spool; `close` closes it.
        connect: Connects to the store; may raise while ClickHouse is unavailable.
        rejected_path: The file for records that cannot become rows, as JSON lines.
        metrics: The counters to update.
    """

    def __init__(self, spool: Spool, connect: Callable[[], Store], rejected_path: Path, metrics: Metrics) -> None:
        self._spool = spool
        self._connect = connect
        self._rejected_path = rejected_path
        self._metrics = metrics
        self._store: Store | None = None
        self._last_insert_s = 0.0
        self._last_error = ""
        self._pending_appends: set[asyncio.Task[bool]] = set()
        self._drain_lock = threading.Lock()
        self._rejected_seqs: set[int] = set()

    @property
    def stats(self) -> SpoolStats:
        """Records that wait for ClickHouse."""
        return self._spool.stats

    @property
    def last_insert_s(self) -> float:
        """Time of the last insert, seconds since the epoch; 0 before the first."""
        return self._last_insert_s

    @property
    def last_error(self) -> str:
        """The error of the last insert; empty when it succeeded."""
        return self._last_error

    async def record(self, captures: Sequence[Capture]) -> bool:
        """Write the captures to disk. Cancelling the calling task does not interrupt the write.

        Returns:
            False when the write failed. The response is delivered nevertheless, since failing the user's app would not
            recover the tokens; the loss is counted and logged.
        """
        if not captures:
            return True
        task = asyncio.create_task(self._append(list(captures)))
        self._pending_appends.add(task)
        task.add_done_callback(self._pending_appends.discard)
        return await asyncio.shield(task)

    async def record_call(self, call: CanaryCall) -> None:
        """Write a call that a canary compares to disk. A failure is counted and logged; the call was answered."""
        await self._append_other(CANARY_KIND, encode_call(call))

    async def record_shadow(self, answer: ShadowAnswer) -> None:
        """Write what a shadow answered to disk; as `record_call`."""
        await self._append_other(SHADOW_KIND, encode_shadow(answer))

    async def run(self) -> None:
        """Insert from the spool until cancelled."""
        pause_s = 0.5
        while True:
            await self._spool.wait(_POLL_S)
            await asyncio.sleep(_LINGER_S)
            try:
                while await asyncio.to_thread(self._drain_block):
                    pause_s = 0.5
                self._spool.rearm()
            except (SpanloopError, OSError) as error:
                if str(error) != self._last_error:
                    _log.warning("captures stay in the spool, inserting into ClickHouse fails: %s", error)
                self._last_error = str(error)
                self._drop_store()
                await asyncio.sleep(pause_s)
                pause_s = min(_MAX_PAUSE_S, pause_s * 2)

    async def close(self) -> None:
        """Finish pending writes, try once to empty the spool, and close it."""
        if self._pending_appends:
            await asyncio.wait(self._pending_appends)
        if self._spool.stats.records:
            drain = asyncio.create_task(asyncio.to_thread(self._drain_all))
            await asyncio.wait({drain}, timeout=_LAST_DRAIN_S)
            # A block whose insert has not finished is sent again, with the same token, after the next start.
        self._spool.close()
        self._drop_store()

    async def _append_other(self, kind: str, body: bytes) -> None:
        try:
            await self._spool.append(kind, body)
        except SpanloopError as error:
            self._metrics.count("captures_lost_total")
            _log.error("a record of the kind %s is lost: %s", kind, error)

    async def _append(self, captures: list[Capture]) -> bool:
        try:
            await self._spool.append(_KIND, encode_captures(captures))
        except SpanloopError as error:
            self._metrics.count("captures_lost_total", len(captures))
            _log.error("the captured tokens of %s are lost: %s", captures[0].response_id, error)
            return False
        for capture in captures:
            self._metrics.count("captures_total", complete=str(capture.is_complete).lower())
            self._metrics.count("tokens_total", len(capture.response_token_ids), kind="response")
        self._metrics.count("tokens_total", len(captures[0].prompt_token_ids), kind="prompt")
        return True

    def _drain_all(self) -> None:
        try:
            while self._drain_block():
                pass
        except (SpanloopError, OSError) as error:
            _log.warning("captures stay in the spool until the next start: %s", error)

    def _drain_block(self) -> bool:
        """Insert one block; return False if the spool is empty."""
        # A cancelled `run` may leave its thread running.
        with self._drain_lock:
            batch = self._spool.read(_BLOCK_BYTES)
            if batch is None:
                return False
            if self._store is None:
                self._store = self._connect()
            frames = self._to_rows(batch)
            for table, frame in frames.items():
                if frame.height:
                    self._store.insert(table, frame, token=batch.block_id)
            self._spool.commit(batch)
            self._rejected_seqs.clear()
            self._last_insert_s, self._last_error = time.time(), ""
            self._metrics.count("captures_inserted_total", frames[_TABLE].height)
            return True

    def _to_rows(self, batch: Batch) -> dict[str, pl.DataFrame]:
        """Return rows by table."""
        records: dict[str, list[AnyRecord]] = {kind: [] for kind in _KINDS}
        for record in batch.records:
            records[record.kind if record.kind in _KINDS else _KIND].append(record)
        return {_KINDS[kind].table: self._frame(_KINDS[kind], each) for kind, each in records.items()}

    def _frame(self, kind: _RecordKind, records: Sequence[AnyRecord]) -> pl.DataFrame:
        """Return the rows of records of one kind. Where they make no frame, halves do, down to the invalid record."""
        try:
            return kind.to_frame([row for record in records for row in kind.decode(record.body)])
        except (ValueError, TypeError, AttributeError, OverflowError, pl.exceptions.PolarsError) as error:
            if len(records) == 1:
                self._reject(records[0], error)
                return kind.to_frame([])
        middle = len(records) // 2
        return pl.concat([self._frame(kind, records[:middle]), self._frame(kind, records[middle:])])

    def _reject(self, record: AnyRecord, error: Exception) -> None:
        """Write a record that can never become a row to the rejected file, once, to unblock newer records."""
        if record.seq in self._rejected_seqs:
            return
        self._rejected_path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._rejected_path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"error": str(error), "body": record.body.decode(errors="replace")}) + "\n")
        self._rejected_seqs.add(record.seq)
        self._metrics.count("captures_rejected_total")
        _log.error("a capture cannot become a row and was moved to %s: %s", self._rejected_path, error)

    def _drop_store(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            store.close()
