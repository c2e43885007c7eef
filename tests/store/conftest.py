"""Helpers for the store's own tests: sparse rows to full frames, and tables made for one test."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

import polars as pl
import pytest

from spanloop.store import Store
from spanloop.store.client import Address, Connection

Rows: TypeAlias = Sequence[Mapping[str, object]]
MakeFrame: TypeAlias = Callable[[str, Rows], pl.DataFrame]


@pytest.fixture
def connection(address: Address, store: Store) -> Iterator[Connection]:
    """A bare connection to the test's database, for statements that no named query has."""
    assert store.database == address.database
    opened = Connection(address)
    yield opened
    opened.close()


@pytest.fixture
def frame_of(store: Store) -> MakeFrame:
    """Make a full frame for a table from sparse rows."""

    def make(table: str, rows: Rows) -> pl.DataFrame:
        return pl.DataFrame(rows, schema=store.schema(table))

    return make
