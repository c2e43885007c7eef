"""Fixtures that every part shares: a fresh data directory, and a fresh database on one real ClickHouse."""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, settings

from spanloop.semconv.environment import CLICKHOUSE_URL_ENV, DATA_DIR_ENV
from spanloop.store import DataDir, EmbeddedClickHouse, Store
from spanloop.store.access import embedded_address
from spanloop.store.client import Address, Connection

MEMORY_CAP_BYTES = 1 << 30

# A slow machine is no reason to fail, and what `make test` says must not depend on the examples of the day:
# `--hypothesis-profile explore` (`make test-slow`) looks for new ones.
settings.register_profile("steady", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
settings.register_profile("explore", settings.get_profile("steady"), derandomize=False)
settings.load_profile("steady")


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keep a developer's own spanloop, and its data, out of every test."""
    monkeypatch.delenv(CLICKHOUSE_URL_ENV, raising=False)
    monkeypatch.setenv(DATA_DIR_ENV, str(tmp_path / "default-data-dir"))


@pytest.fixture
def data_dir(tmp_path: Path) -> DataDir:
    """A fresh, opened data directory."""
    return DataDir(tmp_path / "data").open()


@pytest.fixture(scope="session")
def clickhouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    """The session's embedded ClickHouse."""
    directory = DataDir(tmp_path_factory.mktemp("clickhouse"))
    with EmbeddedClickHouse(directory, memory_cap_bytes=MEMORY_CAP_BYTES):
        yield embedded_address(directory)


@pytest.fixture
def address(clickhouse: Address) -> Iterator[Address]:
    """A database name of the test's own; nothing is in it, and it goes afterwards."""
    own = Address(
        clickhouse.scheme,
        clickhouse.host,
        clickhouse.port,
        clickhouse.user,
        clickhouse.password,
        f"t_{uuid4().hex[:12]}",
    )
    yield own
    connection = Connection(own, database="default")
    connection.command(f"DROP DATABASE IF EXISTS `{own.database}`", doing="cleaning up")
    connection.close()


@pytest.fixture
def store(address: Address) -> Iterator[Store]:
    """A migrated store in a database of the test's own."""
    with Store.open(address) as opened:
        yield opened
