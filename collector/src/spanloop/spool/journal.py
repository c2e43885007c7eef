"""The spool's state on disk: segments, cursor and current block. Calls block; `spool.Spool` offers them to asyncio.

On disk, in the spool's directory: ``*.segment`` (records), ``cursor`` (committed position and current block), ``lock``
(held with ``flock``) and ``quarantine/`` (copies of damaged bytes).

Invariant: a record is in exactly one of three states: before the read position (committed), in the current block, or
after it. The position moves only after the cursor is durable. A block's bounds and its id, which the writers use as
ClickHouse's deduplication token, are durable before `read` returns the block for the first time. So a retry, in this
process or after a crash, sends the same records with the same token.

One thread writes and one thread reads; they share metadata under a lock and do their disk work outside it.
"""

import fcntl
import os
import threading
import time
import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from spanloop.foundation.errors import AlreadyRunningError
from spanloop.foundation.paths import sync_directory

from .cursor import CursorFile
from .frames import HEADER_BYTES, AnyRecord, Damage, Frame, Record, StoredRecord
from .segment import Segment, list_quarantined, list_segments

_AGE_RESOLUTION_NS: Final = 100_000_000


class Batch(NamedTuple):
    """One block: records that are sent to ClickHouse under one deduplication token until the block is committed."""

    block_id: str
    """Base of the deduplication token: 32 hex digits, the same for every retry of the block."""
    records: tuple[AnyRecord, ...]
    """Oldest first; a body is read from disk on access. Empty only when all records of the block were damaged after
    they were first read."""


class SpoolStats(NamedTuple):
    """Counts of a spool's records that are not committed."""

    bytes: int
    """Size on disk of the records that are not committed, frame headers included."""
    records: int
    """Number of records that are not committed; an upper bound after disk errors and torn writes, exact otherwise."""
    oldest_age_s: float
    """Age of the oldest record that is not committed, to about 0.1 s; 0 when all are committed."""
    quarantined: int
    """Number of damaged byte ranges found so far, whose copies are in ``quarantine/``."""


class _Position(NamedTuple):
    segment: Segment
    offset: int


class _Block(NamedTuple):
    batch: Batch
    end_seq: int
    end: _Position | None
    """Position after the block; None when no segment is left to read."""


class _Scan(NamedTuple):
    start: int | None
    """Offset of the first record that is not committed; None when there is none."""
    damages: list[Damage]
    """Damages after the last committed record."""
    lost_records: int
    """Largest number of records that the damage after the last intact record may hold. Their sequence numbers are not
    reused: on a disk that fails for some time, a later start may read the records."""


