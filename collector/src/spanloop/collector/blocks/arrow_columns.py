"""Build Arrow columns from Python values, row by row.

Values are stored in flat lists with offsets, because a Python object for each map and list of a span costs more than
the span. The only module that imports pyarrow, which ships no type information. polars converts Python values to
arrays: pyarrow's conversion imports pandas when it is installed, which costs half a second and 43 MiB.
"""
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from collections.abc import Mapping, Sequence
from typing import Final, Protocol, cast

import polars as pl
import pyarrow as pa

from spanloop.foundation.tables import Table

ATTRIBUTES: Final = pl.Map(pl.String(), pl.String())


def names_of_type(table: Table, dtype: pl.DataType) -> list[str]:
    """Return the insertable columns of a type. A column that gets no values is an error of `build_frame`."""
    return [name for name, each in table.schema.items() if each == dtype]


class Column(Protocol):
    """An Arrow array."""

    def __len__(self) -> int: ...


def build_frame(columns: Mapping[str, Column]) -> pl.DataFrame:
    """Build a frame from columns."""
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
        """Return the column so far."""
        offsets = _array(self._offsets, pl.Int32())
        return cast("Column", pa.MapArray.from_arrays(offsets, string_column(self._keys), string_column(self._values)))


class ListOffsets:
    """Offsets of each row's items in a nested column; shared by the columns of one Nested group."""

    def __init__(self) -> None:
        self._offsets = [0]

    def add(self, count: int) -> None:
        """Append a row of ``count`` items."""
        self._offsets.append(self._offsets[-1] + count)

    def wrap(self, items: Column) -> Column:
        """Build a list column from the flat items."""
        return cast("Column", pa.ListArray.from_arrays(_array(self._offsets, pl.Int32()), items))


def string_column(values: Sequence[str]) -> Column:
    """Build a String column."""
    return _array(values, pl.String())


def number_column(values: Sequence[int], dtype: pl.DataType) -> Column:
    """Build a column of numbers."""
    return _array(values, dtype)


def datetime_column(values: Sequence[int]) -> Column:
    """Build a ``DateTime64(9)`` column from nanoseconds since the epoch."""
    return cast("Column", pl.Series(values, dtype=pl.Int64).cast(pl.Datetime("ns", "UTC")).to_arrow())


def _array(values: Sequence[object], dtype: pl.DataType) -> Column:
    return cast("Column", pl.Series(values, dtype=dtype).to_arrow())
