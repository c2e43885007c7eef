"""The ClickHouse client: server addresses, settings of every statement, and translation of clickhouse-connect's errors.

Invariant: no other module imports clickhouse-connect. Settings are explicit, because ClickHouse changes its defaults
between releases.
"""

import io
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Protocol, cast
from urllib.parse import quote, unquote, urlsplit

import clickhouse_connect
import polars as pl
from clickhouse_connect.driver.exceptions import ClickHouseError
from clickhouse_connect.driver.exceptions import Error as DriverError
from clickhouse_connect.driver.httputil import get_pool_manager  # pyright: ignore[reportUnknownVariableType]

from spanloop.foundation.errors import ConfigurationError, LateInsertError, StoreError
from spanloop.foundation.tables import Table
from spanloop.semconv.environment import CLICKHOUSE_URL_ENV

DEFAULT_DATABASE: Final = "spanloop"

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
_NEXT_STEPS: Final = {
    159: "The statement took longer than its time limit: ask for a shorter range of time, or raise the limit.",
    164: "This connection only reads; nothing was changed.",
    192: "Check user and password in the ClickHouse URL.",
    194: "Check user and password in the ClickHouse URL.",
    516: "Check user and password in the ClickHouse URL.",
    497: "Grant this right to the user, or use another user in the ClickHouse URL.",
    241: "Raise the memory cap of the embedded ClickHouse (--memory-cap-bytes), or read less at once.",
    243: "Free space on ClickHouse's disk; nothing was stored by this statement.",
    252: "Send larger blocks less often, or wait for merges to catch up.",
    396: "The result is larger than its limit: ask for fewer rows, or raise the limit.",
}


@dataclass(frozen=True)
class Address:
    """Address of a ClickHouse server with user, password and database. ``str()`` omits the password."""

    scheme: str
    host: str
    port: int
    user: str
    password: str
    database: str

    @classmethod
    def parse(cls, url: str, *, default_database: str = DEFAULT_DATABASE) -> "Address":
        """Parse ``http(s)://user:password@host:port/database``; the database is optional.

        Raises:
            ConfigurationError: The URL has another form.
        """
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            # The message omits the value, which can contain parts of a password that is not percent-encoded.
            raise _bad_url("a port that is not a number, or a user or password that is not percent-encoded") from None
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise _bad_url(f"scheme {parts.scheme!r}, host {parts.hostname!r}")
        database = unquote(parts.path.strip("/")) or default_database
        if "/" in database or "`" in database or parts.query or parts.fragment:
            raise _bad_url("more than a database after the host, or a user or password that is not percent-encoded")
        return cls(
            scheme=parts.scheme,
            host=parts.hostname,
            port=port or (8443 if parts.scheme == "https" else 8123),
            user=unquote(parts.username or "default"),
            password=unquote(parts.password or ""),
            database=database,
        )

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{quote(self.user)}@{host}:{self.port}/{quote(self.database)}"

    def __repr__(self) -> str:
        return f"Address({self})"


