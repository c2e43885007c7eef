"""The one place that knows clickhouse-connect: addresses, the client's settings, and what its errors mean.

Everything sent through here has its settings explicit, because ClickHouse changes defaults between releases.
"""

import io
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol, cast
from urllib.parse import quote, unquote, urlsplit

import clickhouse_connect
import polars as pl
from clickhouse_connect.driver.exceptions import ClickHouseError
from clickhouse_connect.driver.exceptions import Error as DriverError
from clickhouse_connect.driver.httputil import get_pool_manager  # pyright: ignore[reportUnknownVariableType]

from spanloop.semconv.environment import CLICKHOUSE_URL_ENV
from spanloop.semconv.errors import ConfigurationError, StoreError

DEFAULT_DATABASE: Final = "spanloop"

_SETTINGS: Final = {"session_timezone": "UTC"}
_QUERY_SETTINGS: Final = {
    "output_format_arrow_string_as_string": "1",
    "output_format_arrow_low_cardinality_as_dictionary": "0",
    "output_format_arrow_compression_method": "lz4_frame",
    # An answer waits for the query's end. Without this it waits on the server's disk, and a full disk makes it empty.
    "buffer_size": str(16 << 20),
}
_ARROW_END: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"
_INSERT_SETTINGS: Final = {
    "async_insert": "0",
    "deduplicate_blocks_in_dependent_materialized_views": "1",
    "materialized_views_ignore_errors": "0",
    "input_format_null_as_default": "1",
    # One day is one partition: a late batch of old spans must not fail for holding more than the default 100 of them.
    "max_partitions_per_insert_block": "0",
}
_CONNECT_TIMEOUT_S: Final = 5
_ANSWER_TIMEOUT_S: Final = 300
_POOL_SIZE: Final = 16
_NEXT_STEPS: Final = {
    192: "Check user and password in the ClickHouse URL.",
    194: "Check user and password in the ClickHouse URL.",
    516: "Check user and password in the ClickHouse URL.",
    497: "Grant that user the right, or use another user in the ClickHouse URL.",
    241: "Raise the memory cap of the embedded ClickHouse (--memory-cap-bytes), or read less at once.",
    243: "Free space on ClickHouse's disk; nothing was stored by this statement.",
    252: "Send larger blocks less often, or wait for merges to catch up.",
}


@dataclass(frozen=True)
class Address:
    """Where a ClickHouse answers. ``str()`` never shows the password."""

    scheme: str
    host: str
    port: int
    user: str
    password: str
    database: str

    @classmethod
    def parse(cls, url: str, *, default_database: str = DEFAULT_DATABASE) -> "Address":
        """Read ``http(s)://user:password@host:port/database``; the last part may be left out.

        Raises:
            ConfigurationError: Not such a URL.
        """
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            # Not what was got: where a password is not encoded, parts of it are in there.
            raise _bad_url("a port that is no number, or a user or password that is not percent-encoded") from None
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise _bad_url(f"scheme {parts.scheme!r}, host {parts.hostname!r}")
        database = unquote(parts.path.strip("/")) or default_database
        if "/" in database or "`" in database or parts.query or parts.fragment:
            raise _bad_url("more than a database behind the host, or a user or password that is not percent-encoded")
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
        f"The ClickHouse URL is not usable: got {got}.",
        next_step=f"Set {CLICKHOUSE_URL_ENV} to http(s)://user:password@host:port/database.",
    )


class Pieces(Protocol):
    """Data that is not all in memory: its pieces in a row, from the first one again whenever it is sent again."""

    size_bytes: int
    """Of all pieces together."""

    def __iter__(self) -> Iterator[bytes]:
        """One piece after the other."""
        ...


class _Behind:
    """A statement and its data; from the beginning for each attempt of the driver."""

    def __init__(self, statement: bytes, data: Iterable[bytes]) -> None:
        self._statement = statement
        self._data = data

    def __iter__(self) -> Iterator[bytes]:
        yield self._statement
        yield from self._data


