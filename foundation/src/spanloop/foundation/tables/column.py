"""Declaration of a table: its columns with name, ClickHouse type, meaning and kind of default.

Invariant: nothing else states a column of these tables. Frame schemas, inserts and the reference are made from the
declarations; the migrations in ``store/migrations`` make a database that equals them, which a test compares.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Final, Literal

import polars as pl

from spanloop.foundation.errors import StoreError

from .build_frame import build_frame
from .polars_types import polars_type

LOW_CARDINALITY: Final = "LowCardinality(String)"
STRING_MAP: Final = "Map(LowCardinality(String), String)"
FLOAT_MAP: Final = "Map(LowCardinality(String), Float64)"
COUNT_MAP: Final = "Map(LowCardinality(String), UInt32)"
TIME_NS: Final = "DateTime64(9, 'UTC')"
TIME_US: Final = "DateTime64(6, 'UTC')"

DefaultKind = Literal["", "DEFAULT", "MATERIALIZED", "ALIAS"]
"""As in ClickHouse's ``system.columns``; the expression is the migration's."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    name: str
    sql_type: str
    """ClickHouse type."""
    meaning: str
    """One line of Markdown."""
    default_kind: DefaultKind = ""

    @property
    def dtype(self) -> pl.DataType:
        """The polars type."""
        return polars_type(self.sql_type)

    @property
    def is_insertable(self) -> bool:
        """Whether an insert may name the column."""
        return self.default_kind in {"", "DEFAULT"}


@dataclass(frozen=True)
class Table:
    """A table or view. Columns are in the order of the database: a later column is the last."""

    name: str
    columns: tuple[Column, ...]

    @cached_property
    def schema(self) -> pl.Schema:
        """The polars types of the insertable columns."""
        return pl.Schema({column.name: column.dtype for column in self.columns if column.is_insertable})

    @cached_property
    def required(self) -> pl.Schema:
        """The polars types of the columns without a default, which every insert must give."""
        return pl.Schema({column.name: column.dtype for column in self.columns if not column.default_kind})

    def __getitem__(self, name: str) -> Column:
        return next(column for column in self.columns if column.name == name)

    def select(self, *names: str) -> tuple[Column, ...]:
        """Return these columns, in this order, without their defaults: another table holds copies of their values."""
        return tuple(replace(self[name], default_kind="") for name in names)

    def frame(self, columns: Mapping[str, Sequence[object] | pl.Series]) -> pl.DataFrame:
        """Build rows of the table from columns by name; those with a default are optional.

        Raises:
            StoreError: A column is missing or unknown.
            TypeError: A value has another type than its column.
            OverflowError: A number is out of its column's range.
            polars.exceptions.PolarsError: A value does not fit its column.
        """
        self.check_names(columns)
        return build_frame(columns, {name: dtype for name, dtype in self.schema.items() if name in columns})

    def from_records(
        self, records: Sequence[object], attributes: Mapping[str, str] = MappingProxyType({})
    ) -> pl.DataFrame:
        """Build rows from records that have an attribute for each column without a default; it raises as `frame`.

        Args:
            records: One for each row.
            attributes: Column to attribute, where the names differ.
        """
        names = {name: attributes.get(name, name) for name in self.required}
        return self.frame({name: [getattr(record, names[name]) for record in records] for name in names})

    def from_dicts(self, rows: Sequence[Mapping[str, object]]) -> pl.DataFrame:
        """Build rows from values by column; a column that a row lacks is null, which is stored as the column's default.

        Raises:
            StoreError: A column is unknown.
            TypeError: A value has another type than its column.
        """
        names = {name: None for row in rows for name in row} | dict.fromkeys(self.required)
        self.check_names(names)
        return pl.DataFrame(list(rows), schema={name: dtype for name, dtype in self.schema.items() if name in names})

    def check_names(self, names: Mapping[str, object] | Sequence[str]) -> None:
        """Check that rows with these columns can be inserted.

        Raises:
            StoreError: A column is missing or unknown.
        """
        unknown = [name for name in names if name not in self.schema]
        missing = [name for name in self.required if name not in names]
        if unknown or missing:
            raise StoreError(
                f"A frame for table {self.name!r} has the wrong columns: unknown {unknown}, missing {missing}.",
                next_step="Compare with Store.schema(table).",
            )
