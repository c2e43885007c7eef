"""Column builders: Python values in, one row at a time, Arrow arrays out.

Flat lists with offsets, because a Python object for each map and list of a span costs more than the span. The only
module that knows pyarrow, which ships no type information. Arrays are made of Python values by polars: pyarrow's own
way imports pandas where there is one, which costs half a second and 43 MiB.
"""
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from collections.abc import Mapping, Sequence
from typing import Protocol, cast

import polars as pl
import pyarrow as pa


class Column(Protocol):
    """A finished column: an Arrow array."""

    def __len__(self) -> int: ...


def frame(columns: Mapping[str, Column]) -> pl.DataFrame:
    """The finished columns as one frame."""
    return pl.DataFrame(pa.table(dict(columns)))


class MapColumn:
    """A ``Map(String, String)`` column."""

    def __init__(self) -> None:
        self._offsets = [0]
        self._keys: list[str] = []
        self._values: list[str] = []

    def add(self, row: Mapping[str, str]) -> None:
        """Append one map."""
        self._keys.extend(row)
        self._values.extend(row.values())
        self._offsets.append(len(self._keys))

    def to_arrow(self) -> Column:
        """The column so far."""
        offsets = _array(self._offsets, pl.Int32())
        return cast("Column", pa.MapArray.from_arrays(offsets, strings(self._keys), strings(self._values)))


class ListOffsets:
    """Where each row's part of a nested column ends; shared by the columns of one Nested group."""

    def __init__(self) -> None:
        self._offsets = [0]

    def add(self, count: int) -> None:
        """Append a row of ``count`` items."""
        self._offsets.append(self._offsets[-1] + count)

    def wrap(self, items: Column) -> Column:
        """The flat items as a list column."""
        return cast("Column", pa.ListArray.from_arrays(_array(self._offsets, pl.Int32()), items))


def strings(values: Sequence[str]) -> Column:
    """A String column."""
    return _array(values, pl.String())


def unsigned(values: Sequence[int], bits: int) -> Column:
    """A UInt column."""
    return _array(values, {8: pl.UInt8(), 32: pl.UInt32(), 64: pl.UInt64()}[bits])


def nanoseconds(values: Sequence[int]) -> Column:
    """A ``DateTime64(9)`` column from nanoseconds since the epoch."""
    return cast("Column", pl.Series(values, dtype=pl.Int64).cast(pl.Datetime("ns", "UTC")).to_arrow())


def _array(values: Sequence[object], dtype: pl.DataType) -> Column:
    return cast("Column", pl.Series(values, dtype=dtype).to_arrow())
