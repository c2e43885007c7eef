from collections.abc import Iterator

import pytest

from spanloop.store import Store
from spanloop.store.client import Address, Connection

from .converters.pipeline_feed import Feed


@pytest.fixture
def feed(store: Store, address: Address) -> Iterator[Feed]:
    """Writes to ``store``, and reads what became of it."""
    connection = Connection(address)
    yield Feed(store, connection)
    connection.close()
