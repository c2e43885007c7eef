"""Fixtures of the dashboard folder's tests: a seeded store, and generated spans to ask about."""

import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from spanloop.foundation.paths import DataDir
from spanloop.semconv.environment import CLICKHOUSE_URL_ENV, DATA_DIR_ENV
from spanloop.store import Store
from spanloop.store.client import Address

from ..databases import ReusedDatabases
from .dashboard.dashboard_seeding import TRAINED_JOB, Seeded, seed, seed_metrics
from .urls import clickhouse_url

with pytest.MonkeyPatch.context() as patch:
    # On the path of all tests, the benchmark of the examples would hide the folder of the examples.
    patch.setattr(sys, "path", [str(Path(__file__).parents[2] / "benchmarks"), *sys.path])
    from asking.questions import World
    from asking.store import choose_world, fill_to_ask

EPISODES = 600


@pytest.fixture(scope="session")
def seeded_address(clickhouse: Address, databases: ReusedDatabases) -> tuple[Address, Seeded]:
    """A seeded database that tests only read, except that they add metrics of further jobs."""
    database = replace(clickhouse, database=databases.take())
    with Store(database) as store:
        seeded = seed(store)
        seed_metrics(store, TRAINED_JOB)
    return database, seeded


@pytest.fixture(scope="session")
def generated_address(clickhouse: Address, databases: ReusedDatabases) -> tuple[Address, World]:
    """A database of generated spans that tests only read, and what is in it."""
    database = replace(clickhouse, database=databases.take())
    end_s = int(time.time()) // 3_600 * 3_600
    with Store(database) as store:
        fill_to_ask(store.connection, EPISODES, end_s * 10**9)
        return database, choose_world(store.connection, start_s=end_s - 40_000, end_s=end_s - 5_000)


@pytest.fixture
def generated(generated_address: tuple[Address, World], data_dir: DataDir, monkeypatch: pytest.MonkeyPatch) -> World:
    """The environment of a client over the generated store."""
    monkeypatch.setenv(DATA_DIR_ENV, str(data_dir.path))
    monkeypatch.setenv(CLICKHOUSE_URL_ENV, clickhouse_url(generated_address[0]))
    return generated_address[1]
