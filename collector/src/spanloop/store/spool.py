"""Bodies on disk before they are acknowledged: an fsynced queue between a server and ClickHouse.

Invariant: when `Spool.append` returns, the record survives a crash of the process and of the machine, and it stays
until the block that holds it was committed. When it raises, the record was not acknowledged to anybody. Many
waiting appends share one fdatasync, which runs off the event loop. The spool knows nothing of what a body holds.

Used by the collector (``spool/``) and the gateway (``generations/``).
"""

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

from spanloop.semconv.errors import DataDirectoryError

from .datadir import disk_error
from .spool_frames import MAX_BODY_BYTES, MAX_KIND_BYTES, Record, frame_bytes
from .spool_journal import Batch, Journal, SpoolStats

__all__ = ["Batch", "Record", "Spool", "SpoolDiskError", "SpoolFullError", "SpoolStats"]

_SEGMENT_BYTES: Final = 64 * 2**20
_GROUP_BYTES: Final = 64 * 2**20


class SpoolFullError(DataDirectoryError):
    """The spool holds as much as it may; whoever sent the body should retry later."""


class SpoolDiskError(DataDirectoryError):
    """The disk refused the record; it was not acknowledged."""


class _Waiting(NamedTuple):
    items: tuple[tuple[str, bytes], ...]
    accepted_ns: int
    size_bytes: int
    done: asyncio.Future[None]


class Spool:
    """One spool directory, opened by one process. Appends come from one event loop; one thread at a time drains.

    Args:
        directory: Made when absent; locked while the spool is open.
        max_bytes: Most bytes that may wait to be committed. The files may be one segment larger.
        segment_bytes: A segment is closed when it has grown to this; default 64 MiB, at most a quarter of
            ``max_bytes``.

    Raises:
        AlreadyRunningError: Another process has this spool open.
        DataDirectoryError: The directory cannot be read or written, or its disk is full.
    """

    def __init__(self, directory: Path, *, max_bytes: int, segment_bytes: int | None = None) -> None:
        self._directory = directory
        self._max_bytes = max_bytes
        if segment_bytes is None:
            segment_bytes = max(1, min(_SEGMENT_BYTES, max_bytes // 4))
        try:
            self._journal = Journal(directory, segment_bytes=segment_bytes)
        except OSError as error:
            raise disk_error(directory, error) from error
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="spool-fsync")
        self._queue: list[_Waiting] = []
        self._queued_bytes = 0
        self._flusher: asyncio.Task[None] | None = None
        self._readable = asyncio.Event()
        if self._journal.pending_bytes:
            self._readable.set()

    async def append(self, kind: str, body: bytes) -> None:
        """Return when the record is on disk.

        Args:
            kind: What the body holds, for the reader; at most 64 KiB of UTF-8.
            body: Any bytes up to 4 GiB; empty is allowed.

        Raises:
            SpoolFullError: ``max_bytes`` are waiting already.
            SpoolDiskError: Disk full or broken; nothing was acknowledged.
        """
        await self.append_all([(kind, body)])

    async def append_all(self, items: Sequence[tuple[str, bytes]]) -> None:
        """Return when all of these (kind, body) records are on disk; when it raises, none of them counts.

        Raises:
            SpoolFullError, SpoolDiskError: As `append`.
        """
        for kind, body in items:
            if len(body) > MAX_BODY_BYTES or len(kind.encode()) > MAX_KIND_BYTES:
                raise ValueError(f"spool record of {len(body)} bytes: expected at most {MAX_BODY_BYTES}")
        size_bytes = sum(frame_bytes(kind, body) for kind, body in items)
        waiting_bytes = self._journal.pending_bytes + self._queued_bytes
        if waiting_bytes + size_bytes > self._max_bytes:
            raise SpoolFullError(
                f"the spool {self._directory} is full: {waiting_bytes} of {self._max_bytes} bytes wait for ClickHouse, "
                f"{size_bytes} more do not fit",
                next_step="see whether ClickHouse answers (`spanloop status`); senders retry by themselves",
            )
        loop = asyncio.get_running_loop()
        waiting = _Waiting(tuple(items), time.time_ns(), size_bytes, loop.create_future())
        self._queue.append(waiting)
        self._queued_bytes += size_bytes
        if self._flusher is None or self._flusher.done():
            self._flusher = loop.create_task(self._flush())
        await waiting.done

    async def wait(self, timeout_s: float) -> bool:
        """Wait until there is something to read; False when the time is up. ``timeout_s`` 0 only asks."""
        if self._readable.is_set():  # `wait_for` does not even look when it has no time
            return True
        try:
            await asyncio.wait_for(self._readable.wait(), timeout_s)
        except TimeoutError:
            return False
        return True

    def read(self, max_bytes: int) -> Batch | None:
        """The oldest block that is not committed, the same one until it is; None when there is nothing.

        Blocks on the disk. Safe in a thread beside the event loop that appends.

        Args:
            max_bytes: Most bytes of bodies in a *new* block; one record larger than that makes a block alone.

        Raises:
            OSError: The disk refused to persist the block's bounds; call again later.
        """
        return self._journal.read(max_bytes)

    def commit(self, batch: Batch) -> None:
        """Forget a block whose records are safe elsewhere; durable on return.

        Raises:
            ValueError: It is not the block under way.
            OSError: The disk refused; the block stays under way.
        """
        self._journal.commit(batch)

    def rearm(self) -> None:
        """Let `wait` wait again when everything was read; call it on the event loop's thread after a commit."""
        if not self._journal.pending_bytes:
            self._readable.clear()

    @property
    def stats(self) -> SpoolStats:
        """The fill right now."""
        return self._journal.stats

    def close(self) -> None:
        """Finish the group that is being written and release the directory. Await all appends first."""
        self._executor.shutdown(wait=True)
        self._journal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    async def _flush(self) -> None:
        loop = asyncio.get_running_loop()
        while self._queue:
            group = self._take_group()
            items = [(kind, body, waiting.accepted_ns) for waiting in group for kind, body in waiting.items]
            failure: Exception | None = None
            try:
                await loop.run_in_executor(self._executor, self._journal.write, items)
                self._readable.set()
            except Exception as error:  # noqa: BLE001 - every waiter gets it, none may hang
                failure = error
            for waiting in group:
                self._queued_bytes -= waiting.size_bytes
                if not waiting.done.done():
                    self._resolve(waiting, failure)

    def _take_group(self) -> list[_Waiting]:
        size_bytes = 0
        for count, waiting in enumerate(self._queue):
            size_bytes += waiting.size_bytes
            if count and size_bytes > _GROUP_BYTES:
                break
        else:
            count = len(self._queue)
        group, self._queue = self._queue[:count], self._queue[count:]
        return group

    def _resolve(self, waiting: _Waiting, failure: Exception | None) -> None:
        if failure is None:
            waiting.done.set_result(None)
        elif isinstance(failure, OSError):
            reason = failure.strerror or failure
            error = SpoolDiskError(
                f"the spool {self._directory} could not store {waiting.size_bytes} bytes: {reason}",
                next_step=f"make room on the disk of {self._directory} or mend it; senders retry by themselves",
            )
            error.__cause__ = failure
            waiting.done.set_exception(error)
        else:
            waiting.done.set_exception(failure)
