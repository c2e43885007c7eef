"""Copy a safetensors file with its numbers in bfloat16, by numpy alone: a host that deploys need not have torch.

Invariant: a number becomes the nearest bfloat16, ties to even, and NaN stays NaN, as in torch. Integers, booleans and
8-bit floats are copied as they are. One block of numbers is in memory at a time.

The format: eight bytes with the length of the header (little endian), the header in JSON, then the tensors' bytes. Each
entry of the header has ``dtype``, ``shape`` and ``data_offsets``, which count from the end of the header.
"""

import json
import os
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

_METADATA: Final = "__metadata__"
_WIDER: Final = {"F64": "<f8", "F32": "<f4", "F16": "<f2"}
"""The numbers that are converted, and numpy's name of each."""

_BLOCK_NUMBERS: Final = 1 << 24
_ALIGNMENT_BYTES: Final = 8
_NAN: Final = 0x7FC0


class _Tensor(NamedTuple):
    """One entry of a file's header."""

    dtype: str
    shape: tuple[int, ...]
    first_byte: int
    """Counted from the start of the file."""
    size_bytes: int

    @property
    def is_converted(self) -> bool:
        return self.dtype in _WIDER

    @property
    def copied_bytes(self) -> int:
        """The size of the copy."""
        return 2 * self.size_bytes // np.dtype(_WIDER[self.dtype]).itemsize if self.is_converted else self.size_bytes


def tensor_names(file: Path) -> list[str]:
    """Return the names of a safetensors file's tensors."""
    return list(_read_header(file))


def copy_as_bfloat16(source: Path, target: Path, second_names: Mapping[str, str]) -> None:
    """Write ``target`` and sync it.

    Args:
        source: A safetensors file.
        target: The file to create.
        second_names: New name → name of the tensor in ``source`` whose copy gets it too.
    """
    tensors = _read_header(source)
    tensors |= {name: tensors[original] for name, original in second_names.items()}
    # Large types first, so that each tensor begins where its type is aligned.
    names = sorted(tensors, key=lambda name: (-tensors[name].copied_bytes // max(1, prod(tensors[name].shape)), name))
    header: dict[str, Any] = {_METADATA: {"format": "pt"}}
    offset = 0
    for name in names:
        tensor = tensors[name]
        end = offset + tensor.copied_bytes
        dtype = "BF16" if tensor.is_converted else tensor.dtype
        header[name] = {"dtype": dtype, "shape": tensor.shape, "data_offsets": (offset, end)}
        offset = end
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % _ALIGNMENT_BYTES)
    with target.open("wb") as file:
        file.write(len(encoded).to_bytes(8, "little") + encoded)
        for name in names:
            for block in _blocks(source, tensors[name]):
                file.write(block.tobytes())
        file.flush()
        os.fsync(file.fileno())


def _read_header(path: Path) -> dict[str, _Tensor]:
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header: dict[str, Any] = json.loads(file.read(length))
    return {
        name: _Tensor(entry["dtype"], tuple(entry["shape"]), 8 + length + begin, end - begin)
        for name, entry in header.items()
        if name != _METADATA
        for begin, end in [entry["data_offsets"]]
    }


def _blocks(source: Path, tensor: _Tensor) -> Iterator[NDArray[Any]]:
    dtype = np.dtype(_WIDER.get(tensor.dtype, "u1"))
    with source.open("rb") as file:
        file.seek(tensor.first_byte)
        remaining = tensor.size_bytes // dtype.itemsize
        while remaining:
            numbers = np.fromfile(file, dtype, min(remaining, _BLOCK_NUMBERS))
            remaining -= numbers.size
            yield _rounded(numbers) if tensor.is_converted else numbers


def _rounded(numbers: NDArray[Any]) -> NDArray[np.uint16]:
    with np.errstate(over="ignore", invalid="ignore"):  # beyond float32's range is infinity, as in torch
        bits = numbers.astype("<f4").view("<u4")
    rounded = ((bits + (0x7FFF + ((bits >> 16) & 1))) >> 16).astype("<u2")
    rounded[np.isnan(numbers)] = _NAN
    return rounded
