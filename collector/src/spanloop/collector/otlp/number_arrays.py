"""Arrays of numbers, token ids and logprobs above all, as JSON without a Python object for each number.

Invariant: the text is the JSON of the numbers in the array, or there is none. Arrays are looked at as bytes, many at
once: every number there has a fixed head, and what has another one is left to others.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import orjson
from numpy.typing import NDArray
from opentelemetry.proto.common.v1.common_pb2 import ArrayValue

from .wire import serialize

_LEAST_BYTES: Final = 128
"""Below it asking value by value is as quick."""
_CHUNK_BYTES: Final = 2**18
"""Arrays of so many bytes are read together: what is made of them, ten times as much, stays in the cache."""
_VALUE, _INT, _DOUBLE = 0x0A, 0x18, 0x21
_DOUBLE_BYTES: Final = 11
_DOUBLE_HEAD: Final = np.array([_VALUE, 9, _DOUBLE], np.uint8)
_PADDING: Final = 16
"""Zeros behind the last array, so that eight bytes can be read wherever a number begins or goes on."""
_INT_HEAD_BYTES: Final = 3
_WINDOW_BYTES: Final = 5
"""Of a varint, read at once."""
_LONGEST: Final = 11
"""The most that the length of an integer's value can say: a tag, and ten bytes of varint."""
_KEPT: Final = np.array([2 ** (8 * min(max(at - 1, 0), 5)) - 1 for at in range(_LONGEST + 1)], np.uint64)
"""By that length: which of five bytes are the varint's …"""
_CONTINUED: Final = np.array(
    [sum(0x80 << 8 * byte for byte in range(min(at - 2, 5))) for at in range(_LONGEST + 1)], np.uint64
)
"""… and which of their high bits are set: those of all but the last byte."""
_HIGH_BITS: Final = np.uint64(0x8080808080)

_Words: TypeAlias = NDArray[np.uint64]


class _Numbers(NamedTuple):
    """The numbers of arrays that lie behind each other."""

    values: NDArray[Any]
    starts: NDArray[np.int64]
    """Where in the bytes each begins."""


_Reader: TypeAlias = Callable[[bytes], _Numbers | None]


def numbers_json(array: ArrayValue) -> str | None:
    """``[1,2]``; None for few values, and where not all are integers, or not all finite doubles."""
    raw = serialize(array)
    return number_texts([raw])[0] if len(raw) >= _LEAST_BYTES else None


def number_texts(arrays: Sequence[bytes]) -> list[str | None]:
    """The same for many arrays as they are on the wire; here few integers have their text too."""
    texts: list[str | None] = [None] * len(arrays)
    for kind, reader, least_bytes in ((_INT, _integers, 4), (_DOUBLE, _doubles, _LEAST_BYTES)):
        ours = [at for at, raw in enumerate(arrays) if len(raw) >= least_bytes and raw[2] == kind]
        for some in _chunks(ours, arrays):
            found = _texts([arrays[at] for at in some], reader)
            for at, text in zip(some, found, strict=True):
                texts[at] = text
    return texts


def _chunks(ours: Sequence[int], arrays: Sequence[bytes]) -> Iterator[Sequence[int]]:
    chunk: list[int] = []
    size = 0
    for at in ours:
        chunk.append(at)
        size += len(arrays[at])
        if size >= _CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _texts(arrays: Sequence[bytes], reader: _Reader) -> list[str | None]:
    """By halves where not all of them are what the reader reads."""
    numbers = reader(b"".join([*arrays, bytes(_PADDING)]))
    if numbers is not None:
        ends = np.cumsum([0, *map(len, arrays)])
        firsts = np.searchsorted(numbers.starts, ends)
        if np.array_equal(numbers.starts[firsts[:-1]], ends[:-1]):
            return [
                orjson.dumps(numbers.values[first:end], option=orjson.OPT_SERIALIZE_NUMPY).decode()
                for first, end in pairwise(firsts.tolist())
            ]
    if len(arrays) == 1:
        return [None]
    middle = len(arrays) // 2
    return _texts(arrays[:middle], reader) + _texts(arrays[middle:], reader)


def _doubles(padded: bytes) -> _Numbers | None:
    count, rest = divmod(len(padded) - _PADDING, _DOUBLE_BYTES)
    if rest:
        return None
    data = np.frombuffer(padded, np.uint8, count * _DOUBLE_BYTES).reshape(-1, _DOUBLE_BYTES)
    if not (data[:, :3] == _DOUBLE_HEAD).all():
        return None
    values = np.ascontiguousarray(data[:, 3:]).view("<f8").ravel()
    # JSON knows no NaN and no infinity.
    return _Numbers(values, np.arange(count) * _DOUBLE_BYTES) if np.isfinite(values).all() else None


def _integers(padded: bytes) -> _Numbers | None:
    size = len(padded) - _PADDING
    data = np.frombuffer(padded, np.uint8)
    # No other byte of regular integers looks like the head of one: a length is never 0x18, and no byte of a varint but
    # its last, behind which comes the next head, can be 0x0A.
    is_start = data[:size] == _VALUE
    is_start &= data[1 : size + 1] - np.uint8(2) <= _LONGEST - 2
    is_start &= data[2 : size + 2] == _INT
    starts = np.flatnonzero(is_start)
    if not len(starts):
        return None
    lengths = data[starts + 1].astype(np.int64)
    ends = starts + lengths + 2
    if starts[0] != 0 or ends[-1] != size or not np.array_equal(starts[1:], ends[:-1]):
        return None
    # The eight bytes at every offset, without a copy.
    windows: _Words = np.ndarray((size + _PADDING - 7,), "<u8", padded, strides=(1,))
    low = (windows[starts] >> np.uint64(8 * _INT_HEAD_BYTES)) & _KEPT[lengths]
    if not np.array_equal(low & _HIGH_BITS, _CONTINUED[lengths]):
        return None
    values = _joined(low)
    long = np.flatnonzero(lengths > _WINDOW_BYTES + 1)
    if len(long):
        left = lengths[long] - _WINDOW_BYTES
        high = windows[starts[long] + (_INT_HEAD_BYTES + _WINDOW_BYTES)] & _KEPT[left]
        # The tenth byte holds the 64th bit and no other.
        if not np.array_equal(high & _HIGH_BITS, _CONTINUED[left]) or (high >> np.uint64(32)).max() > 1:
            return None
        values[long] |= _joined(high) << np.uint64(7 * _WINDOW_BYTES)
    return _Numbers(values.view(np.int64), starts)


def _joined(windows: _Words) -> _Words:
    """Seven bits of each of five bytes."""
    values = windows & np.uint64(0x7F)
    for at in range(1, _WINDOW_BYTES):
        values |= (windows >> np.uint64(at)) & np.uint64(0x7F << 7 * at)
    return values
