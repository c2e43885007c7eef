"""The store: named queries out, frames in, one ClickHouse behind both.

Invariant: an insert is one block, all of it or nothing; with a token, sending it again changes nothing, in the
table and in the targets of its materialized views. Nothing here builds SQL from values.
"""

import re
from collections.abc import Sequence
from threading import Lock
from types import TracebackType
from typing import Final, NamedTuple, Self

import polars as pl

from spanloop.semconv.errors import StoreError

from .client import Address, Connection, Pieces
from .migrate import migrate
from .named_queries import named_query
from .polars_types import polars_type

_IDENTIFIER: Final = re.compile(r"[A-Za-z_]\w*")


class _Column(NamedTuple):
    """One column of a table that can be inserted."""

    name: str
    dtype: pl.DataType
    has_default: bool


class Store:
    """One database on one ClickHouse. A context manager; safe to share between threads.

    Get one from ``spanloop.store.connect``, or from ``Store.open`` with an address.
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
            StoreError: Out of reach, or a schema that this code must not touch.
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

    def query(self, query_name: str, /, **parameters: object) -> pl.DataFrame:
        """The answer of a named query.

        Args:
            query_name: A file's stem in ``store/queries/``.
            parameters: Exactly the ``{name:Type}`` parameters of that query. Datetimes without a zone are UTC.

        Raises:
            StoreError: Unknown name, wrong parameters, or ClickHouse refused.
        """
        query = named_query(query_name)
        return self._connection.query(query.sql, doing=f"query {query_name!r}", parameters=query.bind(parameters))

    def execute(self, query_name: str, /, **parameters: object) -> None:
        """Run a named statement that answers no rows.

        Raises:
            StoreError: As ``query``.
        """
        query = named_query(query_name)
        self._connection.command(
            query.sql,
            doing=f"statement {query_name!r}",
            parameters=query.bind(parameters),
            settings={"async_insert": "0"},
        )

    def schema(self, table: str) -> pl.Schema:
        """The polars type of each column of ``table`` that can be inserted, in the table's order.

        Raises:
            StoreError: No such table.
        """
        return pl.Schema({column.name: column.dtype for column in self._insertable(table)})

    def insert(self, table: str, frame: pl.DataFrame, *, token: str = "") -> int:
        """Insert a frame as one block.

        Args:
            table: One of the store's tables.
            frame: Columns of the table; those with a DEFAULT may be left out. Null means the column's default.
            token: Deduplication token: the same token again, within the table's window, is ignored.
                Without one, nothing is deduplicated.

        Returns:
            The number of rows in the frame.

        Raises:
            StoreError: Unknown or missing columns, a value that does not fit, or ClickHouse refused. Nothing was
                stored, or, when ClickHouse went away meanwhile, all or nothing: send the block again with its token.
        """
        fitting = self._conform(table, frame)
        if frame.is_empty():
            return 0
        self._connection.insert(table, fitting, token=token)
        return frame.height

    def insert_from(self, query_name: str, /, data: Sequence[bytes] | Pieces, *, token: str = "") -> None:
        """Insert what a named INSERT … SELECT … FROM input() … FORMAT … statement makes of data, as one block.

        Args:
            query_name: A file's stem in ``store/queries/``; it takes no parameters.
            data: In the statement's format, in pieces that are sent one after the other.
            token: As `insert`.

        Raises:
            StoreError: As `insert`.
        """
        size_bytes = sum(map(len, data)) if isinstance(data, Sequence) else data.size_bytes
        doing = f"inserting {size_bytes} bytes by {query_name!r}"
        self._connection.insert_from(named_query(query_name).sql, data, doing=doing, token=token)

    def read_native(self, query_name: str, /, **parameters: object) -> bytes:
        """The answer of a named query in ClickHouse's own format, which holds every type as it is.

        Raises:
            StoreError: As `query`.
        """
        query = named_query(query_name)
        return self._connection.read(
            query.sql, "Native", doing=f"query {query_name!r}", parameters=query.bind(parameters)
        )

    def insert_native(self, table: str, block: bytes, *, token: str = "") -> None:
        """Insert what `read_native` gave for all insertable columns of a table, as one block.

        Raises:
            StoreError: As `insert`.
        """
        columns = [column.name for column in self._insertable(table)]
        self._connection.insert_bytes(table, columns, block, "Native", token=token)

    def close(self) -> None:
        """Close the connections."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _conform(self, table: str, frame: pl.DataFrame) -> pl.DataFrame:
        columns = self._insertable(table)
        known = {column.name for column in columns}
        unknown = [name for name in frame.columns if name not in known]
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
            raise StoreError(f"{table!r} is no table name.")
        columns = self._connection.query(f"DESCRIBE TABLE `{table}`", doing=f"describing table {table!r}")
        return tuple(
            _Column(str(name), polars_type(str(kind)), has_default=default == "DEFAULT")
            for name, kind, default in columns.select("name", "type", "default_type").iter_rows()
            if default in {"", "DEFAULT"}
        )
