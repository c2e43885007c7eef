# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
"""Build a frame from columns by name, faster than polars does from rows.

Invariant: the frame has exactly the columns of its schema. Text decoded from JSON may hold lone surrogates, which no
UTF-8 column can; they become U+FFFD.
"""

from array import array
from collections.abc import Mapping, Sequence, Sized
from itertools import accumulate, chain
from typing import cast

import polars as pl
import pyarrow as pa

from spanloop.foundation.surrogates import replace_surrogates


def build_frame(columns: Mapping[str, Sequence[object] | pl.Series], schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """Build a frame.

    Args:
        columns: The columns of ``schema`` by name, all of one length. Times are integers since the epoch, in the unit
            of their column, or datetimes.
        schema: Schema of the frame.

    Raises:
        KeyError: A column is missing.
        TypeError: A value has another type than its column.
        OverflowError: A number is out of its column's range.
        polars.exceptions.PolarsError: A value does not fit its column.
    """
    return pl.DataFrame([_series(name, columns[name], dtype) for name, dtype in schema.items()])


def _series(name: str, values: Sequence[object] | pl.Series, dtype: pl.DataType) -> pl.Series:
    if isinstance(values, pl.Series):
        return values if (values.name, values.dtype) == (name, dtype) else values.alias(name).cast(dtype)
    if isinstance(dtype, pl.Datetime) and values and isinstance(values[0], int):
        return pl.Series(name, values, dtype=pl.Int64).cast(dtype)
    if isinstance(dtype, pl.Map):
        return map_series(name, cast("Sequence[Mapping[str, object]]", values), dtype)
    if isinstance(dtype, pl.List) and values and isinstance(values[0], list):
        return _list_series(name, cast("Sequence[Sequence[object]]", values), cast("pl.DataType", dtype.inner))
    try:
        return pl.Series(name, values, dtype=dtype)
    except UnicodeEncodeError:
        return pl.Series(name, [clean_text(value) for value in values], dtype=dtype)


def clean_text(value: object) -> object:
    """Replace lone surrogates in a value that is text."""
    return replace_surrogates(value) if isinstance(value, str) else value


def map_series(name: str, values: Sequence[Mapping[str, object]], dtype: pl.Map) -> pl.Series:
    """Build a ``Map`` column out of flat columns: a struct for each row costs twenty times as much.

    Rows often share one object: each is written once.
    """
    distinct = {id(items): items for items in values}
    if len(distinct) < len(values):
        positions = {identity: position for position, identity in enumerate(distinct)}
        once = map_series(name, list(distinct.values()), dtype)
        return once.gather(pl.Series([positions[id(items)] for items in values], dtype=pl.UInt32))
    flat = pl.DataFrame(
        [
            pl.Series("key", [key for items in values for key in items], dtype=dtype.key),
            pl.Series("value", [value for items in values for value in items.values()], dtype=dtype.value),
        ]
    )
    return _lists(name, flat.to_struct(), values).cast(dtype)


def _list_series(name: str, values: Sequence[Sequence[object]], inner: pl.DataType) -> pl.Series:
    """Build a column of lists out of one flat column: polars takes 30 times as long for lists of objects."""
    return _lists(name, _series("", list(chain.from_iterable(values)), inner), values)


def _lists(name: str, items: pl.Series, values: Sequence[Sized]) -> pl.Series:
    """Cut ``items`` into as many lists as there are ``values``, each of its length."""
    flat = items.to_arrow()
    buffers = [None, pa.py_buffer(array("q", accumulate(map(len, values), initial=0)))]
    lists = pa.Array.from_buffers(pa.large_list(flat.type), len(values), buffers, children=[flat])
    return pl.Series(name, lists)
