"""A segment file: an append-only sequence of frames.

On disk: ``{first sequence number, 20 digits}-{marker, 16 hex digits}.segment``, which holds frames (see `frames`)
without gaps. Copies of damaged bytes are in ``quarantine/``.

Invariant: `Segment.durable_bytes` counts only bytes that an fdatasync has confirmed, and readers stop there. A segment
is not written after a failure: after a failed fsync the kernel may mark lost pages as clean, so a second fsync of the
same file proves nothing. A recovered segment is not appended to either.
"""

import contextlib
import errno
import logging
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Self

from spanloop.foundation.paths import sync_directory

from .frames import MARKER_BYTES, Damage, Frame, Record, encode_frame, read_bytes, read_frames

_log = logging.getLogger(__name__)
_NAME: Final = re.compile(r"(\d{20})-([0-9a-f]{16})\.segment")
_IOVEC_LIMIT: Final = 512
_QUARANTINE_DIR: Final = "quarantine"


class Segment:
    """An open segment: readable, and appendable when this process created it."""

    def __init__(self, path: Path, fd: int, *, marker: bytes, durable_bytes: int, last_seq: int) -> None:
        self.path = path
        self.marker = marker
        self.durable_bytes = durable_bytes
        self.last_seq = last_seq
        self.fd = fd
        """File descriptor; negative when the segment is closed."""
        self.needs_reread = False
        """A record of this segment has changed since it was read."""

    @classmethod
    def create(cls, directory: Path, first_seq: int) -> Self:
        """Create an empty segment and sync its directory entry."""
        marker = os.urandom(MARKER_BYTES)
        path = directory / f"{first_seq:020d}-{marker.hex()}.segment"
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        segment = cls(path, fd, marker=marker, durable_bytes=0, last_seq=first_seq - 1)
        try:
            sync_directory(directory)
        except OSError:
            segment.delete()
            raise
        return segment

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open a segment of an earlier process; the caller scans its frames."""
        match = _NAME.fullmatch(path.name)
        if match is None:
            raise ValueError(f"{path} is not a spool segment: expected a name like {_NAME.pattern}")
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        return cls(
            path, fd, marker=bytes.fromhex(match[2]), durable_bytes=os.fstat(fd).st_size, last_seq=int(match[1]) - 1
        )

    def append(self, records: Sequence[Record]) -> None:
        """Write all records with one fdatasync; on return they are durable.

        Raises:
            OSError: No record of the group counts; the file is truncated and must not be appended to again.
        """
        buffers = [buffer for record in records for buffer in encode_frame(self.marker, record)]
        try:
            _write_all(self.fd, buffers, self.durable_bytes)
            os.fdatasync(self.fd)
        except OSError:
            # Best effort: if truncating fails too, readers still stop at durable_bytes. A restart that reads the
            # rest delivers records whose clients were told to retry; no acknowledged record is lost.
            with contextlib.suppress(OSError):
                os.ftruncate(self.fd, self.durable_bytes)
            raise
        self.durable_bytes += sum(map(len, buffers))
        self.last_seq = records[-1].seq

    def read(self, offset: int, end: int) -> Iterator[Frame | Damage]:
        """Yield the frames and damages between two offsets, in order and without gaps."""
        return read_frames(self, offset, end, self.marker)

    def quarantine(self, damage: Damage) -> str:
        """Copy damaged bytes to ``quarantine/``; return the copy's name, the same for the same damage."""
        name = f"{self.path.stem}-{damage.offset:012d}.{damage.cause}"
        target = self.path.parent / _QUARANTINE_DIR / name
        if target.exists():
            return name
        _log.warning(
            "spool: %d unreadable bytes (%s) at %s:%d; copied to %s, neighbouring records are kept",
            damage.end - damage.offset, damage.cause, self.path, damage.offset, target,
        )  # fmt: skip
        try:
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(read_bytes(self.fd, damage.end - damage.offset, damage.offset))
        except OSError as error:
            # The copy is for inspection only; a full disk must not stop the neighbouring records from being drained.
            _log.warning("spool: could not copy the unreadable bytes to %s: %s", target, error)
        return name

    def close(self) -> None:
        """Close the file; closing twice is allowed."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def delete(self) -> None:
        """Close and remove the file. If it stays or returns after a crash, the cursor says that it is committed."""
        self.close()
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            _log.warning("spool: %s was drained but could not be removed; the next start tries again: %s",
                         self.path, error)  # fmt: skip


def list_segments(directory: Path) -> list[Path]:
    """List the segment files of a spool, oldest first."""
    return sorted(path for path in directory.iterdir() if _NAME.fullmatch(path.name))


def list_quarantined(directory: Path) -> set[str]:
    """List the names of the damages quarantined so far."""
    folder = directory / _QUARANTINE_DIR
    return {path.name for path in folder.iterdir()} if folder.is_dir() else set()


def _write_all(fd: int, buffers: Sequence[bytes], offset: int) -> None:
    for first in range(0, len(buffers), _IOVEC_LIMIT):
        group = buffers[first : first + _IOVEC_LIMIT]
        written = os.pwritev(fd, group, offset)
        size_bytes = sum(map(len, group))
        if written < size_bytes:
            _write_rest(fd, b"".join(group)[written:], offset + written)
        offset += size_bytes


def _write_rest(fd: int, rest: bytes, offset: int) -> None:
    """Write the rest after a short write."""
    while rest:
        written = os.pwrite(fd, rest, offset)
        if not written:
            raise OSError(errno.EIO, "The disk accepts no more bytes and reports no error")
        rest, offset = rest[written:], offset + written
