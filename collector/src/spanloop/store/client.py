"""The ClickHouse client: server addresses, settings of every statement, and translation of clickhouse-connect's errors.

Invariant: no other module but `client_errors` imports clickhouse-connect. Settings are explicit, because ClickHouse
changes its defaults between releases.

On a cluster a statement goes to one server, which sends the shards what concerns them. A statement that changes the
schema, or rows in place, is translated first. When the server does not answer, the next one of the address takes over.
"""

import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from threading import Lock
from types import MappingProxyType
from typing import Final, Protocol, TypeVar, cast

import clickhouse_connect
import polars as pl
from clickhouse_connect.driver.httputil import get_pool_manager  # pyright: ignore[reportUnknownVariableType]

from spanloop.foundation.errors import StoreError
from spanloop.foundation.tables import Table
from spanloop.semconv.environment import CLICKHOUSE_URL_ENV

from .address import DEFAULT_DATABASE, Address
from .client_errors import CUT_OFF, UnreachableError, store_errors
from .cluster import Cluster, Form, cluster_settings, cluster_statements, discover_cluster, is_schema_statement

__all__ = ["DEFAULT_DATABASE", "Address", "Chunks", "Connection"]

_SETTINGS: Final = {"session_timezone": "UTC"}
_QUERY_SETTINGS: Final = {
    "output_format_arrow_string_as_string": "1",
    "output_format_arrow_low_cardinality_as_dictionary": "0",
    "output_format_arrow_compression_method": "lz4_frame",
    # The server buffers a response until the query ends. Without this it buffers on disk, and a full disk empties it.
    "buffer_size": str(16 << 20),
}
_ARROW_END: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"
_INSERT_SETTINGS: Final = {
    # The index of words is built when parts are merged: an insert would take several times as long.
    "exclude_materialize_skip_indexes_on_insert": "idx_words",
    "async_insert": "0",
    "deduplicate_blocks_in_dependent_materialized_views": "1",
    "materialized_views_ignore_errors": "0",
    "input_format_null_as_default": "1",
    # One day is one partition: a batch of old spans must not fail because it spans more than 100 days (the default).
    "max_partitions_per_insert_block": "0",
}
_CONNECT_TIMEOUT_S: Final = 5
_RESPONSE_TIMEOUT_S: Final = 300
_POOL_SIZE: Final = 16

Result = TypeVar("Result")


class Chunks(Protocol):
    """Data that is not all in memory, as an iterable of chunks. Each iteration starts at the first chunk."""

    size_bytes: int
    """Size of all chunks together."""

    def __iter__(self) -> Iterator[bytes]:
        """Iterate over the chunks."""
        ...


class _RequestBody:
    """Request body of a statement and its data. Each attempt of the driver iterates from the start."""

    def __init__(self, statement: bytes, data: Iterable[bytes]) -> None:
        self._statement = statement
        self._data = data

    def __iter__(self) -> Iterator[bytes]:
        yield self._statement
        yield from self._data


class _Driver(Protocol):
    """The methods of clickhouse-connect's client that spanloop calls, typed where its own signatures are not."""

    @property
    def server_settings(self) -> Mapping[str, object]: ...

    def command(
        self, cmd: str, parameters: Mapping[str, object] | None = None, *, settings: Mapping[str, str] | None = None
    ) -> object: ...

    def raw_query(
        self, query: str, parameters: Mapping[str, object] | None = None, *, settings: Mapping[str, str], fmt: str
    ) -> bytes: ...

    def raw_insert(
        self,
        table: str | None,
        column_names: Sequence[str] | None,
        insert_block: bytes | Iterable[bytes],
        settings: Mapping[str, str],
        fmt: str | None,
        *,
        transport_settings: Mapping[str, str] | None = None,
    ) -> object: ...

    def close(self) -> None: ...


