"""Polars frames and ClickHouse blocks: which polars type a column type is, and the way in and out through Arrow.

Invariant: a frame that was read from a table can be inserted into it again unchanged. Unknown column types are an
error, never a guess.
"""

import io
import re
from collections.abc import Mapping
from typing import Final

import polars as pl
import pyarrow as pa

from spanloop.semconv.errors import StoreError

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
_WRAPPED: Final = re.compile(r"(Nullable|LowCardinality|Array)\((.*)\)")
_MAP: Final = re.compile(r"Map\((LowCardinality\(\w+\)|\w+), (.*)\)")
_TIME: Final = re.compile(r"DateTime64\((\d)(?:, '[^']*')?\)")


def polars_type(clickhouse_type: str) -> pl.DataType:
    """The polars type of a ClickHouse column type.

    Raises:
        StoreError: A type that spanloop's tables do not use.
    """
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
        f"Column type {clickhouse_type} has no frame type; expected one of {', '.join(_SCALARS)}, DateTime64, "
        "or Nullable, LowCardinality, Array or Map of these."
    )


def to_block(frame: pl.DataFrame) -> bytes:
    """The frame as one Arrow file with a single record batch, so that ClickHouse forms one block of it."""
    table = frame.rechunk().to_arrow(compat_level=pl.CompatLevel.oldest()).combine_chunks()
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=max(1, table.num_rows))
    return sink.getvalue()


def from_arrow(table: pa.Table) -> pl.DataFrame:
    """A query's answer as a frame; times are in UTC."""
    frame = pl.from_arrow(table)
    if not isinstance(frame, pl.DataFrame):
        raise StoreError(f"A query's answer is no table but {type(frame).__name__}.")
    return frame
