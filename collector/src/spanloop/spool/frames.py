"""The byte layout of a frame, which holds one record in a segment file, and the search for the next frame after damage.

On disk, little-endian: the segment's 8-byte marker, u64 sequence number, u64 acceptance time (ns), u16 kind length, u32
body length, CRC-32 of kind and body, CRC-32 of the header so far, the kind (UTF-8), the body.

Invariant: a frame that `read_frame` returns equals the bytes that were written, and so does the body that its record
reads later. All other bytes are a `Damage` with exact bounds, and the frames around it stay readable. Each segment has
a random marker, which its file name holds, so a client's body cannot imitate a frame during the search. Header and
payload have separate checksums: damage in a payload leaves its length readable, and damage in a header leaves the
neighbouring frames readable.
"""

import errno
import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol, TypeAlias

from spanloop.foundation.errors import DataDirectoryError

MARKER_BYTES: Final = 8
_FIELDS: Final = struct.Struct("<8sQQHII")  # marker, seq, accepted_ns, kind length, body length, payload CRC
_HEADER_CRC: Final = struct.Struct("<I")
HEADER_BYTES: Final = _FIELDS.size + _HEADER_CRC.size
MAX_BODY_BYTES: Final = 2**32 - 1
MAX_KIND_BYTES: Final = 2**16 - 1
_CHUNK_BYTES: Final = 1 << 20
_SMALL_BYTES: Final = 1 << 16
"""Frames up to this size are parsed many to one read, because three reads a frame would dominate their cost."""
_PAGE_BYTES: Final = 4096
_READ_ATTEMPTS: Final = 3


class SpoolDamageError(DataDirectoryError):
    """A record changed on disk after its checksum was verified. The next `Spool.read` reads its block again."""


class SegmentFile(Protocol):
    """A file that records are read from."""

    fd: int
    """File descriptor; negative when the file is closed."""
    needs_reread: bool
    """A record of this file has changed since it was read, so its block must be read again."""


class Record(NamedTuple):
    """One body to be written, with its kind."""

    kind: str
    """Type of the body, for the reader of the spool: ``traces``, ``logs``, ``generation``, …"""
    body: bytes
    seq: int
    """Sequence number in the spool, from 1, strictly increasing, never reused; gaps are allowed."""
    accepted_ns: int
    """Wall clock time of the append, nanoseconds since the epoch."""

    @property
    def body_bytes(self) -> int:
        """The body's size."""
        return len(self.body)


@dataclass(slots=True)
class StoredRecord:
    """An acknowledged `Record`. Its body is read from disk on access, so that a block needs no memory."""

    kind: str
    seq: int
    accepted_ns: int
    body_bytes: int
    payload_crc: int
    file: SegmentFile = field(compare=False, repr=False)
    offset: int = field(compare=False)
    """Byte offset of the body in the file."""

    @property
    def body(self) -> bytes:
        """Read the body and verify its checksum.

        Raises:
            SpoolDamageError: The body has changed, or its block was committed.
        """
        if self.file.fd >= 0:
            body = read_bytes(self.file.fd, self.body_bytes, self.offset)
            if len(body) == self.body_bytes and zlib.crc32(body, zlib.crc32(self.kind.encode())) == self.payload_crc:
                return body
        self.file.needs_reread = True
        raise SpoolDamageError(
            f"record {self.seq} of the spool, {self.body_bytes} bytes, has changed on disk since it was read",
            next_step="check the disk; unreadable bytes are quarantined and counted, neighbouring records are kept",
        )


AnyRecord: TypeAlias = Record | StoredRecord
"""A record in memory or on disk; both have the same fields."""


class Frame(NamedTuple):
    """An intact record between two offsets of its segment."""

    offset: int
    end: int
    record: StoredRecord


class Damage(NamedTuple):
    """Bytes between two offsets that are not an intact record: a torn tail or a flipped record."""

    offset: int
    end: int
    cause: str
    """``torn`` when no intact frame follows; ``flipped`` when one follows or the header is intact."""


class _Header(NamedTuple):
    seq: int
    accepted_ns: int
    kind_bytes: int
    body_bytes: int
    payload_crc: int


