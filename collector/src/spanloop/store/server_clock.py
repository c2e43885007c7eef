"""The version and the clock of a ClickHouse server, asked without a database of spanloop."""

import time
from contextlib import closing
from typing import NamedTuple

from .client import Address, Connection
from .named_queries import named_query


class ServerClock(NamedTuple):
    """What a server says of itself."""

    version: str
    ahead_s: float
    """By how much its clock is ahead of this host's, give or take half of the time that the question took."""


def server_clock(address: Address) -> ServerClock:
    """Ask the server at ``address``; StoreError: it is unreachable, or rejects the login."""
    with closing(Connection(address, database="default")) as connection:
        began_s = time.time()
        row = connection.query(named_query("store_clock").sql, doing="asking for its clock").row(0, named=True)
        asked_s = (began_s + time.time()) / 2
    return ServerClock(str(row["version"]), int(row["now_us"]) / 1e6 - asked_s)
