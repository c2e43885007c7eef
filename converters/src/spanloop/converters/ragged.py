# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""List columns and the flat numbers in them, without a copy: the one module of the converters that knows pyarrow."""

from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa


def ragged(values: npt.NDArray[Any], lengths: npt.NDArray[np.int64]) -> pl.Series:
    """A list column whose rows are the next ``lengths`` of ``values`` each."""
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return pl.Series(pa.LargeListArray.from_arrays(pa.array(offsets, type=pa.int64()), pa.array(values)))


def flat(lists: pl.Series) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """All values of a list column without nulls, one behind the other, and where each row's begin; the end is last."""
    array = lists.rechunk().to_arrow()
    offsets = array.offsets.to_numpy().astype(np.int64)
    values = array.values.to_numpy(zero_copy_only=False)[offsets[0] : offsets[-1]]  # a slice keeps those around it
    return values, offsets - offsets[0]


def binary(data: npt.NDArray[Any] | bytes, ends: npt.NDArray[np.int64]) -> pl.Series:
    """The bytes of ``data`` between each of ``ends`` and the next."""
    buffers = [None, pa.py_buffer(ends.astype(np.int64)), pa.py_buffer(data)]
    return pl.Series(pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(ends) - 1, buffers))


def as_bytes(lists: pl.Series) -> pl.Series:
    """The bytes of the numbers in each row of a list column without nulls."""
    values, offsets = flat(lists)
    return binary(np.ascontiguousarray(values), offsets * values.itemsize)


def compact(texts: pl.Series) -> pl.Series:
    """The same texts, one behind the other in memory: what is looked at more than once is found there faster."""
    return pl.Series(_large(texts))


def joined(texts: pl.Series, counts: npt.NDArray[np.int64]) -> pl.Series:
    """Texts that are the next ``counts`` of ``texts`` each, which has no nulls; written once."""
    array = _large(texts)
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, dtype=np.int64)[np.concatenate([[0], np.cumsum(counts)])]
    return pl.Series(pa.LargeStringArray.from_buffers(len(counts), pa.py_buffer(ends), data))


def _large(texts: pl.Series) -> Any:
    return texts.rechunk().to_arrow(compat_level=pl.CompatLevel.oldest())
