"""Arrays of many numbers, token ids and logprobs above all, as JSON without a Python object for each on the way in.

Invariant: the text is the JSON of the numbers in the array, or there is none. The array is looked at as the bytes that
the protobuf runtime writes for it: every value there has a fixed head, and what has another one is left to others.
"""

from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray
from opentelemetry.proto.common.v1.common_pb2 import ArrayValue

from .wire import serialize

_LEAST_BYTES: Final = 128
"""Below it asking value by value is as quick."""
_VALUE, _INT, _DOUBLE = 0x0A, 0x18, 0x21
_DOUBLE_BYTES: Final = 11
_DOUBLE_HEAD: Final = np.array([_VALUE, 9, _DOUBLE], np.uint8)

_Bytes = NDArray[np.uint8]


def numbers_json(array: ArrayValue) -> str | None:
    """``[1,2]``; None for few values, and where not all are integers, or not all finite doubles."""
    raw = serialize(array)
    if len(raw) < _LEAST_BYTES:
        return None
    data = np.frombuffer(raw, np.uint8)
    numbers = _doubles(data) if raw[2] == _DOUBLE else _integers(data)
    return None if numbers is None else msgspec.json.encode(numbers).decode()


def _doubles(data: _Bytes) -> list[float] | None:
    if len(data) % _DOUBLE_BYTES:
        return None
    values = data.reshape(-1, _DOUBLE_BYTES)
    if not np.array_equal(values[:, :3], np.broadcast_to(_DOUBLE_HEAD, (len(values), 3))):
        return None
    numbers = np.ascontiguousarray(values[:, 3:]).view("<f8").ravel()
    return list(numbers.tolist()) if np.isfinite(numbers).all() else None


def _integers(data: _Bytes) -> list[int] | None:
    # Of the bytes of one value four have no high bit: its tag, its length, the integer's tag, the integer's last byte.
    ends = np.flatnonzero(data < 0x80)
    if len(ends) % 4 or ends[-1] != len(data) - 1:
        return None
    tags, lengths, kinds, lasts = ends.reshape(-1, 4).T
    sizes = lasts - kinds
    is_regular = (
        tags[0] == 0
        and np.array_equal(tags[1:], lasts[:-1] + 1)
        and np.array_equal(lengths, tags + 1)
        and np.array_equal(kinds, tags + 2)
        and (data[tags] == _VALUE).all()
        and (data[lengths] == sizes + 1).all()
        and (data[kinds] == _INT).all()
    )
    if not is_regular:
        return None
    numbers = np.zeros(len(tags), np.uint64)
    for at in range(int(sizes.max())):
        longer = sizes > at
        numbers[longer] |= (data[kinds[longer] + 1 + at] & 0x7F).astype(np.uint64) << np.uint64(7 * at)
    return list(numbers.view(np.int64).tolist())
