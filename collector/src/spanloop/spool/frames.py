"""How one record lies in a segment file, and how to find the next whole one after damage.

Invariant: a frame that `read_frame` returns is byte for byte one that was written, and so is the body that its record
reads later; everything else is a `Damage` with exact bounds, and the frames around it stay readable. The marker is
random for each segment and stands in the file's name, so no body that a client sends can imitate a frame while we look
for the next one after damage. CRC-32 (zlib) guards header and payload apart: a flipped payload does not cost the
length, nor a flipped length the neighbours.
"""

import errno
import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol, TypeAlias

from spanloop.semconv.errors import DataDirectoryError

MARKER_BYTES: Final = 8
_FIELDS: Final = struct.Struct("<8sQQHII")  # marker, seq, accepted_ns, kind length, body length, payload CRC
_HEADER_CRC: Final = struct.Struct("<I")
HEADER_BYTES: Final = _FIELDS.size + _HEADER_CRC.size
MAX_BODY_BYTES: Final = 2**32 - 1
MAX_KIND_BYTES: Final = 2**16 - 1
_RESYNC_CHUNK_BYTES: Final = 1 << 20
_CHUNK_BYTES: Final = 1 << 20
_SMALL_BYTES: Final = 1 << 16
"""Frames up to this come many in one read: three reads for each would be most of what they cost."""
_PAGE_BYTES: Final = 4096
_READ_ATTEMPTS: Final = 3


class SpoolDamageError(DataDirectoryError):
    """A record changed on the disk after it was found whole. The next `Spool.read` looks at its block again."""


class SegmentFile(Protocol):
    """What records are read from."""

    fd: int
    """Negative once it is closed."""
    is_doubtful: bool
    """A record of it was not what it had been: what was read before does not count any more."""


class Record(NamedTuple):
    """One body to be written, with what it is."""

    kind: str
    """What the body holds, for whoever drains the spool: ``traces``, ``logs``, ``generation``, …"""
    body: bytes
    seq: int
    """Position in the spool's history, from 1, strictly increasing, never reused; gaps are allowed."""
    accepted_ns: int
    """Wall clock when the record was handed in, nanoseconds since the epoch."""

    @property
    def body_bytes(self) -> int:
        """The body's size."""
        return len(self.body)


@dataclass(slots=True)
class StoredRecord:
    """A `Record` that was acknowledged. Its body stays on disk until somebody asks, so that a block costs no memory."""

    kind: str
    seq: int
    accepted_ns: int
    body_bytes: int
    payload_crc: int
    file: SegmentFile = field(compare=False, repr=False)
    offset: int = field(compare=False)
    """Of the body."""

    @property
    def body(self) -> bytes:
        """The body, read and checked again.

        Raises:
            SpoolDamageError: It is not what it was, or its block was committed.
        """
        if self.file.fd >= 0:
            body = read_bytes(self.file.fd, self.body_bytes, self.offset)
            if len(body) == self.body_bytes and zlib.crc32(body, zlib.crc32(self.kind.encode())) == self.payload_crc:
                return body
        self.file.is_doubtful = True
        raise SpoolDamageError(
            f"record {self.seq} of the spool, {self.body_bytes} bytes, is not what it was a moment ago",
            next_step="look after the disk; what cannot be read is set aside and counted, its neighbours are kept",
        )


AnyRecord: TypeAlias = Record | StoredRecord
"""What somebody who reads them need not tell apart."""


class Frame(NamedTuple):
    """A whole record between two offsets of its segment."""

    offset: int
    end: int
    record: StoredRecord


class Damage(NamedTuple):
    """Bytes between two offsets that are no record: a torn tail or a flipped record."""

    offset: int
    end: int
    cause: str
    """``torn`` when nothing whole follows, ``flipped`` when neighbours follow or the header is intact."""


class _Header(NamedTuple):
    seq: int
    accepted_ns: int
    kind_bytes: int
    body_bytes: int
    payload_crc: int


def frame_bytes(kind: str, body: bytes) -> int:
    """Bytes on disk of one record."""
    return HEADER_BYTES + len(kind.encode()) + len(body)


def encode_frame(marker: bytes, record: Record) -> tuple[bytes, bytes]:
    """Header with kind, and body: two pieces, so that a large body is not copied once more."""
    kind = record.kind.encode()
    crc = zlib.crc32(record.body, zlib.crc32(kind))
    fields = _FIELDS.pack(marker, record.seq, record.accepted_ns, len(kind), len(record.body), crc)
    return fields + _HEADER_CRC.pack(zlib.crc32(fields)) + kind, record.body


