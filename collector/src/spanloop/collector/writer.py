"""Write the spool to ClickHouse, one block after the other.

Invariant: a block is committed only after ClickHouse confirmed all of it, and no newer block is sent before. After an
unknown outcome the same block is inserted again under the same deduplication tokens, so it is stored once. If the
server started again meanwhile, the block is also compared with the tables: a killed server may ignore what it has lost.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from spanloop.embedded_clickhouse.config import default_memory_cap_bytes
from spanloop.foundation.errors import SpanloopError
from spanloop.foundation.settings.roles import CollectorSettings
from spanloop.spool import Batch, Spool, SpoolDamageError
from spanloop.store import Store

from .blocks.frame_blocks import BlockStrategy, InsertResult, PreparedBlock
from .blocks.lost_rows import may_have_lost_rows
from .blocks.protobuf_blocks import ProtobufStrategy
from .health import Health
from .metrics import Metrics

_log = logging.getLogger(__name__)
_MIN_PAUSE_S: Final = 0.1
_MAX_PAUSE_S: Final = 3.0
_POLL_S: Final = 0.5
_LAST_ATTEMPT_S: Final = 0.5
_WORTH_WAITING_BYTES: Final = 256 * 1024
"""Per `CollectorSettings.linger_s`: some 80 spans of 3 KB. An insert costs as much as some hundreds of spans."""
_LARGE_SHARE: Final = 4
"""A quarter of a full block is worth an insert of its own."""
_BLOCK_BYTES: Final = 64 * 2**20
"""Blocks of half this size cost ClickHouse some 15 % more CPU."""
_BLOCK_SHARE: Final = 16
"""An insert takes seven to eleven times the block's bytes of ClickHouse's memory."""
_T = TypeVar("_T")


class Writer:
    """Drains one spool.

    Args:
        spool: The spool; only this writer reads and commits it.
        connect: Opens the store; called again after every failure, because the server's address may change.
        metrics: Counts inserts.
        health: Is updated with the outcome of each insert.
        settings: Block size and timing.
        strategy: Converts bodies to blocks.
    """

    def __init__(
        self,
        spool: Spool,
        connect: Callable[[], Store],
        metrics: Metrics,
        health: Health,
        *,
        settings: CollectorSettings,
        strategy: BlockStrategy | None = None,
    ) -> None:
        self._spool = spool
        self._connect = connect
        self._metrics = metrics
        self._health = health
        self._settings = settings
        self._block_bytes = settings.block_bytes or min(_BLOCK_BYTES, default_memory_cap_bytes() // _BLOCK_SHARE)
        self._strategy: BlockStrategy = strategy or ProtobufStrategy()
        self._store: Store | None = None
        self._is_outcome_unknown = spool.stats.records > 0
        """Whether the oldest block may have been sent before, by this process or the one before it."""
        self._stopping = asyncio.Event()
        self._deadline_s = float("inf")
        # One thread uses one malloc arena; asyncio's default executor uses several.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="writer")

    async def run(self) -> None:
        """Drain until `stop`, and then until the spool is empty or the drain timeout has passed."""
        try:
            await self._try_to_connect()
            while not self._is_past_deadline():
                if await self._spool.wait(_POLL_S if not self._stopping.is_set() else 0.0):
                    await self._linger()
                    await self._drain_one()
                elif self._stopping.is_set():
                    return
                elif self._health.error:
                    # The spool is empty, so no insert would notice that the store is available again.
                    await self._try_to_connect()
        finally:
            self._thread.shutdown(wait=False)
            if self._store is not None:
                self._store.close()

    def stop(self) -> None:
        """Let `run` finish; call it when no more requests can be accepted."""
        # Do not wait for an unavailable ClickHouse: the rest stays in the spool.
        timeout_s = _LAST_ATTEMPT_S if self._health.error else self._settings.drain_timeout_s
        self._deadline_s = time.monotonic() + timeout_s
        self._stopping.set()

    async def _drain_one(self) -> None:
        batch = await self._retry_on_disk(lambda: self._spool.read(self._block_bytes))
        if batch is None:
            self._spool.rearm()
            return
        try:
            block = await self._in_thread(lambda: self._strategy.prepare(batch))
            is_delivered = await self._deliver(block, batch)
        except SpoolDamageError as error:
            # The next read checks the block again: it has the same id, without the damaged records.
            self._fail(error)
            await self._pause(_MIN_PAUSE_S)
            return
        if is_delivered:
            self._metrics.count("unreadable_records_total", block.unreadable)
            await self._retry_on_disk(lambda: self._spool.commit(batch))
            self._spool.rearm()

    async def _deliver(self, block: PreparedBlock, batch: Batch) -> bool:
        """Insert a block until it is confirmed; return False when the collector stops first."""
        pause_s = _MIN_PAUSE_S
        while not self._is_past_deadline():
            try:
                started_s = time.monotonic()
                result = await self._in_thread(lambda: self._insert(block, batch))
            except SpoolDamageError:
                raise
            except SpanloopError as error:
                self._fail(error)
                await self._pause(pause_s)
                pause_s = min(pause_s * 2, _MAX_PAUSE_S)
                continue
            if self._health.error:
                _log.info("ClickHouse accepts blocks again")
            self._health.mark_inserted()
            self._metrics.observe("insert_seconds", time.monotonic() - started_s)
            self._metrics.count("inserted_total", result.rows)
            self._metrics.count("refused_rows_total", result.refused)
            self._metrics.set("last_insert_timestamp_seconds", time.time())
            return True
        return False

    def _insert(self, block: PreparedBlock, batch: Batch) -> InsertResult:
        store = self._store = self._store or self._connect()
        is_repeated, self._is_outcome_unknown = self._is_outcome_unknown, True
        result = block.insert(store)
        if is_repeated and may_have_lost_rows(store, batch):
            restored = block.restore(store, f"-{time.time_ns()}")
            if restored:
                _log.warning("ClickHouse was killed and had lost %d rows of a block: they are stored now", restored)
            self._metrics.count("restored_rows_total", restored)
        self._is_outcome_unknown = False
        return result

    async def _try_to_connect(self) -> None:
        """Connect, so that the health report states the store's availability before the first span arrives."""
        try:
            self._store = await self._in_thread(self._connect)
        except SpanloopError as error:
            self._fail(error, is_counted=False)
        else:
            self._health.mark_connected()

    def _fail(self, error: SpanloopError, *, is_counted: bool = True) -> None:
        if is_counted:
            self._metrics.count("insert_failures_total")
        if error.what != self._health.error:
            _log.warning("ClickHouse receives no blocks; spans stay in the spool and the insert is retried: %s", error)
        self._health.mark_failed(error.what)
        if self._store is not None:
            self._store.close()
            self._store = None

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def _retry_on_disk(self, work: Callable[[], _T]) -> _T | None:
        """Retry while the disk fails, so that the current block is not lost; return None when the collector stops."""
        pause_s = _MIN_PAUSE_S
        has_failed = False
        while True:
            try:
                result = await self._in_thread(work)
            except OSError as error:
                has_failed = True
                self._health.mark_failed(f"the spool's disk fails: {error}")
                _log.warning("the spool's disk fails, retrying: %s", error)
                if self._is_past_deadline():
                    return None
                await self._pause(pause_s)
                pause_s = min(pause_s * 2, _MAX_PAUSE_S)
            else:
                if has_failed:
                    self._health.mark_connected()
                return result

    async def _linger(self) -> None:
        """Wait for a block to fill, so that ClickHouse gets few large inserts: longer while more data arrives."""
        end_s = time.monotonic() + self._settings.longest_linger_s
        waiting_bytes, enough_bytes = self._spool.stats.bytes, self._block_bytes
        while waiting_bytes < enough_bytes and not self._stopping.is_set():
            await self._pause(self._settings.linger_s)
            before_bytes, waiting_bytes = waiting_bytes, self._spool.stats.bytes
            if waiting_bytes - before_bytes < _WORTH_WAITING_BYTES or time.monotonic() >= end_s:
                return
            enough_bytes = self._block_bytes // _LARGE_SHARE

    async def _pause(self, pause_s: float) -> None:
        jittered_s = pause_s * random.uniform(0.8, 1.2)  # noqa: S311 - spreads retries, not for security
        if self._stopping.is_set():
            await asyncio.sleep(min(jittered_s, _LAST_ATTEMPT_S))
            return
        try:
            await asyncio.wait_for(self._stopping.wait(), jittered_s)
        except TimeoutError:
            return

    def _is_past_deadline(self) -> bool:
        return time.monotonic() > self._deadline_s
