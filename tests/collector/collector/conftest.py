"""Real collectors on real stores."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from spanloop.foundation.paths import DataDir
from spanloop.foundation.settings.roles import CollectorSettings
from spanloop.store import Store
from spanloop.store.client import Address, Connection

from .collectors import App, CollectorProcess, Launcher


@pytest.fixture
def clickhouse_url(address: Address, store: Store) -> str:
    """The test's own database on the session's ClickHouse, password included."""
    assert store.database == address.database
    user = f"{quote(address.user)}:{quote(address.password)}"
    return f"{address.scheme}://{user}@{address.host}:{address.port}/{address.database}"


@pytest.fixture
def launch(data_dir: DataDir) -> Iterator[Launcher]:
    """Starts collectors on the test's data directory, and ends whatever still runs."""
    started: list[CollectorProcess] = []

    def start(clickhouse_url: str = "", port: int = 0, *options: str) -> CollectorProcess:
        started.append(CollectorProcess(data_dir, clickhouse_url, port, *options))
        return started[-1]

    yield start
    for collector in started:
        if collector.process.poll() is None:
            collector.kill()


@pytest.fixture
def connection(address: Address, store: Store) -> Iterator[Connection]:
    """For looking into the tables."""
    assert store.database == address.database
    opened = Connection(address, database="default")
    yield opened
    opened.close()


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[App]:
    """The app with small limits."""
    opened = App(tmp_path / "spool", CollectorSettings(body_limit_bytes=2**20, spool_limit_bytes=2**21))
    async with opened.client:
        yield opened
    opened.spool.close()
