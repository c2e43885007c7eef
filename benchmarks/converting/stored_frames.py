"""Frames as the store gives them to the conversion, out of plain rows."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl

from spanloop.converters import frames

Row = dict[str, Any]


class Given(NamedTuple):
    """What one conversion reads."""

    spans: pl.DataFrame
    generations: pl.DataFrame
    """Captures of the gateway."""
    scores: pl.DataFrame


def frame(rows: Sequence[Mapping[str, Any]], schema: pl.Schema) -> pl.DataFrame:
    """Rows of ``schema`` whose times are integers in the column's unit; what a row lacks is null."""
    times = {name: dtype for name, dtype in schema.items() if dtype in {frames.TIME_NS, frames.TIME_US}}
    raw = {name: pl.Int64() if name in times else dtype for name, dtype in schema.items()}
    return pl.DataFrame(rows, schema=raw).with_columns(pl.col(name).cast(dtype) for name, dtype in times.items())


def items(values: Mapping[str, str]) -> list[dict[str, str]]:
    """A map column's value."""
    return [{"key": key, "value": value} for key, value in values.items()]