class Connection:
    """A connection to ClickHouse, safe to share between threads. ``_SETTINGS`` apply to every statement.

    Args:
        address: The server, or the servers of a cluster.
        database: The session's database; default is the address's. To create that one, connect to another.
        response_timeout_s: Time limit for a statement.
        settings: Further settings of every statement.

    Raises:
        StoreError: No server is reachable, or one rejects the login.
        ConfigurationError: The server does not know the address's cluster.
    """

    def __init__(
        self,
        address: Address,
        *,
        database: str | None = None,
        response_timeout_s: int = _RESPONSE_TIMEOUT_S,
        settings: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._pool = get_pool_manager(maxsize=_POOL_SIZE, num_pools=1 + len(address.others))
        self.address = replace(address, database=database or address.database)
        self._response_timeout_s = response_timeout_s
        self._settings = {**_SETTINGS, **settings}
        self._cluster_settings: Mapping[str, str] = MappingProxyType({})
        self._servers = address.servers
        self._current = 0
        self._opening = Lock()
        self._of_each_server: list[Connection] = []
        self._driver = self._connect()
        server_settings = self._driver.server_settings
        self._cluster = discover_cluster(
            address.cluster,
            address.database,
            server=str(address),
            is_cloud=getattr(server_settings.get("cloud_mode"), "value", "0") == "1",
            query=lambda sql, parameters: self.query(sql, doing="reading the cluster", parameters=parameters),
        )
        if self._cluster is not None:
            self._cluster_settings = cluster_settings(self._cluster, timeout_s=response_timeout_s)

    @property
    def cluster(self) -> Cluster | None:
        """The cluster over which the database is spread; None for one server."""
        return self._cluster

    def rows_table(self, table: str) -> str:
        """Return the name of the table that holds the rows: of each shard on a cluster."""
        return table if self._cluster is None else self._cluster.rows_table(table)

    def command(
        self,
        sql: str,
        *,
        doing: str,
        parameters: Mapping[str, object] | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """Run a statement without a result; on a cluster, on every shard. ``doing`` describes it in error messages."""
        if self._cluster is None or not is_schema_statement(sql):
            self._command(sql, doing, parameters, settings)
            return
        statements = cluster_statements(sql, self._cluster)
        if self._cluster.form is not Form.SERVERS:
            for statement in statements:
                self._command(statement, doing, parameters, settings)
            return
        if len(self._servers) != self._cluster.servers:
            raise StoreError(
                f"The cluster {self._cluster.name!r} has {self._cluster.servers} servers and no Keeper, so {doing} "
                f"takes a statement on each of them; {CLICKHOUSE_URL_ENV} names {len(self._servers)}.",
                next_step=f"Name all servers in {CLICKHOUSE_URL_ENV}, separated by commas, or give them a Keeper.",
            )
        for connection in self._connection_of_each_server():
            for statement in statements:
                connection.command(
                    statement, doing=f"{doing} on {connection.address}", parameters=parameters, settings=settings
                )

    def _connection_of_each_server(self) -> "Sequence[Connection]":
        with self._opening:
            for server in self._servers[len(self._of_each_server) :]:
                connection = Connection(
                    replace(server, cluster=""),
                    database=self.address.database,
                    response_timeout_s=self._response_timeout_s,
                    settings={**self._settings, **self._cluster_settings},
                )
                self._of_each_server.append(connection)
        return self._of_each_server

    def _command(
        self, sql: str, doing: str, parameters: Mapping[str, object] | None, settings: Mapping[str, str] | None
    ) -> None:
        self._run(
            doing,
            lambda driver: driver.command(sql, parameters, settings={**self._cluster_settings, **(settings or {})}),
        )

    def _connect(self) -> _Driver:
        """Connect to the current server, or to the next one that answers, which becomes the current one."""
        unreachable: list[UnreachableError] = []
        for _ in self._servers:
            server = self._servers[self._current]
            try:
                return self._open(server)
            except UnreachableError as error:
                unreachable.append(error)
                self._current = (self._current + 1) % len(self._servers)
        if len(unreachable) == 1:
            raise unreachable[0]
        raise UnreachableError(
            f"None of {len(self._servers)} ClickHouse servers answers: "
            + " ".join(error.what for error in unreachable),
            next_step=unreachable[0].next_step,
            is_transient=True,
        )

    def _open(self, server: Address) -> _Driver:
        with store_errors(f"connecting to {server}"):
            client: object = clickhouse_connect.get_client(  # pyright: ignore[reportUnknownMemberType]
                interface=server.scheme,
                host=server.host,
                port=server.port,
                username=server.user,
                password=server.password,
                database=self.address.database,
                autogenerate_session_id=False,
                form_encode_query_params=True,
                connect_timeout=_CONNECT_TIMEOUT_S,
                send_receive_timeout=self._response_timeout_s,
                client_name="spanloop",
                settings=self._settings,
                pool_mgr=self._pool,
            )
        return cast("_Driver", client)

    def _run(self, doing: str, call: Callable[[_Driver], Result], *, is_reading: bool = False) -> Result:
        """Call the driver. When its server does not answer, connect to the next one, and read from that."""
        driver = self._driver
        try:
            with store_errors(doing):
                return call(driver)
        except UnreachableError:
            if len(self._servers) == 1:
                raise
            self._fail_over(driver)
            if not is_reading:
                raise  # it may have been done: the caller knows whether it may be repeated
        with store_errors(doing):
            return call(self._driver)

    def _fail_over(self, failed: _Driver) -> None:
        with self._opening:
            if self._driver is failed:
                self._current = (self._current + 1) % len(self._servers)
                self._driver = self._connect()

    def query(
        self,
        sql: str,
        *,
        doing: str,
        parameters: Mapping[str, object] | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> pl.DataFrame:
        """Run a statement and return its result as a frame. ``doing`` describes it in error messages."""
        all_settings = {**self._cluster_settings, **_QUERY_SETTINGS, **(settings or {})}
        response = self._run(
            doing,
            lambda driver: driver.raw_query(sql, parameters, settings=all_settings, fmt="ArrowStream"),
            is_reading=True,
        )
        if not response.endswith(_ARROW_END):
            raise StoreError(
                f"The response to {doing} was cut off after {len(response)} bytes.",
                next_step=CUT_OFF,
                is_transient=True,
            )
        try:
            return pl.read_ipc_stream(response)
        except pl.exceptions.PolarsError as error:
            raise StoreError(
                f"The response to {doing} cannot be read as a frame: {error}.",
                next_step="If the error is about UTF-8, select the column with toValidUTF8(x).",
            ) from error

    def read(self, sql: str, form: str, *, doing: str, parameters: Mapping[str, object] | None = None) -> bytes:
        """Run a statement and return its result in a ClickHouse format."""
        return self._run(
            doing,
            lambda driver: driver.raw_query(sql, parameters, settings=self._cluster_settings, fmt=form),
            is_reading=True,
        )

    def insert_bytes(self, table: str, columns: Sequence[str], block: bytes, form: str, *, token: str = "") -> None:
        """Insert rows that are encoded in a ClickHouse format. ``token`` is the deduplication token."""
        self._run(
            f"inserting {len(block)} bytes into {table!r}",
            lambda driver: driver.raw_insert(table, columns, block, self._insert_settings(token), form),
        )

    def insert(self, table: str, frame: pl.DataFrame, *, token: str = "") -> None:
        """Insert a frame as one Arrow record batch, which ClickHouse stores as one block."""
        self._run(
            f"inserting {frame.height} rows into {table!r}",
            lambda driver: driver.raw_insert(
                table, frame.columns, _arrow(frame), self._insert_settings(token), "Arrow"
            ),
        )

    def insert_until(self, until_us: int, table: Table, frame: pl.DataFrame, *, token: str = "") -> None:
        """Insert a frame as `insert` does, unless the server's clock is later than ``until_us``.

        Raises:
            LateInsertError: It is later.
        """
        names = ", ".join(f"`{name}`" for name in frame.columns)
        structure = ", ".join(f"`{name}` {table[name].sql_type}" for name in frame.columns).replace("'", "\\'")
        sql = (
            f"INSERT INTO {table.name} ({names}) SELECT {names} FROM input('{structure}') "  # noqa: S608 - declared
            f"WHERE throwIf(toUnixTimestamp64Micro(now64(6, 'UTC')) > {until_us:d}, 'late') = 0 FORMAT Arrow"
        )
        self.insert_from(sql, [_arrow(frame)], doing=f"inserting {frame.height} rows into {table.name!r}", token=token)

    def insert_from(self, sql: str, data: Sequence[bytes] | Chunks, *, doing: str, token: str = "") -> None:
        """Run an INSERT … SELECT … FROM input() … FORMAT … statement on data in this format."""
        # The driver's `command` would decode all data to check whether the statement only reads. A newline ends the
        # statement; a second one would be data. The chunks are not joined, because allocating memory for all of them
        # costs more than sending them. A known length avoids HTTP's chunked encoding, which is a copy too.
        statement = sql.rstrip().encode() + b"\n"
        size_bytes = sum(map(len, data)) if isinstance(data, Sequence) else data.size_bytes
        length = {"Content-Length": str(len(statement) + size_bytes)}
        self._run(
            doing,
            lambda driver: driver.raw_insert(
                None, None, _RequestBody(statement, data), self._insert_settings(token), None, transport_settings=length
            ),
        )

    def _insert_settings(self, token: str) -> Mapping[str, str]:
        """Return the settings of an insert; a deduplication token makes ClickHouse ignore a block it has stored."""
        settings = {**self._cluster_settings, **_INSERT_SETTINGS, "insert_deduplicate": "1" if token else "0"}
        if token:
            settings["insert_deduplication_token"] = token
        if "deduplicate_insert" in self._driver.server_settings:
            # From 26.2 on this setting decides, and insert_deduplicate alone has no effect.
            settings["deduplicate_insert"] = "enable" if token else "disable"
        return settings

    def close(self) -> None:
        """Close the sockets."""
        for connection in self._of_each_server:
            connection.close()
        self._driver.close()
        self._pool.clear()


def _arrow(frame: pl.DataFrame) -> bytes:
    """Return a frame as an Arrow file with one record batch."""
    block = io.BytesIO()
    frame.write_ipc(
        block, compression="lz4", compat_level=pl.CompatLevel.oldest(), record_batch_size=max(1, frame.height)
    )
    return block.getvalue()
