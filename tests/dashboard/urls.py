"""The URL of a database, with its password, as in the environment variable."""

from urllib.parse import quote

from spanloop.store.client import Address


def clickhouse_url(address: Address) -> str:
    """Return the address with its password, as in the environment variable."""
    user, password = quote(address.user), quote(address.password, safe="")
    return f"{address.scheme}://{user}:{password}@{address.host}:{address.port}/{address.database}"
