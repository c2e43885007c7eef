"""The spool's cursor file: the committed position and the bounds and id of the current block.

On disk: two slots of 4,096 bytes, written in turn. A slot is, little-endian: the magic ``SPLCUR01``, three u64
(generation, committed sequence number, last sequence number of the block), the 16-byte block id, CRC-32, zeros.

Invariant: `CursorFile.store` returns when the state is on disk, and a crash during it leaves the previous state. The
slot with a valid checksum and the highest generation counts. The state before a commit names the same block as the
commit, so a lost slot leads to a retry under the same id.
"""

import contextlib
import os
import struct
import zlib
from pathlib import Path
from typing import Final, NamedTuple, Self

_SLOT_BYTES: Final = 4096
_FIELDS: Final = struct.Struct("<8sQQQ16s")  # magic, generation, committed seq, block end seq, block id
_CRC: Final = struct.Struct("<I")
_MAGIC: Final = b"SPLCUR01"


class CursorState(NamedTuple):
    """The part of the spool's state that is stored beside the records."""

    generation: int = 0
    """Number of states stored so far; the highest valid one is current."""
    committed_seq: int = 0
    """Last sequence number that is committed, so that its record is in ClickHouse; 0 before the first commit."""
    block_id: str = ""
    """32 hex digits of the current block; empty when there is none."""
    block_end_seq: int = 0
    """Last sequence number of the current block; 0 when there is none."""


class CursorFile:
    """The open cursor file of one spool."""

    def __init__(self, fd: int, state: CursorState, *, is_damaged: bool) -> None:
        self._fd = fd
        self.state = state
        self.is_damaged = is_damaged
        """True when the file existed and neither slot was valid: all stored records are drained again."""

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open or create the file.

        Raises:
            OSError: The directory is not writable or the disk is full.
        """
        is_new = not path.exists()
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        slots = [_decode(os.pread(fd, _SLOT_BYTES, slot * _SLOT_BYTES)) for slot in (0, 1)]
        states = [state for state in slots if state is not None]
        if not states:
            cursor = cls(fd, CursorState(), is_damaged=not is_new and os.fstat(fd).st_size > 0)
            # Allocate both slots now: a later commit must not need space on a disk that has become full.
            cursor.store(committed_seq=0)
            cursor.store(committed_seq=0)
            return cursor
        return cls(fd, max(states), is_damaged=False)

    def store(self, *, committed_seq: int, block_id: str = "", block_end_seq: int = 0) -> None:
        """Store a state durably.

        Raises:
            OSError: The write failed; the previous state still counts.
        """
        state = CursorState(self.state.generation + 1, committed_seq, block_id, block_end_seq)
        raw = _encode(state)
        offset = state.generation % 2 * _SLOT_BYTES
        if os.pwrite(self._fd, raw, offset) != len(raw):
            raise OSError(f"short write of {len(raw)} bytes to the spool's cursor at offset {offset}")
        os.fdatasync(self._fd)
        self.state = state

    def close(self) -> None:
        """Close the file; closing twice is allowed."""
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                os.close(self._fd)
            self._fd = -1


def _encode(state: CursorState) -> bytes:
    block_id = bytes.fromhex(state.block_id).ljust(16, b"\0")
    fields = _FIELDS.pack(_MAGIC, state.generation, state.committed_seq, state.block_end_seq, block_id)
    return (fields + _CRC.pack(zlib.crc32(fields))).ljust(_SLOT_BYTES, b"\0")


def _decode(raw: bytes) -> CursorState | None:
    if len(raw) < _FIELDS.size + _CRC.size:
        return None
    fields = raw[: _FIELDS.size]
    if _CRC.unpack_from(raw, _FIELDS.size)[0] != zlib.crc32(fields):
        return None
    magic, generation, committed_seq, block_end_seq, block_id = _FIELDS.unpack(fields)
    if magic != _MAGIC:
        return None
    return CursorState(generation, committed_seq, block_id.hex() if block_end_seq else "", block_end_seq)
