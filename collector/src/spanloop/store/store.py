"""The store: run named queries on one ClickHouse database, and insert frames into its tables.

Invariant: an insert is one block, stored completely or not at all. With a deduplication token, a second insert of the
block changes neither the table nor the targets of its materialized views. Values are never formatted into SQL.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Self

import polars as pl

from spanloop.foundation.errors import StoreError
from spanloop.foundation.tables import Table, declaration

from .client import Address, Chunks, Connection
from .cluster import cluster_text
from .migrate import migrate
from .named_queries import NamedQuery, named_query


class Store:
    """One database on one ClickHouse server. A context manager; safe to share between threads.

    Open it with ``spanloop.store.connect``, or with ``Store.open`` and an address.

    Args:
        address: The server and the database, whose schema is this code's.
        settings: Settings of every statement.
    """

    def __init__(self, address: Address, settings: Mapping[str, str] = MappingProxyType({})) -> None:
        self._address = address
        self._connection = Connection(address, settings=settings)

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
        return self._connection.query(
            self._text(query), doing=f"query {query_name!r}", parameters=query.bind(parameters), settings=query.settings
        )

    def _text(self, query: NamedQuery) -> str:
        cluster = self._connection.cluster
        if cluster is None or not query.system_tables:
            return query.sql
        return cluster_text(query.sql, cluster, of_all_servers=query.system_tables == "servers")

    def execute(self, query_name: str, /, **parameters: object) -> None:
        """Run a named statement that returns no rows; it raises as `query`."""
        query = named_query(query_name)
        self._connection.command(
            query.sql,
            doing=f"statement {query_name!r}",
            parameters=query.bind(parameters),
            settings={"async_insert": "0", **query.settings},
        )

    def schema(self, table: str) -> pl.Schema:
        """Return the polars types of the insertable columns of ``table``. StoreError: no table has this name."""
        return declaration(table).schema

    def insert(self, table: str, frame: pl.DataFrame, *, token: str = "", until_us: int | None = None) -> int:
        """Insert a frame as one block.

        Args:
            table: One of the store's tables.
            frame: Columns of the table; columns with a DEFAULT are optional. Null means the column's default.
            token: Deduplication token: ClickHouse ignores a block with a token that is in the table's deduplication
                window. Empty disables deduplication.
            until_us: The server refuses the block when its clock is later, in microseconds since the epoch.

        Returns:
            The number of rows in the frame.

        Raises:
            LateInsertError: The block came after ``until_us``; nothing is stored.
            StoreError: A column is unknown or missing, a value does not fit, or ClickHouse rejected the block. Nothing
                is stored. If the connection was lost, the block is stored or not: insert it again with its token.
        """
        conformed = _conform(declaration(table), frame)
        if frame.is_empty():
            return 0
        if until_us is None:
            self._connection.insert(table, conformed, token=token)
        else:
            self._connection.insert_until(until_us, declaration(table), conformed, token=token)
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
        self._connection.insert_bytes(table, list(self.schema(table)), block, "Native", token=token)

    def close(self) -> None:
        """Close the connections."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _conform(table: Table, frame: pl.DataFrame) -> pl.DataFrame:
    """Return the frame with the types and in the order of the table's columns."""
    table.check_names(frame.columns)
    try:
        return frame.select(pl.col(name).cast(table.schema[name]) for name in table.schema if name in frame.columns)
    except pl.exceptions.PolarsError as error:
        frame_types = {name: str(dtype) for name, dtype in frame.schema.items()}
        raise StoreError(
            f"A frame for table {table.name!r} does not fit its columns: {error}. Got {frame_types}.",
            next_step="Compare with Store.schema(table).",
        ) from error