def _bad_url(got: str) -> ConfigurationError:
    return ConfigurationError(
        f"The ClickHouse URL is invalid: got {got}.",
        next_step=f"Set {CLICKHOUSE_URL_ENV} to http(s)://user:password@host:port/database.",
    )


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
        address: The server.
        database: The session's database; default is the address's. To create that one, connect to another.
        response_timeout_s: Time limit for a statement.
        settings: Further settings of every statement.

    Raises:
        StoreError: The server is unreachable, or rejects the login.
    """

    def __init__(
        self,
        address: Address,
        *,
        database: str | None = None,
        response_timeout_s: int = _RESPONSE_TIMEOUT_S,
        settings: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._pool = get_pool_manager(maxsize=_POOL_SIZE, num_pools=1)
        with store_errors(f"connecting to {address}"):
            client: object = clickhouse_connect.get_client(  # pyright: ignore[reportUnknownMemberType]
                interface=address.scheme,
                host=address.host,
                port=address.port,
                username=address.user,
                password=address.password,
                database=database or address.database,
                autogenerate_session_id=False,
                form_encode_query_params=True,
                connect_timeout=_CONNECT_TIMEOUT_S,
                send_receive_timeout=response_timeout_s,
                client_name="spanloop",
                settings={**_SETTINGS, **settings},
                pool_mgr=self._pool,
            )
        self._driver = cast("_Driver", client)

    def command(
        self,
        sql: str,
        *,
        doing: str,
        parameters: Mapping[str, object] | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """Run a statement without a result. ``doing`` describes it in error messages."""
        with store_errors(doing):
            self._driver.command(sql, parameters, settings=settings or {})

    def query(
        self,
        sql: str,
        *,
        doing: str,
        parameters: Mapping[str, object] | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> pl.DataFrame:
        """Run a statement and return its result as a frame. ``doing`` describes it in error messages."""
        all_settings = {**_QUERY_SETTINGS, **(settings or {})}
        with store_errors(doing):
            response = self._driver.raw_query(sql, parameters, settings=all_settings, fmt="ArrowStream")
        if not response.endswith(_ARROW_END):
            raise StoreError(
                f"The response to {doing} was cut off after {len(response)} bytes.",
                next_step=_CUT_OFF,
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
        with store_errors(doing):
            return self._driver.raw_query(sql, parameters, settings={}, fmt=form)

    def insert_bytes(self, table: str, columns: Sequence[str], block: bytes, form: str, *, token: str = "") -> None:
        """Insert rows that are encoded in a ClickHouse format. ``token`` is the deduplication token."""
        with store_errors(f"inserting {len(block)} bytes into {table!r}"):
            self._driver.raw_insert(table, columns, block, self._insert_settings(token), form)

    def insert(self, table: str, frame: pl.DataFrame, *, token: str = "") -> None:
        """Insert a frame as one Arrow record batch, which ClickHouse stores as one block."""
        with store_errors(f"inserting {frame.height} rows into {table!r}"):
            self._driver.raw_insert(table, frame.columns, _arrow(frame), self._insert_settings(token), "Arrow")

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
        with store_errors(doing):
            self._driver.raw_insert(
                None, None, _RequestBody(statement, data), self._insert_settings(token), None, transport_settings=length
            )

    def _insert_settings(self, token: str) -> Mapping[str, str]:
        """Return the settings of an insert; a deduplication token makes ClickHouse ignore a block it has stored."""
        settings = {**_INSERT_SETTINGS, "insert_deduplicate": "1" if token else "0"}
        if token:
            settings["insert_deduplication_token"] = token
        if "deduplicate_insert" in self._driver.server_settings:
            # From 26.2 on this setting decides, and insert_deduplicate alone has no effect.
            settings["deduplicate_insert"] = "enable" if token else "disable"
        return settings

    def close(self) -> None:
        """Close the sockets."""
        self._driver.close()
        self._pool.clear()


def _arrow(frame: pl.DataFrame) -> bytes:
    """Return a frame as an Arrow file with one record batch."""
    block = io.BytesIO()
    frame.write_ipc(
        block, compression="lz4", compat_level=pl.CompatLevel.oldest(), record_batch_size=max(1, frame.height)
    )
    return block.getvalue()


@contextmanager
def store_errors(doing: str) -> Generator[None]:
    """Convert clickhouse-connect's errors to a `StoreError` that names the operation and the next step."""
    try:
        yield
    except ClickHouseError as error:
        raise _store_error(doing, error) from error


def _store_error(doing: str, error: ClickHouseError) -> StoreError:
    code = error.code if isinstance(error, DriverError) else None
    causes = tuple(_causes(error))
    if code is None and causes and not any(isinstance(cause, OSError) for cause in causes):
        # The connection works, but the HTTP response ended early.
        return StoreError(
            f"The response to {doing} was cut off: {_root_cause(error)}.", next_step=_CUT_OFF, is_transient=True
        )
    if code is None:
        return StoreError(
            f"ClickHouse is unreachable while {doing}: {_root_cause(error)}.",
            next_step=f"Check that it runs (spanloop status); for your own server, check {CLICKHOUSE_URL_ENV}.",
            is_transient=True,
        )
    if code == _THROWN:
        return LateInsertError(f"ClickHouse refused {doing}: it came after the time until which it was allowed.")
    text = " ".join(str(error).split())[:2000]
    is_disk_full = "No space left" in text
    return StoreError(
        f"ClickHouse rejected {doing} (code {code}): {text}",
        next_step=_NEXT_STEPS[243] if is_disk_full else _NEXT_STEPS.get(code, ""),
        is_transient=is_disk_full or code in _TRANSIENT_CODES,
    )


_THROWN: Final = 395
"""The code of ``throwIf``."""
_TRANSIENT_CODES: Final = frozenset({159, 202, 209, 210, 243, 252, 279})
"""Timeouts, too many queries or parts, a broken connection to another node, a full disk."""
_CUT_OFF: Final = "Free space on ClickHouse's disk, which buffers responses of more than 16 MiB."


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the chain of causes of an error, outermost first."""
    cause = error.__cause__ or error.__context__
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


def _root_cause(error: BaseException) -> str:
    """Return the operating system's message, else the innermost error's text. Outer errors repeat the URL."""
    *_, innermost = (error, *_causes(error))
    text = innermost.strerror if isinstance(innermost, OSError) else None
    return text or " ".join(str(innermost).split())[:200] or type(innermost).__name__
