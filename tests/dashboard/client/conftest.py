"""The environment of a client over the seeded store."""

import pytest

from spanloop.foundation.paths import DataDir
from spanloop.semconv.environment import CLICKHOUSE_URL_ENV, DATA_DIR_ENV
from spanloop.store.client import Address

from ..dashboard.dashboard_seeding import Seeded
from ..urls import clickhouse_url


@pytest.fixture
def seeded(seeded_address: tuple[Address, Seeded], data_dir: DataDir, monkeypatch: pytest.MonkeyPatch) -> Seeded:
    """Ids and counts of the seeded rows."""
    monkeypatch.setenv(DATA_DIR_ENV, str(data_dir.path))
    monkeypatch.setenv(CLICKHOUSE_URL_ENV, clickhouse_url(seeded_address[0]))
    return seeded_address[1]