class _Driver(Protocol):
    """The few calls of clickhouse-connect that spanloop makes, with the types that its own signatures leave open."""

    @property
    def server_settings(self) -> Mapping[str, object]: ...

    def command(
        self,
        cmd: str,
        parameters: Mapping[str, object] | None = None,
        *,
        settings: Mapping[str, str] | None = None,
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
    """A connection that many threads may share; see ``_SETTINGS`` for what every statement carries.

    Args:
        address: The server.
        database: The session's database; default is the address's. Creating that one needs another.
        answer_timeout_s: How long a statement may take.

    Raises:
        StoreError: Out of reach, or the server refused the login.
    """

    def __init__(
        self, address: Address, *, database: str | None = None, answer_timeout_s: int = _ANSWER_TIMEOUT_S
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
                send_receive_timeout=answer_timeout_s,
                client_name="spanloop",
                settings=dict(_SETTINGS),
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
        """Run a statement whose answer does not matter."""
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
        """Run a statement and read its answer as a frame."""
        every = {**_QUERY_SETTINGS, **(settings or {})}
        with store_errors(doing):
            answer = self._driver.raw_query(sql, parameters, settings=every, fmt="ArrowStream")
        if not answer.endswith(_ARROW_END):
            raise StoreError(
                f"The answer of {doing} was cut off after {len(answer)} bytes.",
                next_step=_CUT_OFF,
            )
        try:
            return pl.read_ipc_stream(answer)
        except pl.exceptions.PolarsError as error:
            raise StoreError(
                f"The answer of {doing} is no frame: {error}.",
                next_step="If it is about UTF-8, select the column with toValidUTF8(x).",
            ) from error

    def read(self, sql: str, form: str, *, doing: str, parameters: Mapping[str, object] | None = None) -> bytes:
        """Run a statement and read its answer in a format of ClickHouse."""
        with store_errors(doing):
            return self._driver.raw_query(sql, parameters, settings={}, fmt=form)

    def insert_bytes(self, table: str, columns: Sequence[str], block: bytes, form: str, *, token: str = "") -> None:
        """Send rows in a format of ClickHouse."""
        with store_errors(f"inserting {len(block)} bytes into {table!r}"):
            self._driver.raw_insert(table, columns, block, self._insert_settings(token), form)

    def insert(self, table: str, frame: pl.DataFrame, *, token: str = "") -> None:
        """Send the frame as one Arrow record batch, of which ClickHouse makes one block."""
        block = io.BytesIO()
        frame.write_ipc(
            block, compression="lz4", compat_level=pl.CompatLevel.oldest(), record_batch_size=max(1, frame.height)
        )
        with store_errors(f"inserting {frame.height} rows into {table!r}"):
            self._driver.raw_insert(table, frame.columns, block.getvalue(), self._insert_settings(token), "Arrow")

    def insert_from(self, sql: str, data: Sequence[bytes] | Pieces, *, doing: str, token: str = "") -> None:
        """Run an INSERT … SELECT … FROM input() … FORMAT … statement on data in that format."""
        # Not by the driver's `command`, which would decode all of the data to see whether it only reads. The newline
        # ends the statement; another one would be taken for data. The pieces are never joined: fresh memory for all of
        # them costs more than sending them. With their length known, HTTP needs no chunks, which are a copy too.
        statement = sql.rstrip().encode() + b"\n"
        size_bytes = sum(map(len, data)) if isinstance(data, Sequence) else data.size_bytes
        length = {"Content-Length": str(len(statement) + size_bytes)}
        with store_errors(doing):
            self._driver.raw_insert(
                None, None, _Behind(statement, data), self._insert_settings(token), None, transport_settings=length
            )

    def _insert_settings(self, token: str) -> Mapping[str, str]:
        settings = {**_INSERT_SETTINGS, "insert_deduplicate": "1" if token else "0"}
        if token:
            settings["insert_deduplication_token"] = token
        if "deduplicate_insert" in self._driver.server_settings:
            # Since 26.2 this one decides, and insert_deduplicate alone changes nothing.
            settings["deduplicate_insert"] = "enable" if token else "disable"
        return settings

    def close(self) -> None:
        """Close the sockets."""
        self._driver.close()
        self._pool.clear()


@contextmanager
def store_errors(doing: str) -> Generator[None]:
    """Turn what clickhouse-connect raises into a StoreError that says what was being done and what to do next."""
    try:
        yield
    except ClickHouseError as error:
        raise _store_error(doing, error) from error


def _store_error(doing: str, error: ClickHouseError) -> StoreError:
    code = error.code if isinstance(error, DriverError) else None
    layers = tuple(_below(error))
    if code is None and layers and not any(isinstance(below, OSError) for below in layers):
        # The connection was well: HTTP itself ended in the middle.
        return StoreError(f"The answer of {doing} was cut off: {_root(error)}.", next_step=_CUT_OFF)
    if code is None:
        return StoreError(
            f"ClickHouse is out of reach while {doing}: {_root(error)}.",
            next_step=f"Check that it runs (spanloop status), and {CLICKHOUSE_URL_ENV} if it is your own.",
        )
    text = " ".join(str(error).split())[:2000]
    full = "No space left" in text
    return StoreError(
        f"ClickHouse refused {doing} (code {code}): {text}",
        next_step=_NEXT_STEPS[243] if full else _NEXT_STEPS.get(code, ""),
    )


_CUT_OFF: Final = "Free space on ClickHouse's disk: answers of more than 16 MiB wait there."


def _below(error: BaseException) -> Iterator[BaseException]:
    """What ``error`` was raised for, layer by layer."""
    below = error.__cause__ or error.__context__
    while below is not None:
        yield below
        below = below.__cause__ or below.__context__


def _root(error: BaseException) -> str:
    """What the operating system said, below the layers that each repeat the URL; else the innermost layer's text."""
    *_, innermost = (error, *_below(error))
    text = innermost.strerror if isinstance(innermost, OSError) else None
    return text or " ".join(str(innermost).split())[:200] or type(innermost).__name__
