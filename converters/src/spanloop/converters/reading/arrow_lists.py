# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""List columns and the flat numbers in them, without a copy: the one module of the converters that knows pyarrow."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa


def list_column(values: npt.NDArray[Any], lengths: npt.NDArray[np.int64]) -> pl.Series:
    """A list column whose rows are the next ``lengths`` of ``values`` each."""
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    items = pl.Series(values).to_arrow()
    buffers = [None, pa.py_buffer(offsets)]
    return pl.Series(pa.Array.from_buffers(pa.large_list(items.type), len(lengths), buffers, children=[items]))


def flat(lists: pl.Series) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """All values of a list column without nulls, one behind the other, and where each row's begin; the end is last.

    Buffers are read as they are: pyarrow's own way to numpy imports pandas.
    """
    array = lists.rechunk().to_arrow()
    offsets = np.frombuffer(array.buffers()[1], dtype=np.int64)[array.offset : array.offset + len(array) + 1]
    values = pl.Series(array.values).to_numpy()[offsets[0] : offsets[-1]]  # a slice keeps those around it
    return values, offsets - offsets[0]


def binary(data: npt.NDArray[Any] | bytes, ends: npt.NDArray[np.int64]) -> pl.Series:
    """The bytes of ``data`` between each of ``ends`` and the next."""
    buffers = [None, pa.py_buffer(ends.astype(np.int64)), pa.py_buffer(data)]
    return pl.Series(pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(ends) - 1, buffers))


_INLINE: Final = 12
"""Texts up to this stand in their view itself."""
_FAR: Final = 2**31
"""Views reach that far."""
_NEWLINE: Final = 10


def string_views(data: bytes, starts: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> pl.Series:
    """The pieces of a UTF-8 text that begin at ``starts``, in bytes; they may overlap, and as a rule none is copied."""
    if not data or len(data) >= _FAR:
        texts = [data[start : start + size].decode() for start, size in zip(starts, sizes, strict=True)]
        return pl.Series(texts, dtype=pl.String)
    views = np.zeros(len(starts), dtype=[("size", "<i4"), ("head", "V4"), ("buffer", "<i4"), ("start", "<i4")])
    views["size"] = sizes
    raw, long, short = np.frombuffer(data, dtype=np.uint8), sizes > _INLINE, np.flatnonzero(sizes <= _INLINE)
    views["start"][long] = starts[long]
    views["head"][long] = raw[starts[long, None] + np.arange(4)].view("V4").ravel()
    if len(short):
        places = np.arange(_INLINE)
        inside = raw[np.minimum(starts[short, None] + places, len(data) - 1)]
        views.view(np.uint8).reshape(-1, 16)[short, 4:] = np.where(places < sizes[short, None], inside, 0)
    buffers = [None, pa.py_buffer(views), pa.py_buffer(data)]
    return pl.Series(pa.Array.from_buffers(pa.string_view(), len(starts), buffers))


def lines(blocks: Sequence[bytes]) -> pl.Series:
    """The lines of UTF-8 texts, each of which ends with a line."""
    ends = [np.flatnonzero(np.frombuffer(block, dtype=np.uint8) == _NEWLINE) for block in blocks]
    offsets = np.cumsum([0, *(len(block) for block in blocks)])
    whole = np.concatenate(
        [np.zeros(0, dtype=np.int64), *(line_ends + offset for line_ends, offset in zip(ends, offsets, strict=False))]
    )
    starts = np.concatenate([[0], whole + 1])[:-1]
    return string_views(b"".join(blocks), starts, whole - starts)
