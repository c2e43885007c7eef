"""Read and write safetensors files without torch, one tensor at a time.

The format: eight bytes, the length of a JSON header in little endian; the header, padded with spaces to a multiple of
eight bytes, with dtype, shape and byte range of each tensor by its name; the tensors' bytes without gaps
(https://huggingface.co/docs/safetensors).

Invariant: a conversion to bfloat16 rounds to the nearest value, ties to even, and keeps NaN, as torch does.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, cast

import numpy as np
import numpy.typing as npt

from spanloop.foundation.errors import JobError

_METADATA: Final = "__metadata__"
_LENGTH_BYTES: Final = 8
_MAX_HEADER_BYTES: Final = 100_000_000
"""As the library's own limit."""
_BFLOAT16_BYTES: Final = 2
_FLOATS: Final[Mapping[str, np.dtype[Any]]] = {"F64": np.dtype("<f8"), "F32": np.dtype("<f4"), "F16": np.dtype("<f2")}
_EXPONENT: Final = np.uint32(0x7F80_0000)
_QUIET_NAN: Final = np.uint16(0x7FC0)


class Tensor(NamedTuple):
    """One tensor, whose bytes are read when they are needed."""

    name: str
    dtype: str
    """As in the header: ``F32``, ``BF16``, …"""
    shape: tuple[int, ...]
    size_bytes: int
    read: Callable[[], bytes]

    def as_bfloat16(self) -> "Tensor":
        """Return the tensor in bfloat16; one of integers as it is."""
        source = _FLOATS.get(self.dtype)
        if source is None:
            return self
        size_bytes = self.size_bytes // source.itemsize * _BFLOAT16_BYTES
        return Tensor(
            self.name, "BF16", self.shape, size_bytes, lambda: to_bfloat16(np.frombuffer(self.read(), source))
        )


@dataclass(frozen=True, slots=True)
class SafetensorsFile:
    """The tensors of one file, in the order of their names in the header."""

    path: Path
    tensors: tuple[Tensor, ...]

    @classmethod
    def open(cls, path: Path) -> Self:
        """Read the header.

        Raises:
            JobError: It is no safetensors file, or is cut off.
        """
        try:
            with path.open("rb") as file:
                length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
                header = cast("dict[str, Any]", json.loads(file.read(min(length, _MAX_HEADER_BYTES))))
            header.pop(_METADATA, None)
            start = _LENGTH_BYTES + length
            tensors = tuple(_tensor(path, start, name, entry) for name, entry in header.items())
            size_bytes = path.stat().st_size
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise JobError(f"{path} is not a safetensors file: {error!r}.") from error
        end = start + sum(tensor.size_bytes for tensor in tensors)
        if size_bytes < end:
            raise JobError(f"{path} is cut off: got {size_bytes:,} bytes, expected {end:,}.")
        return cls(path, tensors)


def write_safetensors(path: Path, tensors: Sequence[Tensor]) -> None:
    """Write tensors to a new file, one at a time."""
    header: dict[str, Any] = {_METADATA: {"format": "pt"}}
    end = 0
    # The widest elements first, so that each tensor is aligned to the size of its elements.
    ordered = sorted(tensors, key=lambda tensor: -(tensor.size_bytes // max(1, math.prod(tensor.shape))))
    for tensor in ordered:
        begin, end = end, end + tensor.size_bytes
        header[tensor.name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _LENGTH_BYTES)
    with path.open("xb") as file:
        file.write(len(text).to_bytes(_LENGTH_BYTES, "little") + text)
        for tensor in ordered:
            file.write(tensor.read())


def to_bfloat16(values: npt.NDArray[Any]) -> bytes:
    """Return the bytes of floating-point numbers in bfloat16."""
    with np.errstate(over="ignore", invalid="ignore"):  # beyond float32 is infinite, as in torch
        bits = values.astype("<f4").view(np.uint32)
    rounded = ((bits + (((bits >> np.uint32(16)) & np.uint32(1)) + np.uint32(0x7FFF))) >> np.uint32(16)).astype("<u2")
    rounded[(bits & np.uint32(0x7FFF_FFFF)) > _EXPONENT] = _QUIET_NAN
    return rounded.tobytes()


def _tensor(path: Path, start: int, name: str, entry: dict[str, Any]) -> Tensor:
    begin, end = (int(offset) for offset in entry["data_offsets"])

    def read() -> bytes:
        with path.open("rb") as file:
            file.seek(start + begin)
            return file.read(end - begin)

    return Tensor(name, str(entry["dtype"]), tuple(map(int, entry["shape"])), end - begin, read)