class Journal:
    """An open spool directory, locked against other processes."""

    def __init__(self, directory: Path, *, segment_bytes: int) -> None:
        self._directory = directory
        self._segment_bytes = segment_bytes
        self._lock = threading.Lock()
        self._read_lock = threading.Lock()
        self._segments: list[Segment] = []
        self._active: Segment | None = None
        self._block: _Block | None = None
        self._ages: deque[tuple[int, int]] = deque()  # (last seq, accepted_ns of the first) of about 0.1 s each
        _make_directory(directory)
        self._lock_fd = _lock_directory(directory)
        self._position: _Position | None = None
        self._pending_bytes = 0
        try:
            self._cursor = CursorFile.open(directory / "cursor")
            self._quarantined = list_quarantined(directory)
            if self._cursor.is_damaged:
                self._quarantined.add("cursor")
            # Start after the current block too: its last record may be damaged, and its number must not be reused.
            self._next_seq = max(self._cursor.state.committed_seq, self._cursor.state.block_end_seq) + 1
            self._recover()
        except BaseException:
            # After the disk is fixed, the spool can be opened again, in this process too.
            self._release()
            raise

    @property
    def pending_bytes(self) -> int:
        """Size on disk of the records that are not committed."""
        return self._pending_bytes

    @property
    def stats(self) -> SpoolStats:
        """Counts of the records that are not committed now."""
        with self._lock:
            pending = self._pending_bytes
            records = self._segments[-1].last_seq - self._cursor.state.committed_seq if pending else 0
            oldest_ns = self._ages[0][1] if self._ages and pending else None
            age_s = 0.0 if oldest_ns is None else max(0.0, (time.time_ns() - oldest_ns) / 1e9)
            return SpoolStats(pending, records, age_s, len(self._quarantined))

    def write(self, items: Sequence[tuple[str, bytes, int]]) -> None:
        """Append (kind, body, accepted_ns) items as one group with one fdatasync. On OSError none of them is stored."""
        if not items:
            return
        first = self._next_seq
        # Numbers of a failed group are not reused, because parts of it may be on disk after a crash.
        self._next_seq += len(items)
        records = [Record(kind, body, first + at, accepted_ns) for at, (kind, body, accepted_ns) in enumerate(items)]
        segment = self._active
        if segment is None:
            segment = Segment.create(self._directory, first)
            with self._lock:
                self._active = segment
                self._segments.append(segment)
        try:
            segment.append(records)
        except OSError:
            self._active = None
            raise
        with self._lock:
            self._count_pending()
            self._note_age(records[-1].seq, records[0].accepted_ns)
        if segment.durable_bytes >= self._segment_bytes:
            self._active = None

    def read(self, max_bytes: int) -> Batch | None:
        """Return the current block, else a new one of at most ``max_bytes`` (and at least one record); see `Spool`."""
        with self._read_lock:
            if self._block is None or self._has_changed():
                self._block = self._next_block(max_bytes)
            return None if self._block is None else self._block.batch

    def commit(self, batch: Batch) -> None:
        """Mark the current block as committed, durably; see `Spool`."""
        with self._read_lock:
            block = self._block
            if block is None or block.batch.block_id != batch.block_id:
                current = "none" if block is None else block.batch.block_id
                raise ValueError(f"cannot commit spool block {batch.block_id}: the current block is {current}")
            self._cursor.store(committed_seq=block.end_seq)
            self._block = None
            if block.end is not None:
                self._move_to(block.end)

    def close(self) -> None:
        """Remove a drained segment, then close all files and release the lock."""
        self._active = None
        with self._read_lock:
            if self._position is not None:
                self._move_to(self._position)
        self._cursor.close()
        self._release()

    def _release(self) -> None:
        for segment in self._segments:
            segment.close()
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    def _recover(self) -> None:
        state = self._cursor.state
        damages: list[tuple[Segment, Damage]] = []
        for path in list_segments(self._directory):
            segment = Segment.open(path)
            self._segments.append(segment)
            first_seq = segment.last_seq + 1
            start, segment_damages, lost_records = self._scan(segment, state.committed_seq)
            damages.extend((segment, damage) for damage in segment_damages)
            if start is not None and self._position is None:
                self._position = _Position(segment, start)
            # A segment without an intact record uses the number in its name too, because names order the segments.
            self._next_seq = max(self._next_seq, first_seq + 1, segment.last_seq + lost_records + 1)
        if damages:
            # Success shows that the disk works: records are not skipped on a disk that fails completely.
            self._cursor.store(
                committed_seq=state.committed_seq, block_id=state.block_id, block_end_seq=state.block_end_seq
            )
        self._quarantined.update(segment.quarantine(damage) for segment, damage in damages)
        if self._position is None and self._segments:
            self._position = _Position(self._segments[-1], self._segments[-1].durable_bytes)
        if self._position is not None:
            self._move_to(self._position)

    def _scan(self, segment: Segment, committed_seq: int) -> _Scan:
        """Check every frame of a segment of an earlier process."""
        start: int | None = None
        damages: list[Damage] = []
        damaged_bytes = 0  # after the last intact record
        for frame in segment.read(0, segment.durable_bytes):
            if isinstance(frame, Damage):
                damages.append(frame)
                damaged_bytes += frame.end - frame.offset
                continue
            damaged_bytes = 0
            segment.last_seq = max(segment.last_seq, frame.record.seq)
            if frame.record.seq <= committed_seq:
                # Damage between committed records is handled already, or irrelevant.
                damages.clear()
                continue
            start = frame.offset if start is None else start
            self._note_age(frame.record.seq, frame.record.accepted_ns)
        return _Scan(start, damages, damaged_bytes // HEADER_BYTES)

    def _has_changed(self) -> bool:
        """Whether a record has changed since it was read, so that its block must be read again."""
        changed = [segment for segment in self._segments if segment.needs_reread]
        for segment in changed:
            segment.needs_reread = False
        return bool(changed)

    def _count_pending(self) -> None:
        """Update the cached sum, which every append reads. Call it under the lock after a position or size changed."""
        self._pending_bytes = sum(end - start for _, start, end in self._unread())

    def _unread(self) -> Iterator[tuple[Segment, int, int]]:
        """Yield (segment, start, end) of the bytes that are not committed. Call it under the lock."""
        is_after = self._position is None
        for segment in self._segments:
            if not is_after and self._position is not None and segment is self._position.segment:
                is_after = True
                yield segment, self._position.offset, segment.durable_bytes
            elif is_after:
                yield segment, 0, segment.durable_bytes

    def _next_block(self, max_bytes: int) -> _Block | None:
        state = self._cursor.state
        records: list[StoredRecord] = []
        size_bytes = 0
        end_seq = state.block_end_seq
        end: _Position | None = None
        damages: list[tuple[Segment, Damage]] = []
        for segment, frame in self._frames():
            if isinstance(frame, Damage):
                damages.append((segment, frame))
            else:
                size_bytes += frame.record.body_bytes
                is_past = frame.record.seq > end_seq if state.block_id else size_bytes > max_bytes and bool(records)
                if is_past:
                    break
                records.append(frame.record)
            end = _Position(segment, frame.end)
        block_id = state.block_id
        if records and not block_id:
            # The base of the block's deduplication token.
            block_id, end_seq = uuid.uuid4().hex, records[-1].seq
        if damages or block_id != state.block_id:
            # Success also shows that the disk works: records are not skipped on a disk that fails completely.
            self._cursor.store(committed_seq=state.committed_seq, block_id=block_id, block_end_seq=end_seq)
        self._quarantined.update(segment.quarantine(damage) for segment, damage in damages)
        if block_id:
            return _Block(Batch(block_id, tuple(records)), end_seq, end)
        if end is not None:
            self._move_to(end)
        return None

    def _frames(self) -> Iterator[tuple[Segment, Frame | Damage]]:
        with self._lock:
            unread = list(self._unread())
        for segment, start, stop in unread:
            for frame in segment.read(start, stop):
                yield segment, frame

    def _move_to(self, position: _Position) -> None:
        """Advance the read position and delete the segments that hold only committed records."""
        committed = self._cursor.state.committed_seq
        with self._lock:
            self._position = position
            at = self._segments.index(position.segment)
            drained, self._segments = self._segments[:at], self._segments[at:]
            if position.offset >= position.segment.durable_bytes and position.segment is not self._active:
                drained.append(self._segments.pop(0))
                self._position = _Position(self._segments[0], 0) if self._segments else None
            self._count_pending()
            while self._ages and self._ages[0][0] <= committed:
                self._ages.popleft()
        for segment in drained:
            segment.delete()

    def _note_age(self, last_seq: int, accepted_ns: int) -> None:
        if self._ages and accepted_ns - self._ages[-1][1] < _AGE_RESOLUTION_NS:
            self._ages[-1] = (last_seq, self._ages[-1][1])
        else:
            self._ages.append((last_seq, accepted_ns))


def _make_directory(directory: Path) -> None:
    if not directory.is_dir():
        directory.mkdir(parents=True)
        sync_directory(directory.parent)


def _lock_directory(directory: Path) -> int:
    fd = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(fd)
        raise AlreadyRunningError(
            f"the spool {directory} is in use by another process",
            next_step="stop the other collector or gateway on this data directory, or give another --data-dir",
        ) from error
    return fd
