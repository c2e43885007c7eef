"""The spool: a durable queue on disk between a server, which acknowledges requests, and ClickHouse.

Group commit: all waiting appends share one write and one fdatasync, which run in a thread of their own.

Invariant: when `Spool.append` returns, the record survives a crash of the process and of the machine, and it stays
until its block is committed. When it raises, the record is not acknowledged. The spool does not interpret bodies.

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
from typing import Final, NamedTuple, Self

from spanloop.foundation.errors import DataDirectoryError
from spanloop.foundation.paths import disk_error

from .frames import MAX_BODY_BYTES, MAX_KIND_BYTES, frame_bytes
from .journal import Batch, Journal, SpoolStats

_SEGMENT_BYTES: Final = 64 * 2**20
_GROUP_BYTES: Final = 64 * 2**20
_GROUP_WAIT_S: Final = 0.0003
"""How long a group waits for more appends when the previous group had several: a write with fdatasync costs half a
request of 8 spans, and a switch between the threads costs the same again. A single append does not wait."""


class SpoolFullError(DataDirectoryError):
    """The spool holds ``max_bytes``; the client should retry later."""


class SpoolDiskError(DataDirectoryError):
    """The disk could not store the record; it is not acknowledged."""


class _Append(NamedTuple):
    items: tuple[tuple[str, bytes], ...]
    accepted_ns: int
    size_bytes: int
    stored: asyncio.Future[None]


class Spool:
    """One spool directory, opened by one process. Appends come from one event loop; one thread at a time drains.

    Args:
        directory: Created when absent; locked while the spool is open.
        max_bytes: Limit for the bytes that are not committed. The files may be one segment larger.
        segment_bytes: Size at which a segment is closed; default 64 MiB, at most a quarter of ``max_bytes``.

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
        self._queue: deque[_Append] = deque()
        self._queued_bytes = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        """Event loop whose appends the thread is writing; None while the thread is idle."""
        self._wakeups: SimpleQueue[asyncio.AbstractEventLoop | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._readable = asyncio.Event()
        if self._journal.pending_bytes:
            self._readable.set()

    async def append(self, kind: str, body: bytes) -> None:
        """Append a record; return when it is on disk (fdatasync).

        Args:
            kind: Type of the body, for the reader; at most 64 KiB of UTF-8.
            body: Up to 4 GiB; empty is allowed.

        Raises:
            SpoolFullError: The spool would hold more than ``max_bytes``.
            SpoolDiskError: The disk is full or broken; the record is not stored.
        """
        await self.append_all([(kind, body)])

    async def append_all(self, items: Sequence[tuple[str, bytes]]) -> None:
        """Append (kind, body) records; return when all are on disk. It raises as `append`; then none is stored."""
        size_bytes = 0
        for kind, body in items:
            if len(body) > MAX_BODY_BYTES or len(kind.encode()) > MAX_KIND_BYTES:
                raise ValueError(f"spool record of {len(body)} bytes: expected at most {MAX_BODY_BYTES}")
            size_bytes += frame_bytes(kind, body)
        self.check_room(size_bytes)
        loop = asyncio.get_running_loop()
        append = _Append(tuple(items), time.time_ns(), size_bytes, loop.create_future())
        self._queue.append(append)
        self._queued_bytes += size_bytes
        if self._loop is not loop:
            self._loop = loop
            # Deferred, so that all appends of this iteration of the event loop are in one group.
            loop.call_soon(self._wake_thread, loop)
        await append.stored

    def check_room(self, size_bytes: int) -> None:
        """Check that the spool has room for a record of this size.

        Raises:
            SpoolFullError: The spool would hold more than ``max_bytes``.
        """
        waiting_bytes = self._journal.pending_bytes + self._queued_bytes
        if waiting_bytes + size_bytes > self._max_bytes:
            raise SpoolFullError(
                f"the spool {self._directory} is full: {waiting_bytes} of {self._max_bytes} bytes wait for ClickHouse, "
                f"{size_bytes} more do not fit",
                next_step="check that ClickHouse answers (`spanloop status`); clients retry automatically",
            )

    async def wait(self, timeout_s: float) -> bool:
        """Wait until a record can be read; return False after ``timeout_s``. 0 checks without waiting."""
        if self._readable.is_set():  # with a timeout of 0, `timeout` does not check the event
            return True
        try:
            async with asyncio.timeout(timeout_s):  # `wait_for` of Python 3.11 can lose a cancellation
                await self._readable.wait()
        except TimeoutError:
            return False
        return True

    def read(self, max_bytes: int) -> Batch | None:
        """Return the oldest block that is not committed, the same one until it is committed; None when there is none.

        The call blocks on the disk. It is safe in a thread beside the event loop that appends.

        Args:
            max_bytes: Limit for the bodies of a *new* block; a larger record is a block of its own.

        Raises:
            OSError: The block's bounds could not be stored durably; call it again later.
        """
        return self._journal.read(max_bytes)

    def commit(self, batch: Batch) -> None:
        """Mark a block as committed, because its records are in ClickHouse; durable on return.

        Raises:
            ValueError: The block is not the current one.
            OSError: The cursor could not be written; the block stays current.
        """
        self._journal.commit(batch)

    def rearm(self) -> None:
        """Make `wait` wait again when all records are committed. Call it on the event loop's thread after a commit."""
        if not self._journal.pending_bytes:
            self._readable.clear()

    @property
    def stats(self) -> SpoolStats:
        """Counts of the records that are not committed now."""
        return self._journal.stats

    def close(self) -> None:
        """Write the current group, stop the thread and release the directory. Await all appends first."""
        if self._thread is not None:
            self._wakeups.put(None)
            self._thread.join()
        self._journal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _wake_thread(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._write_groups, name="spool-fsync", daemon=True)
            self._thread.start()
        self._wakeups.put(loop)

    def _write_groups(self) -> None:
        """Run group commits in the thread: one write, one fdatasync and one callback for all waiting appends."""
        was_shared = False
        while (loop := self._wakeups.get()) is not None:
            if was_shared:
                time.sleep(_GROUP_WAIT_S)
            group = self._take_group()
            was_shared = len(group) > 1
            failure: Exception | None = None
            try:
                self._journal.write(
                    [(kind, body, append.accepted_ns) for append in group for kind, body in append.items]
                )
            except Exception as error:  # noqa: BLE001 - set on every append, so that none waits for ever
                failure = error
            with contextlib.suppress(RuntimeError):  # the event loop is closed, so no append waits
                loop.call_soon_threadsafe(self._complete_group, loop, group, failure)
            del group  # frees the bodies before the next wait

    def _complete_group(
        self, loop: asyncio.AbstractEventLoop, group: Sequence[_Append], failure: Exception | None
    ) -> None:
        """Complete the appends of a group, then start the next group."""
        if failure is None:
            self._readable.set()
        for append in group:
            self._queued_bytes -= append.size_bytes
            if not append.stored.done():
                self._complete(append, failure)
        if self._queue:
            self._wake_thread(loop)
        else:
            self._loop = None

    def _take_group(self) -> list[_Append]:
        group: list[_Append] = []
        size_bytes = 0
        while self._queue and (not group or size_bytes + self._queue[0].size_bytes <= _GROUP_BYTES):
            group.append(self._queue.popleft())
            size_bytes += group[-1].size_bytes
        return group

    def _complete(self, append: _Append, failure: Exception | None) -> None:
        if failure is None:
            append.stored.set_result(None)
        elif isinstance(failure, OSError):
            reason = failure.strerror or failure
            error = SpoolDiskError(
                f"the spool {self._directory} could not store {append.size_bytes} bytes: {reason}",
                next_step=f"free space on the disk of {self._directory}, or replace it; clients retry automatically",
            )
            error.__cause__ = failure
            append.stored.set_exception(error)
        else:
            append.stored.set_exception(failure)
