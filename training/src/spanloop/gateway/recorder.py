"""Captures on their way: to the spool before the answer ends, from there to the table ``generations``.

Invariant: when `Recorder.record` returned True, the capture is on disk and reaches ClickHouse sooner or later, once.
A block is sent under its block id until ClickHouse took it, and nothing newer is sent before.
"""

import asyncio
import json
import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import polars as pl

from spanloop.semconv.errors import SpanloopError
from spanloop.spool import AnyRecord, Batch, Spool, SpoolStats
from spanloop.store import Store

from .capture import Capture, decode, encode
from .metrics import Metrics

_log: Final = logging.getLogger(__name__)
_KIND: Final = "generation"
_BLOCK_BYTES: Final = 8 * 2**20
_LINGER_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 15.0
_POLL_S: Final = 5.0
_LAST_DRAIN_S: Final = 1.5
_TABLE: Final = "generations"
_SCHEMA: Final = {
    "generation_id": pl.String(),
    "response_id": pl.String(),
    "choice_index": pl.UInt16(),
    "trace_id": pl.String(),
    "parent_span_id": pl.String(),
    "model": pl.String(),
    "policy_version": pl.String(),
    "prompt_token_ids": pl.List(pl.UInt32()),
    "response_token_ids": pl.List(pl.UInt32()),
    "logprobs": pl.List(pl.Float32()),
    "finish_reason": pl.String(),
    "is_complete": pl.Boolean(),
    "sampling": pl.Map(pl.String(), pl.String()),
    "started_at": pl.Datetime("ns", "UTC"),
    "duration_ns": pl.UInt64(),
}


def to_frame(captures: Sequence[Capture]) -> pl.DataFrame:
    """Rows of the table ``generations``, one for each capture.

    Raises:
        polars.exceptions.PolarsError: A value that does not fit its column.
        TypeError: A value of another type.
        OverflowError: A number out of its column's range.
    """
    columns: dict[str, object] = {name: [getattr(capture, name) for capture in captures] for name in _PLAIN}
    columns["sampling"] = [capture.sampling for capture in captures]
    columns["started_at"] = pl.Series([capture.started_ns for capture in captures], dtype=pl.Int64())
    frame = pl.DataFrame({name: columns[name] for name in _SCHEMA}, schema_overrides=_PLAIN_SCHEMA, strict=True)
    return frame.cast({"started_at": _SCHEMA["started_at"]})


_PLAIN: Final = tuple(name for name in _SCHEMA if name not in {"sampling", "started_at"})
_PLAIN_SCHEMA: Final = {name: kind for name, kind in _SCHEMA.items() if name != "started_at"}


class Recorder:
    """The spool and the writer behind it.

    Args:
        spool: Opened by the caller, closed by `close`.
        connect: Finds the store; may raise while ClickHouse is away.
        rejected_path: JSON lines of records that cannot become rows.
        metrics: Counted into.
    """

    def __init__(self, spool: Spool, connect: Callable[[], Store], rejected_path: Path, metrics: Metrics) -> None:
        self._spool = spool
        self._connect = connect
        self._rejected_path = rejected_path
        self._metrics = metrics
        self._store: Store | None = None
        self._last_insert_s = 0.0
        self._last_error = ""
        self._recording: set[asyncio.Task[bool]] = set()
        self._draining = threading.Lock()
        self._rejected_seqs: set[int] = set()

    @property
    def stats(self) -> SpoolStats:
        """What waits for ClickHouse."""
        return self._spool.stats

    @property
    def last_insert_s(self) -> float:
        """Wall clock of the last insert, seconds since the epoch; 0 before the first."""
        return self._last_insert_s

    @property
    def last_error(self) -> str:
        """Why captures do not reach ClickHouse now; empty when they do."""
        return self._last_error

    async def record(self, captures: Sequence[Capture]) -> bool:
        """Return when the captures are on disk; goes on to the end even when the caller is cancelled.

        Returns:
            False when the disk refused: the answer is delivered all the same, since failing the user's app would not
            bring the tokens back, and the loss is counted and logged.
        """
        if not captures:
            return True
        task = asyncio.create_task(self._append(list(captures)))
        self._recording.add(task)
        task.add_done_callback(self._recording.discard)
        return await asyncio.shield(task)

    async def run(self) -> None:
        """Drain until cancelled."""
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
                    _log.warning("captures wait on disk, ClickHouse does not take them: %s", error)
                self._last_error = str(error)
                self._drop_store()
                await asyncio.sleep(pause_s)
                pause_s = min(_LONGEST_PAUSE_S, pause_s * 2)

    async def close(self) -> None:
        """Finish what is being recorded, try once to empty the spool, and close it."""
        if self._recording:
            await asyncio.wait(self._recording)
        if self._spool.stats.records:
            drain = asyncio.create_task(asyncio.to_thread(self._drain_all))
            await asyncio.wait({drain}, timeout=_LAST_DRAIN_S)
            # A block that is still under way is sent again, with the same token, after the next start.
        self._spool.close()
        self._drop_store()

    async def _append(self, captures: list[Capture]) -> bool:
        try:
            await self._spool.append(_KIND, encode(captures))
        except SpanloopError as error:
            self._metrics.count("captures_lost_total", len(captures))
            _log.error("the tokens of %s are lost: %s", captures[0].response_id, error)
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
            _log.warning("captures stay on disk for the next start: %s", error)

    def _drain_block(self) -> bool:
        """Send one block; False when there is none. The lock: a cancelled `run` may leave its thread at work."""
        with self._draining:
            batch = self._spool.read(_BLOCK_BYTES)
            if batch is None:
                return False
            frame = self._to_rows(batch)
            if frame.height:
                if self._store is None:
                    self._store = self._connect()
                self._store.insert(_TABLE, frame, token=batch.block_id)
            self._spool.commit(batch)
            self._rejected_seqs.clear()
            self._last_insert_s, self._last_error = time.time(), ""
            self._metrics.count("captures_inserted_total", frame.height)
            return True

    def _to_rows(self, batch: Batch) -> pl.DataFrame:
        frames = [to_frame([])]
        for record in batch.records:
            try:
                frames.append(to_frame(decode(record.body)))
            except (ValueError, TypeError, AttributeError, OverflowError, pl.exceptions.PolarsError) as error:
                self._reject(record, error)
        return pl.concat(frames)

    def _reject(self, record: AnyRecord, error: Exception) -> None:
        """Keep, once, a record that no retry can turn into a row, so that it does not block the ones behind it."""
        if record.seq in self._rejected_seqs:
            return
        self._rejected_path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._rejected_path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"error": str(error), "body": record.body.decode(errors="replace")}) + "\n")
        self._rejected_seqs.add(record.seq)
        self._metrics.count("captures_rejected_total")
        _log.error("a stored capture cannot become a row, kept in %s: %s", self._rejected_path, error)

    def _drop_store(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            store.close()
