"""One segment file: a run of frames that only grows.

Invariant: `Segment.durable_bytes` never exceeds what an fdatasync has confirmed, and nobody reads past it. A
segment that failed once is never written again: after a failed fsync the kernel may call lost pages clean, so a
second fsync on the same file proves nothing. A recovered segment is not appended to either.
"""

import contextlib
import errno
import logging
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Self

from .frames import MARKER_BYTES, Damage, Frame, Record, encode_frame, read_bytes, read_frames

_log = logging.getLogger(__name__)
_NAME: Final = re.compile(r"(\d{20})-([0-9a-f]{16})\.segment")
_IOVEC_LIMIT: Final = 512
_UNREADABLE_DIR: Final = "quarantine"


class Segment:
    """A segment that is open for reading, and for appending when this process created it."""

    def __init__(self, path: Path, fd: int, *, marker: bytes, durable_bytes: int, last_seq: int) -> None:
        self.path = path
        self.marker = marker
        self.durable_bytes = durable_bytes
        self.last_seq = last_seq
        self.fd = fd
        """Negative once it is closed."""
        self.is_doubtful = False
        """A record of it changed since it was read."""

    @classmethod
    def create(cls, directory: Path, first_seq: int) -> Self:
        """Make an empty segment whose directory entry is durable."""
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
        """Open a segment that an earlier process left; what its frames hold is for the caller to read."""
        match = _NAME.fullmatch(path.name)
        if match is None:
            raise ValueError(f"{path} is no spool segment: got a name unlike {_NAME.pattern}")
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        return cls(
            path,
            fd,
            marker=bytes.fromhex(match[2]),
            durable_bytes=os.fstat(fd).st_size,
            last_seq=int(match[1]) - 1,
        )

    def append(self, records: Sequence[Record]) -> None:
        """Write all records and fdatasync; on return they are on disk.

        Raises:
            OSError: Nothing of the group counts; the file was cut back and must not be appended to again.
        """
        pieces = [piece for record in records for piece in encode_frame(self.marker, record)]
        try:
            _write_all(self.fd, pieces, self.durable_bytes)
            os.fdatasync(self.fd)
        except OSError:
            # Best effort: should the cut fail too, readers still stop at durable_bytes, and a restart that finds
            # the rest delivers records whose senders were told to retry, never the other way round.
            with contextlib.suppress(OSError):
                os.ftruncate(self.fd, self.durable_bytes)
            raise
        self.durable_bytes += sum(map(len, pieces))
        self.last_seq = records[-1].seq

    def read(self, offset: int, end: int) -> Iterator[Frame | Damage]:
        """Frames and damages between two offsets, in order and without a gap."""
        return read_frames(self, offset, end, self.marker)

    def quarantine(self, damage: Damage) -> str:
        """Keep a copy of damaged bytes beside the segments; returns its name, the same for the same damage."""
        name = f"{self.path.stem}-{damage.offset:012d}.{damage.cause}"
        target = self.path.parent / _UNREADABLE_DIR / name
        if target.exists():
            return name
        _log.warning(
            "spool: %d unreadable bytes (%s) at %s:%d; copied to %s, neighbours are kept",
            damage.end - damage.offset, damage.cause, self.path, damage.offset, target,
        )  # fmt: skip
        try:
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(read_bytes(self.fd, damage.end - damage.offset, damage.offset))
        except OSError as error:
            # The copy is for a person to look at; a full disk must not keep the neighbours from being drained.
            _log.warning("spool: could not copy the unreadable bytes to %s: %s", target, error)
        return name

    def close(self) -> None:
        """Close the file; closing twice is allowed."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def delete(self) -> None:
        """Close and remove the file. Should it stay, or come back in a crash: the cursor says that it was drained."""
        self.close()
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            _log.warning("spool: %s was drained and could not be removed, the next start tries again: %s",
                         self.path, error)  # fmt: skip


def list_segments(directory: Path) -> list[Path]:
    """The segment files of a spool, oldest first."""
    return sorted(path for path in directory.iterdir() if _NAME.fullmatch(path.name))


def list_quarantined(directory: Path) -> set[str]:
    """Names of the damages that were quarantined so far."""
    folder = directory / _UNREADABLE_DIR
    return {path.name for path in folder.iterdir()} if folder.is_dir() else set()


def sync_directory(directory: Path) -> None:
    """Make created and removed entries of a directory durable."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _write_all(fd: int, pieces: Sequence[bytes], offset: int) -> None:
    for first in range(0, len(pieces), _IOVEC_LIMIT):
        group = pieces[first : first + _IOVEC_LIMIT]
        written = os.pwritev(fd, group, offset)
        size_bytes = sum(map(len, group))
        if written < size_bytes:
            _write_rest(fd, b"".join(group)[written:], offset + written)
        offset += size_bytes


def _write_rest(fd: int, rest: bytes, offset: int) -> None:
    """What a short write left."""
    while rest:
        written = os.pwrite(fd, rest, offset)
        if not written:
            raise OSError(errno.EIO, "The disk takes no more bytes, and does not say why")
        rest, offset = rest[written:], offset + written