def read_frame(file: SegmentFile, offset: int, end: int, marker: bytes) -> Frame | Damage:
    """The frame at ``offset``, or the damage there; ``end`` is where the readable part of the file ends."""
    fd = file.fd
    header = _parse_header(read_bytes(fd, min(HEADER_BYTES, end - offset), offset), marker)
    if header is None:
        following = _next_header(fd, offset + 1, end, marker)
        return Damage(offset, end, "torn") if following is None else Damage(offset, following, "flipped")
    body_at = offset + HEADER_BYTES + header.kind_bytes
    frame_end = body_at + header.body_bytes
    if frame_end > end:
        return Damage(offset, end, "torn")
    kind = read_bytes(fd, header.kind_bytes, offset + HEADER_BYTES)
    crc = zlib.crc32(kind)
    for at in range(body_at, frame_end, _CHUNK_BYTES):
        crc = zlib.crc32(read_bytes(fd, min(_CHUNK_BYTES, frame_end - at), at), crc)
    if crc != header.payload_crc:
        return Damage(offset, frame_end, "flipped")
    return Frame(offset, frame_end, _stored(header, kind, file, body_at))


def read_frames(file: SegmentFile, offset: int, end: int, marker: bytes) -> Iterator[Frame | Damage]:
    """Frames and damages between two offsets, in order and without a gap; small frames many at a time."""
    chunk, chunk_offset = memoryview(b""), offset
    frame_bytes = _SMALL_BYTES + 1
    while offset < end:
        found: Frame | Damage | None = None
        if frame_bytes <= _SMALL_BYTES:
            found = _frame_in(chunk, chunk_offset, offset, marker, file)
            if found is None and offset != chunk_offset:
                chunk = memoryview(read_bytes(file.fd, min(_CHUNK_BYTES, end - offset), offset))
                chunk_offset = offset
                found = _frame_in(chunk, chunk_offset, offset, marker, file)
        found = found or read_frame(file, offset, end, marker)
        yield found
        frame_bytes, offset = found.end - offset, found.end


def _frame_in(chunk: memoryview, chunk_offset: int, offset: int, marker: bytes, file: SegmentFile) -> Frame | None:
    """The frame at ``offset`` when all of it is in the chunk and whole."""
    start = offset - chunk_offset
    header = _parse_header(bytes(chunk[start : start + HEADER_BYTES]), marker)
    if header is None:
        return None
    kind_at = start + HEADER_BYTES
    body_at = kind_at + header.kind_bytes
    frame_end = body_at + header.body_bytes
    if frame_end > len(chunk):
        return None
    # Kind and body lie in a row, and the checksum is over both.
    if zlib.crc32(chunk[kind_at:frame_end]) != header.payload_crc:
        return None
    stored = _stored(header, bytes(chunk[kind_at:body_at]), file, chunk_offset + body_at)
    return Frame(offset, chunk_offset + frame_end, stored)


def _stored(header: _Header, kind: bytes, file: SegmentFile, body_at: int) -> StoredRecord:
    return StoredRecord(
        kind.decode(), header.seq, header.accepted_ns, header.body_bytes, header.payload_crc, file, body_at
    )


def read_bytes(fd: int, size_bytes: int, offset: int) -> bytes:
    """Like ``os.pread``, but with zeros for pages that the disk cannot read: one bad sector is damage, not the end.

    Raises:
        OSError: Anything but an unreadable page.
    """
    for _ in range(_READ_ATTEMPTS):
        try:
            return os.pread(fd, size_bytes, offset)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
    if size_bytes <= _PAGE_BYTES:
        return bytes(size_bytes)
    # From page border to page border, so that each bad page is met alone.
    first = _PAGE_BYTES - offset % _PAGE_BYTES
    starts = [offset, *range(offset + first, offset + size_bytes, _PAGE_BYTES)]
    ends = [*starts[1:], offset + size_bytes]
    return b"".join(read_bytes(fd, end - start, start) for start, end in zip(starts, ends, strict=True))


def _parse_header(raw: bytes, marker: bytes) -> _Header | None:
    if len(raw) < HEADER_BYTES or not raw.startswith(marker):
        return None
    fields = raw[: _FIELDS.size]
    if _HEADER_CRC.unpack_from(raw, _FIELDS.size)[0] != zlib.crc32(fields):
        return None
    _, seq, accepted_ns, kind_bytes, body_bytes, payload_crc = _FIELDS.unpack(fields)
    return _Header(seq, accepted_ns, kind_bytes, body_bytes, payload_crc)


def _next_header(fd: int, offset: int, end: int, marker: bytes) -> int | None:
    """Offset of the first intact header at or after ``offset``."""
    while offset + HEADER_BYTES <= end:
        chunk = read_bytes(fd, min(_RESYNC_CHUNK_BYTES, end - offset), offset)
        found = chunk.find(marker)
        if found < 0:
            # A marker may straddle two chunks.
            offset += max(len(chunk) - MARKER_BYTES + 1, 1)
            continue
        candidate = offset + found
        if _parse_header(read_bytes(fd, min(HEADER_BYTES, end - candidate), candidate), marker) is not None:
            return candidate
        offset = candidate + 1
    return None