def frame_bytes(kind: str, body: bytes) -> int:
    """Return the size of a record's frame on disk."""
    return HEADER_BYTES + len(kind.encode()) + len(body)


def encode_frame(marker: bytes, record: Record) -> tuple[bytes, bytes]:
    """Encode a record as two buffers, header with kind and body, so that a large body is not copied."""
    kind = record.kind.encode()
    crc = zlib.crc32(record.body, zlib.crc32(kind))
    fields = _FIELDS.pack(marker, record.seq, record.accepted_ns, len(kind), len(record.body), crc)
    return fields + _HEADER_CRC.pack(zlib.crc32(fields)) + kind, record.body


def read_frame(file: SegmentFile, offset: int, end: int, marker: bytes) -> Frame | Damage:
    """Read the frame or the damage at ``offset``; ``end`` is the end of the readable part of the file."""
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
    return Frame(offset, frame_end, _stored_record(header, kind, file, body_at))


def read_frames(file: SegmentFile, offset: int, end: int, marker: bytes) -> Iterator[Frame | Damage]:
    """Yield the frames and damages between two offsets, in order and without gaps."""
    chunk, chunk_offset = memoryview(b""), offset
    size_bytes = _SMALL_BYTES + 1
    while offset < end:
        frame: Frame | Damage | None = None
        if size_bytes <= _SMALL_BYTES:
            frame = _parse_frame(chunk, chunk_offset, offset, marker, file)
            if frame is None and offset != chunk_offset:
                chunk = memoryview(read_bytes(file.fd, min(_CHUNK_BYTES, end - offset), offset))
                chunk_offset = offset
                frame = _parse_frame(chunk, chunk_offset, offset, marker, file)
        frame = frame or read_frame(file, offset, end, marker)
        yield frame
        size_bytes, offset = frame.end - offset, frame.end


def _parse_frame(chunk: memoryview, chunk_offset: int, offset: int, marker: bytes, file: SegmentFile) -> Frame | None:
    """Parse the frame at ``offset``, None unless the chunk holds all of it and its checksums are right."""
    start = offset - chunk_offset
    header = _parse_header(bytes(chunk[start : start + HEADER_BYTES]), marker)
    if header is None:
        return None
    kind_at = start + HEADER_BYTES
    body_at = kind_at + header.kind_bytes
    frame_end = body_at + header.body_bytes
    if frame_end > len(chunk):
        return None
    # Kind and body are adjacent, and the checksum covers both.
    if zlib.crc32(chunk[kind_at:frame_end]) != header.payload_crc:
        return None
    stored = _stored_record(header, bytes(chunk[kind_at:body_at]), file, chunk_offset + body_at)
    return Frame(offset, chunk_offset + frame_end, stored)


def _stored_record(header: _Header, kind: bytes, file: SegmentFile, body_at: int) -> StoredRecord:
    return StoredRecord(
        kind.decode(), header.seq, header.accepted_ns, header.body_bytes, header.payload_crc, file, body_at
    )


def read_bytes(fd: int, size_bytes: int, offset: int) -> bytes:
    """Read like ``os.pread``, with zeros for pages that the disk cannot read, so that a bad sector is only damage.

    Raises:
        OSError: Any error but an unreadable page (EIO).
    """
    for _ in range(_READ_ATTEMPTS):
        try:
            return os.pread(fd, size_bytes, offset)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
    if size_bytes <= _PAGE_BYTES:
        return bytes(size_bytes)
    # Read page by page, so that a bad page does not affect the others.
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
    """Find the first intact header at or after ``offset``."""
    while offset + HEADER_BYTES <= end:
        chunk = read_bytes(fd, min(_CHUNK_BYTES, end - offset), offset)
        marker_at = chunk.find(marker)
        if marker_at < 0:
            # A marker may straddle two chunks.
            offset += max(len(chunk) - MARKER_BYTES + 1, 1)
            continue
        candidate = offset + marker_at
        if _parse_header(read_bytes(fd, min(HEADER_BYTES, end - candidate), candidate), marker) is not None:
            return candidate
        offset = candidate + 1
    return None
