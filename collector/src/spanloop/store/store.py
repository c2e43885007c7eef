"""The store: run named queries on one ClickHouse database, and insert frames into its tables.

Invariant: an insert is one block, stored completely or not at all. With a deduplication token, a second insert of the
block changes neither the table nor the targets of its materialized views. Values are never formatted into SQL.
"""

import re
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Final, NamedTuple, Self

import polars as pl

from spanloop.foundation.errors import StoreError

from .client import Address, Chunks, Connection
from .migrate import migrate
from .named_queries import named_query

_IDENTIFIER: Final = re.compile(r"[A-Za-z_]\w*")


class _Column(NamedTuple):
    """An insertable column of a table."""

    name: str
    dtype: pl.DataType
    has_default: bool


class Store:
    """One database on one ClickHouse server. A context manager; safe to share between threads.

    Open it with ``spanloop.store.connect``, or with ``Store.open`` and an address.
    """

    def __init__(self, address: Address) -> None:
        self._address = address
        self._connection = Connection(address)
        self._columns: dict[str, tuple[_Column, ...]] = {}
        self._lock = Lock()

    @classmethod
    def open(cls, address: Address) -> Self:
        """Migrate the database and connect to it.

        Raises:
            StoreError: ClickHouse is unreachable, or this code cannot migrate the schema.
        """
        migrate(address)
        return cls(address)

    @property
    def url(self) -> str:
        """The address, without the password."""
        return str(self._address)

    @property
    def database(self) -> str:
        """The database's name."""
        return self._address.database

    @property
    def connection(self) -> Connection:
        """The connection, for modules of ``spanloop.store`` that alter the schema."""
        return self._connection

    def query(self, query_name: str, /, **parameters: object) -> pl.DataFrame:
        """Run a named query and return its result.

        Args:
            query_name: Stem of a file in the folder ``queries/`` of a package.
            parameters: Exactly the ``{name:Type}`` parameters of the query. Datetimes without a time zone are UTC.

        Raises:
            StoreError: The name is unknown, a parameter is wrong, or ClickHouse rejected the query.
        """
        query = named_query(query_name)
        return self._connection.query(query.sql, doing=f"query {query_name!r}", parameters=query.bind(parameters))

    def execute(self, query_name: str, /, **parameters: object) -> None:
        """Run a named statement that returns no rows; it raises as `query`."""
        query = named_query(query_name)
        self._connection.command(
            query.sql,
            doing=f"statement {query_name!r}",
            parameters=query.bind(parameters),
            settings={"async_insert": "0"},
        )

    def schema(self, table: str) -> pl.Schema:
        """Return the polars types of the insertable columns of ``table``. StoreError: the table does not exist."""
        return pl.Schema({column.name: column.dtype for column in self._insertable(table)})

    def insert(self, table: str, frame: pl.DataFrame, *, token: str = "") -> int:
        """Insert a frame as one block.

        Args:
            table: One of the store's tables.
            frame: Columns of the table; columns with a DEFAULT are optional. Null means the column's default.
            token: Deduplication token: ClickHouse ignores a block with a token that is in the table's deduplication
                window. Empty disables deduplication.

        Returns:
            The number of rows in the frame.

        Raises:
            StoreError: A column is unknown or missing, a value does not fit, or ClickHouse rejected the block. Nothing
                is stored. If the connection was lost, the block is stored or not: insert it again with its token.
        """
        conformed = self._conform(table, frame)
        if frame.is_empty():
            return 0
        self._connection.insert(table, conformed, token=token)
        return frame.height

    def insert_from(self, query_name: str, /, data: Sequence[bytes] | Chunks, *, token: str = "") -> None:
        """Run a named INSERT … SELECT … FROM input() … FORMAT … statement on data, which inserts one block.

        Args:
            query_name: Stem of a file in the folder ``queries/`` of a package; the statement takes no parameters.
            data: Chunks in the statement's format, which are sent one after the other.
            token: As in `insert`, which raises the same errors.
        """
        size_bytes = sum(map(len, data)) if isinstance(data, Sequence) else data.size_bytes
        doing = f"inserting {size_bytes} bytes by {query_name!r}"
        self._connection.insert_from(named_query(query_name).sql, data, doing=doing, token=token)

    def read_native(self, query_name: str, /, **parameters: object) -> bytes:
        """Return the result of a query in ClickHouse's Native format, which preserves every type; raises as `query`."""
        query = named_query(query_name)
        return self._connection.read(
            query.sql, "Native", doing=f"query {query_name!r}", parameters=query.bind(parameters)
        )

    def insert_native(self, table: str, block: bytes, *, token: str = "") -> None:
        """Insert a result of `read_native` with all insertable columns as one block; it raises as `insert`."""
        columns = [column.name for column in self._insertable(table)]
        self._connection.insert_bytes(table, columns, block, "Native", token=token)

    def close(self) -> None:
        """Close the connections."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _conform(self, table: str, frame: pl.DataFrame) -> pl.DataFrame:
        columns = self._insertable(table)
        names = {column.name for column in columns}
        unknown = [name for name in frame.columns if name not in names]
        missing = [column.name for column in columns if not column.has_default and column.name not in frame.columns]
        if unknown or missing:
            raise StoreError(
                f"A frame for table {table!r} has the wrong columns: unknown {unknown}, missing {missing}.",
                next_step="Compare with Store.schema(table).",
            )
        try:
            return frame.select(
                pl.col(column.name).cast(column.dtype) for column in columns if column.name in frame.columns
            )
        except pl.exceptions.PolarsError as error:
            got = {name: str(dtype) for name, dtype in frame.schema.items()}
            raise StoreError(
                f"A frame for table {table!r} does not fit its columns: {error}. Got {got}.",
                next_step="Compare with Store.schema(table).",
            ) from error

    def _insertable(self, table: str) -> tuple[_Column, ...]:
        with self._lock:
            if table not in self._columns:
                self._columns[table] = self._describe(table)
            return self._columns[table]

    def _describe(self, table: str) -> tuple[_Column, ...]:
        if not _IDENTIFIER.fullmatch(table):
            raise StoreError(f"{table!r} is not a table name.")
        columns = self._connection.query(f"DESCRIBE TABLE `{table}`", doing=f"describing table {table!r}")
        return tuple(
            _Column(str(name), polars_type(str(kind)), has_default=default == "DEFAULT")
            for name, kind, default in columns.select("name", "type", "default_type").iter_rows()
            if default in {"", "DEFAULT"}
        )


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
