"""Carries the spool to ClickHouse, one block after the other.

Invariant: a block is committed only after ClickHouse confirmed all of it, and nothing newer is sent before. When the
outcome of an attempt is unknown, the same block goes again under the same tokens, so it is stored once.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from spanloop.semconv.errors import SpanloopError
from spanloop.spool import Spool, SpoolDamageError
from spanloop.store import Store

from .frame_blocks import BlockStrategy, PreparedBlock, Sent
from .health import Health
from .metrics import Metrics
from .protobuf_blocks import ProtobufStrategy
from .settings import Settings

_log = logging.getLogger(__name__)
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 3.0
_POLL_S: Final = 0.5
_LAST_ATTEMPT_S: Final = 0.5
_WORTH_WAITING_BYTES: Final = 256 * 1024
"""In one `Settings.linger_s`: some 80 spans of 3 KB. An insert costs as much as some hundreds of them."""
_LARGE_SHARE: Final = 4
"""A quarter of a full block is worth an insert of its own."""
_T = TypeVar("_T")


class Writer:
    """One drain of one spool.

    Args:
        spool: Read and committed by nobody else.
        connect: Opens the store; called again after every failure, because the server may come back elsewhere.
        metrics: Gets the insert counters.
        health: Learns whether blocks arrive.
        settings: Block size and timing.
        strategy: How bodies become rows.
    """

    def __init__(
        self,
        spool: Spool,
        connect: Callable[[], Store],
        metrics: Metrics,
        health: Health,
        *,
        settings: Settings,
        strategy: BlockStrategy | None = None,
    ) -> None:
        self._spool = spool
        self._connect = connect
        self._metrics = metrics
        self._health = health
        self._settings = settings
        self._strategy: BlockStrategy = strategy or ProtobufStrategy()
        self._store: Store | None = None
        self._stopping = asyncio.Event()
        self._deadline_s = float("inf")
        # One thread, so that its memory is one arena's; asyncio's own are several.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="writer")

    async def run(self) -> None:
        """Drain until `stop`, and then until the spool is empty or the drain's time is up."""
        try:
            await self._try_to_connect()
            while not self._is_over():
                if await self._spool.wait(_POLL_S if not self._stopping.is_set() else 0.0):
                    await self._linger()
                    await self._drain_one()
                elif self._stopping.is_set():
                    return
                elif self._health.error:
                    # Nothing waits, so nothing else would notice that the store is back.
                    await self._try_to_connect()
        finally:
            self._thread.shutdown(wait=False)
            if self._store is not None:
                self._store.close()

    def stop(self) -> None:
        """Let `run` finish; call it when no request can be accepted any more."""
        # While ClickHouse is away nobody should wait for it: the spool keeps what is left.
        timeout_s = _LAST_ATTEMPT_S if self._health.error else self._settings.drain_timeout_s
        self._deadline_s = time.monotonic() + timeout_s
        self._stopping.set()

    async def _drain_one(self) -> None:
        batch = await self._on_disk(lambda: self._spool.read(self._settings.block_bytes))
        if batch is None:
            self._spool.rearm()
            return
        try:
            block = await self._in_thread(lambda: self._strategy.prepare(batch))
            is_delivered = await self._deliver(block)
        except SpoolDamageError as error:
            # The spool looks at the block again when it is read next: the same id, without what is damaged.
            self._fail(error)
            await self._pause(_FIRST_PAUSE_S)
            return
        if is_delivered:
            self._metrics.count("unreadable_records_total", block.unreadable)
            await self._on_disk(lambda: self._spool.commit(batch))
            self._spool.rearm()

    async def _deliver(self, block: PreparedBlock) -> bool:
        """Send until confirmed; False when the collector stops first."""
        pause_s = _FIRST_PAUSE_S
        while not self._is_over():
            try:
                started_s = time.monotonic()
                sent = await self._in_thread(lambda: self._send(block))
            except SpoolDamageError:
                raise
            except SpanloopError as error:
                self._fail(error)
                await self._pause(pause_s)
                pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
                continue
            if self._health.error:
                _log.info("ClickHouse takes blocks again")
            self._health.inserted()
            self._metrics.observe("insert_seconds", time.monotonic() - started_s)
            self._metrics.count("inserted_total", sent.rows)
            self._metrics.count("refused_rows_total", sent.refused)
            self._metrics.set("last_insert_timestamp_seconds", time.time())
            return True
        return False

    def _send(self, block: PreparedBlock) -> Sent:
        if self._store is None:
            self._store = self._connect()
        return block.send(self._store)

    async def _try_to_connect(self) -> None:
        """Say in the health report whether the store is there before the first span comes."""
        try:
            self._store = await self._in_thread(self._connect)
        except SpanloopError as error:
            self._fail(error, is_counted=False)
        else:
            self._health.connected()

    def _fail(self, error: SpanloopError, *, is_counted: bool = True) -> None:
        if is_counted:
            self._metrics.count("insert_failures_total")
        if error.what != self._health.error:
            _log.warning("ClickHouse gets nothing; spans wait in the spool and this is retried: %s", error)
        self._health.failed(error.what)
        if self._store is not None:
            self._store.close()
            self._store = None

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def _on_disk(self, work: Callable[[], _T]) -> _T | None:
        """Repeat while the disk refuses: the block under way must not be forgotten. None when the collector stops."""
        pause_s = _FIRST_PAUSE_S
        has_failed = False
        while True:
            try:
                done = await self._in_thread(work)
            except OSError as error:
                has_failed = True
                self._health.failed(f"the spool's disk refuses: {error}")
                _log.warning("the spool's disk refuses, retrying: %s", error)
                if self._is_over():
                    return None
                await self._pause(pause_s)
                pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
            else:
                if has_failed:
                    self._health.connected()
                return done

    async def _linger(self) -> None:
        """Give a block time to fill, so that ClickHouse gets few large ones: the longer, the more comes."""
        end_s = time.monotonic() + self._settings.longest_linger_s
        waiting_bytes, enough_bytes = self._spool.stats.bytes, self._settings.block_bytes
        while waiting_bytes < enough_bytes and not self._stopping.is_set():
            await self._pause(self._settings.linger_s)
            before_bytes, waiting_bytes = waiting_bytes, self._spool.stats.bytes
            if waiting_bytes - before_bytes < _WORTH_WAITING_BYTES or time.monotonic() >= end_s:
                return
            enough_bytes = self._settings.block_bytes // _LARGE_SHARE

    async def _pause(self, pause_s: float) -> None:
        jittered_s = pause_s * random.uniform(0.8, 1.2)  # noqa: S311 - spreads retries, guards nothing
        if self._stopping.is_set():
            await asyncio.sleep(min(jittered_s, _LAST_ATTEMPT_S))
            return
        try:
            await asyncio.wait_for(self._stopping.wait(), jittered_s)
        except TimeoutError:
            return

    def _is_over(self) -> bool:
        return time.monotonic() > self._deadline_s
