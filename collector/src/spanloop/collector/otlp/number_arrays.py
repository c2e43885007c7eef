"""Format arrays of numbers (token ids, log-probabilities) as JSON without a Python object for each number.

Invariant: the text is the JSON of the array's numbers, or None. Many arrays are decoded at once from their wire bytes,
where every number has a fixed head. An array with another head is left to the caller.
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
"""Below this size, reading value by value is as fast."""
_CHUNK_BYTES: Final = 2**18
"""Size of arrays that are decoded together; the results, ten times as large, stay in the CPU cache."""
_VALUE, _INT, _DOUBLE = 0x0A, 0x18, 0x21
_DOUBLE_BYTES: Final = 11
_DOUBLE_HEAD: Final = np.array([_VALUE, 9, _DOUBLE], np.uint8)
_PADDING: Final = 16
"""Zeros after the last array, so that eight bytes can be read at every offset."""
_INT_HEAD_BYTES: Final = 3
_WINDOW_BYTES: Final = 5
"""Bytes of a varint that are read at once."""
_LONGEST: Final = 11
"""Largest length of an integer's value: a tag and ten bytes of varint."""
_VALUE_MASK: Final = np.array([2 ** (8 * min(max(at - 1, 0), 5)) - 1 for at in range(_LONGEST + 1)], np.uint64)
"""By length: mask of the varint's bytes among five."""
_HIGH_BITS_SET: Final = np.array(
    [sum(0x80 << 8 * byte for byte in range(min(at - 2, 5))) for at in range(_LONGEST + 1)], np.uint64
)
"""By length: the high bits that are set, those of all bytes except the last."""
_HIGH_BITS: Final = np.uint64(0x8080808080)

_Words: TypeAlias = NDArray[np.uint64]


class _Numbers(NamedTuple):
    """The numbers of concatenated arrays."""

    values: NDArray[Any]
    starts: NDArray[np.int64]
    """Offset of each number."""


_Reader: TypeAlias = Callable[[bytes], _Numbers | None]


def numbers_json(array: ArrayValue) -> str | None:
    """Return ``[1,2]``; None for few values, and unless all are integers or all are finite doubles."""
    raw = serialize(array)
    return number_texts([raw])[0] if len(raw) >= _LEAST_BYTES else None


def number_texts(arrays: Sequence[bytes]) -> list[str | None]:
    """Return the text of many arrays of wire bytes; short arrays of integers have a text too."""
    texts: list[str | None] = [None] * len(arrays)
    for kind, reader, least_bytes in ((_INT, _integers, 4), (_DOUBLE, _doubles, _LEAST_BYTES)):
        indexes = [at for at, raw in enumerate(arrays) if len(raw) >= least_bytes and raw[2] == kind]
        for chunk in _chunks(indexes, arrays):
            chunk_texts = _texts([arrays[at] for at in chunk], reader)
            for at, text in zip(chunk, chunk_texts, strict=True):
                texts[at] = text
    return texts


def _chunks(indexes: Sequence[int], arrays: Sequence[bytes]) -> Iterator[Sequence[int]]:
    chunk: list[int] = []
    size = 0
    for at in indexes:
        chunk.append(at)
        size += len(arrays[at])
        if size >= _CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _texts(arrays: Sequence[bytes], reader: _Reader) -> list[str | None]:
    """Return the texts; halve the arrays when the reader cannot decode all of them."""
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
    low = (windows[starts] >> np.uint64(8 * _INT_HEAD_BYTES)) & _VALUE_MASK[lengths]
    if not np.array_equal(low & _HIGH_BITS, _HIGH_BITS_SET[lengths]):
        return None
    values = _joined(low)
    long_at = np.flatnonzero(lengths > _WINDOW_BYTES + 1)
    if len(long_at):
        left = lengths[long_at] - _WINDOW_BYTES
        high = windows[starts[long_at] + (_INT_HEAD_BYTES + _WINDOW_BYTES)] & _VALUE_MASK[left]
        # The tenth byte holds the 64th bit and no other.
        if not np.array_equal(high & _HIGH_BITS, _HIGH_BITS_SET[left]) or (high >> np.uint64(32)).max() > 1:
            return None
        values[long_at] |= _joined(high) << np.uint64(7 * _WINDOW_BYTES)
    return _Numbers(values.view(np.int64), starts)


def _joined(windows: _Words) -> _Words:
    """Join seven bits of each of five bytes."""
    values = windows & np.uint64(0x7F)
    for at in range(1, _WINDOW_BYTES):
        values |= (windows >> np.uint64(at)) & np.uint64(0x7F << 7 * at)
    return values
