"""The polars type of a ClickHouse column type."""

import re
from collections.abc import Mapping
from functools import cache
from typing import Final

import polars as pl

from spanloop.foundation.errors import StoreError

_SCALARS: Final[Mapping[str, pl.DataType]] = {
    "String": pl.String(),
    "Bool": pl.Boolean(),
    "UInt8": pl.UInt8(),
    "UInt16": pl.UInt16(),
    "UInt32": pl.UInt32(),
    "UInt64": pl.UInt64(),
    "Int8": pl.Int8(),
    "Int16": pl.Int16(),
    "Int32": pl.Int32(),
    "Int64": pl.Int64(),
    "Float32": pl.Float32(),
    "Float64": pl.Float64(),
    "Date": pl.Date(),
    "DateTime": pl.Datetime("ms", "UTC"),
}
_WRAPPED: Final = re.compile(r"(Nullable|LowCardinality|Array|SimpleAggregateFunction)\((?:\w+, )?(.*)\)")
_MAP: Final = re.compile(r"Map\((LowCardinality\(\w+\)|\w+), (.*)\)")
_TIME: Final = re.compile(r"DateTime64\((\d)(?:, '[^']*')?\)")


@cache
def polars_type(clickhouse_type: str) -> pl.DataType:
    """Return the polars type of a ClickHouse column type. A type that spanloop does not use is a StoreError."""
    if clickhouse_type in _SCALARS:
        return _SCALARS[clickhouse_type]
    if time := _TIME.fullmatch(clickhouse_type):
        digits = int(time[1])
        return pl.Datetime("ns" if digits > 6 else "us" if digits > 3 else "ms", "UTC")
    if clickhouse_type.startswith("DateTime("):
        return _SCALARS["DateTime"]
    if wrapped := _WRAPPED.fullmatch(clickhouse_type):
        inner = polars_type(wrapped[2])
        return pl.List(inner) if wrapped[1] == "Array" else inner
    if mapped := _MAP.fullmatch(clickhouse_type):
        return pl.Map(polars_type(mapped[1]), polars_type(mapped[2]))
    raise StoreError(
        f"Column type {clickhouse_type} has no polars type; expected one of {', '.join(_SCALARS)}, DateTime64, "
        "or Nullable, LowCardinality, Array or Map of these."
    )
