"""The names that other parts import are these, and they are there."""

import pytest

import spanloop.store
from spanloop.store import DataDir, EmbeddedClickHouse, Store, connect, discovery
from spanloop.store.store import Store as DefinedStore


def test_the_public_names() -> None:
    assert spanloop.store.__all__ == ["DataDir", "EmbeddedClickHouse", "Store", "connect"]
    assert Store is DefinedStore
    assert connect is discovery.connect
    assert {DataDir.__module__, EmbeddedClickHouse.__module__} == {
        "spanloop.foundation.paths.directory",
        "spanloop.embedded_clickhouse.supervisor",
    }


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        getattr(spanloop.store, "nonsense")  # noqa: B009 (a type checker knows that it is not there)
