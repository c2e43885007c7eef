"""The one place that knows clickhouse-connect: addresses, the client's settings, and what its errors mean.

Everything sent through here has its settings explicit, because ClickHouse changes defaults between releases.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote, urlsplit

import clickhouse_connect
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError
from clickhouse_connect.driver.exceptions import Error as DriverError
from clickhouse_connect.driver.httputil import get_pool_manager

from spanloop.semconv.environment import CLICKHOUSE_URL_ENV
from spanloop.semconv.errors import ConfigurationError, StoreError

DEFAULT_DATABASE: Final = "spanloop"

_SETTINGS: Final = {"session_timezone": "UTC"}
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
    def parse(cls, url: str) -> "Address":
        """Read ``http(s)://user:password@host:port/database``.

        Raises:
            ConfigurationError: Not such a URL.
        """
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise _bad_url(str(error)) from error
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise _bad_url(f"scheme {parts.scheme!r}, host {parts.hostname!r}")
        database = unquote(parts.path.strip("/")) or DEFAULT_DATABASE
        if "/" in database or "`" in database or parts.query or parts.fragment:
            raise _bad_url(f"path {parts.path!r}, query {parts.query!r}")
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


def open_client(address: Address, *, database: str | None = None) -> Client:
    """A client that many threads may share.

    Args:
        address: The server.
        database: The session's database; default is the address's. The migrations need one that exists already.

    Raises:
        StoreError: Out of reach, or the server refused the login.
    """
    with store_errors(f"connecting to {address}"):
        return clickhouse_connect.get_client(
            interface=address.scheme,
            host=address.host,
            port=address.port,
            username=address.user,
            password=address.password,
            database=database or address.database,
            autogenerate_session_id=False,
            form_encode_query_params=True,
            connect_timeout=_CONNECT_TIMEOUT_S,
            send_receive_timeout=_ANSWER_TIMEOUT_S,
            client_name="spanloop",
            settings=dict(_SETTINGS),
            pool_mgr=get_pool_manager(maxsize=_POOL_SIZE, num_pools=1),
        )


@contextmanager
def store_errors(doing: str) -> Iterator[None]:
    """Turn what clickhouse-connect raises into a StoreError that says what was being done and what to do next."""
    try:
        yield
    except ClickHouseError as error:
        raise _store_error(doing, error) from error


def _store_error(doing: str, error: ClickHouseError) -> StoreError:
    code = error.code if isinstance(error, DriverError) else None
    text = " ".join(str(error).split())[:2000]
    if code is None:
        return StoreError(
            f"ClickHouse is out of reach while {doing}: {text}",
            next_step=f"Check that it runs (spanloop status), and {CLICKHOUSE_URL_ENV} if it is your own.",
        )
    full = "No space left" in text
    return StoreError(
        f"ClickHouse refused {doing} (code {code}): {text}",
        next_step=_NEXT_STEPS[243] if full else _NEXT_STEPS.get(code, ""),
    )
