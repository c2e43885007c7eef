"""Addresses of ClickHouse servers, as URLs name them."""

from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import quote, unquote, urlsplit

from spanloop.foundation.errors import ConfigurationError
from spanloop.semconv.environment import CLICKHOUSE_URL_ENV, split_urls

DEFAULT_DATABASE: Final = "spanloop"


@dataclass(frozen=True)
class Address:
    """Address of a ClickHouse server, or of the servers of a cluster, with user, password and database.

    ``str()`` omits the password.
    """

    scheme: str
    host: str
    port: int
    user: str
    password: str
    database: str
    others: tuple[tuple[str, int], ...] = ()
    """Host and port of each further server, in the order in which they are tried."""
    cluster: str = ""
    """Name of the cluster that the servers belong to; empty for one server."""

    @classmethod
    def parse(cls, urls: str, *, default_database: str = DEFAULT_DATABASE, cluster: str = "") -> "Address":
        """Parse ``http(s)://user:password@host:port/database``, or several, separated by commas.

        The database is optional. Several URLs name servers of one cluster, so they differ in host and port alone.

        Raises:
            ConfigurationError: A URL has another form, or they differ in more.
        """
        first, *others = [_parse_one(url, default_database) for url in split_urls(urls)]
        for number, other in enumerate(others, start=2):
            if replace(other, host=first.host, port=first.port) != first:
                raise ConfigurationError(
                    f"ClickHouse URL {number} is of {other}, the first one of {first}: they differ in more than host "
                    "and port, or in the password.",
                    next_step=f"Give all URLs of {CLICKHOUSE_URL_ENV} the same scheme, user, password and database.",
                )
        return replace(first, others=tuple((other.host, other.port) for other in others), cluster=cluster)

    @property
    def servers(self) -> "list[Address]":
        """The address of each server by itself, in the order in which they are tried."""
        places = [(self.host, self.port), *self.others]
        return [replace(self, host=host, port=port, others=()) for host, port in places]

    def __str__(self) -> str:
        places = ",".join(
            f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            for host, port in ((self.host, self.port), *self.others)
        )
        return f"{self.scheme}://{quote(self.user)}@{places}/{quote(self.database)}"

    def __repr__(self) -> str:
        return f"Address({self})"


def _parse_one(url: str, default_database: str) -> Address:
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
    return Address(
        scheme=parts.scheme,
        host=parts.hostname,
        port=port or (8443 if parts.scheme == "https" else 8123),
        user=unquote(parts.username or "default"),
        password=unquote(parts.password or ""),
        database=database,
    )


def _bad_url(got: str) -> ConfigurationError:
    return ConfigurationError(
        f"The ClickHouse URL is invalid: got {got}.",
        next_step=f"Set {CLICKHOUSE_URL_ENV} to http(s)://user:password@host:port/database.",
    )
