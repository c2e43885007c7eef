"""Bodies on disk before they are acknowledged: an fsynced queue between a server and ClickHouse.

Invariant: when `Spool.append` returns, the record survives a crash of the process and of the machine, and it stays
until the block that holds it was committed. When it raises, the record was not acknowledged to anybody. Many
waiting appends share one write and one fdatasync, which run in a thread of their own. The spool knows nothing of what
a body holds.

Used by the collector (``spool/``) and the gateway (``generations/``).
"""

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Final, NamedTuple, Self

from spanloop.datadir import disk_error
from spanloop.semconv.errors import DataDirectoryError

from .frames import MAX_BODY_BYTES, MAX_KIND_BYTES, AnyRecord, Record, SpoolDamageError, StoredRecord, frame_bytes
from .journal import Batch, Journal, SpoolStats

__all__ = [
    "AnyRecord",
    "Batch",
    "Record",
    "Spool",
    "SpoolDamageError",
    "SpoolDiskError",
    "SpoolFullError",
    "SpoolStats",
    "StoredRecord",
]

_SEGMENT_BYTES: Final = 64 * 2**20
_GROUP_BYTES: Final = 64 * 2**20
_COMPANY_S: Final = 0.0003
"""How long a group waits for more when the one before it was of several: to write and sync costs as much as half a
request of 8 spans, and to go back and forth between the threads as much again. Who is alone does not wait."""


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
        self._queue: deque[_Waiting] = deque()
        self._queued_bytes = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        """The one whose appends the thread is writing; None while it rests."""
        self._calls: SimpleQueue[asyncio.AbstractEventLoop | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
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
        size_bytes = 0
        for kind, body in items:
            if len(body) > MAX_BODY_BYTES or len(kind.encode()) > MAX_KIND_BYTES:
                raise ValueError(f"spool record of {len(body)} bytes: expected at most {MAX_BODY_BYTES}")
            size_bytes += frame_bytes(kind, body)
        self.check_room(size_bytes)
        loop = asyncio.get_running_loop()
        waiting = _Waiting(tuple(items), time.time_ns(), size_bytes, loop.create_future())
        self._queue.append(waiting)
        self._queued_bytes += size_bytes
        if self._loop is not loop:
            self._loop = loop
            # Not at once: who appends in the same turn of the event loop is in the same group.
            loop.call_soon(self._call_thread, loop)
        await waiting.done

    def check_room(self, size_bytes: int) -> None:
        """Whether so many bytes would be taken now.

        Raises:
            SpoolFullError: ``max_bytes`` are waiting already.
        """
        waiting_bytes = self._journal.pending_bytes + self._queued_bytes
        if waiting_bytes + size_bytes > self._max_bytes:
            raise SpoolFullError(
                f"the spool {self._directory} is full: {waiting_bytes} of {self._max_bytes} bytes wait for ClickHouse, "
                f"{size_bytes} more do not fit",
                next_step="see whether ClickHouse answers (`spanloop status`); senders retry by themselves",
            )

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
        if self._thread is not None:
            self._calls.put(None)
            self._thread.join()
        self._journal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _call_thread(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._write_groups, name="spool-fsync", daemon=True)
            self._thread.start()
        self._calls.put(loop)

    def _write_groups(self) -> None:
        """The thread: one write, one fdatasync and one word to the event loop for all who wait."""
        has_company = False
        while (loop := self._calls.get()) is not None:
            if has_company:
                time.sleep(_COMPANY_S)
            group = self._take_group()
            has_company = len(group) > 1
            failure: Exception | None = None
            try:
                self._journal.write([(kind, body, each.accepted_ns) for each in group for kind, body in each.items])
            except Exception as error:  # noqa: BLE001 - every waiter gets it, none may hang
                failure = error
            with contextlib.suppress(RuntimeError):  # the loop was closed, and nobody waits any more
                loop.call_soon_threadsafe(self._settle, loop, group, failure)
            del group  # the bodies, until there are others

    def _settle(self, loop: asyncio.AbstractEventLoop, group: Sequence[_Waiting], failure: Exception | None) -> None:
        """Tell everybody in a group what became of it, and see to the next one."""
        if failure is None:
            self._readable.set()
        for waiting in group:
            self._queued_bytes -= waiting.size_bytes
            if not waiting.done.done():
                self._resolve(waiting, failure)
        if self._queue:
            self._call_thread(loop)
        else:
            self._loop = None

    def _take_group(self) -> list[_Waiting]:
        group: list[_Waiting] = []
        size_bytes = 0
        while self._queue and (not group or size_bytes + self._queue[0].size_bytes <= _GROUP_BYTES):
            group.append(self._queue.popleft())
            size_bytes += group[-1].size_bytes
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
