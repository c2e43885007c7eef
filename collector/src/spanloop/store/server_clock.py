"""The version and the clock of a ClickHouse server, asked without a database of spanloop."""

from contextlib import closing
from typing import NamedTuple

from .client import Address, Connection
from .named_queries import named_query


class ServerClock(NamedTuple):
    """What a server says of itself."""

    version: str
    now_us: int
    """Microseconds since the epoch."""


def server_clock(address: Address) -> ServerClock:
    """Ask the server at ``address``; StoreError: it is unreachable, or rejects the login."""
    with closing(Connection(address, database="default")) as connection:
        row = connection.query(named_query("store_clock").sql, doing="asking for its clock").row(0, named=True)
    return ServerClock(str(row["version"]), int(row["now_us"]))
