"""Fixtures shared by all tests: a fresh data directory, and a fresh database on one real ClickHouse."""
# pyright: reportMissingTypeStubs=false

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias
from uuid import uuid4

import polars as pl
import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from spanloop.datadir import DataDir
from spanloop.embedded_clickhouse import EmbeddedClickHouse
from spanloop.semconv.environment import (
    CLICKHOUSE_URL_ENV,
    CONFIG_ENV,
    DATA_DIR_ENV,
    FILE_SUFFIX,
    KEY_ENV,
    SERVICE_URL_ENVS,
    SHARED_DIR_ENV,
)
from spanloop.store import Store
from spanloop.store.client import Address, Connection
from spanloop.store.discovery import embedded_address
from spanloop.store.migrate import migrate

MEMORY_CAP_BYTES = 1 << 30
MIGRATED = "t_migrated"
Rows: TypeAlias = Sequence[Mapping[str, object]]
MakeFrame: TypeAlias = Callable[[str, Rows], pl.DataFrame]

# A slow machine must not fail a test, and `make test` must be deterministic: only
# `--hypothesis-profile explore` (`make test-slow`) generates new examples.
settings.register_profile(
    "steady", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True, max_examples=50
)
settings.register_profile("explore", settings.get_profile("steady"), derandomize=False, max_examples=200)
settings.load_profile("steady")

HEAVY = (
    "tests/e2e/test_tiny_demo.py",
    "tests/gateway/test_vllm.py",
    "tests/training/test_backbones.py",
    "tests/training/test_run_job.py",
)
"""Files whose tests run vLLM or verl: gigabytes each, and minutes."""


class ByFile(LoadFileScheduling):  # type: ignore[misc] # it has no type information
    """A file's tests stay in one process, and the heavy ones all in one, so that they never run side by side."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return "heavy" if file in HEAVY else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByFile:
    """Schedule tests of `make test` over its processes by file."""
    return ByFile(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the heavy files first, so that they do not prolong the end of the run; keep the order of the rest."""
    items.sort(key=lambda item: item.nodeid.partition("::")[0] not in HEAVY)


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Isolate every test from the developer's spanloop settings and data directory."""
    for name in (CLICKHOUSE_URL_ENV, KEY_ENV, SHARED_DIR_ENV, CONFIG_ENV, *SERVICE_URL_ENVS.values()):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name + FILE_SUFFIX, raising=False)
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


@pytest.fixture(scope="session")
def used_databases() -> list[str]:
    """Databases that earlier tests made with `store` and have done with, oldest first."""
    return []


@pytest.fixture
def address(clickhouse: Address, used_databases: list[str], request: pytest.FixtureRequest) -> Iterator[Address]:
    """The address of a database for one test: a missing one, or with `store` one that has its tables, empty."""
    has_store = "store" in request.fixturenames
    database = replace(clickhouse, database=f"t_{uuid4().hex[:12]}")
    connection = Connection(database, database="default")
    if has_store and used_databases:
        # Emptied now and not at the end of its test, whose processes may have been writing then.
        used = used_databases.pop(0)
        if _empty(connection, used):
            database = replace(clickhouse, database=used)
        else:
            connection.command(f"DROP DATABASE IF EXISTS `{used}`", doing="cleaning up")
    yield database
    if has_store:
        used_databases.append(database.database)
    else:
        connection.command(f"DROP DATABASE IF EXISTS `{database.database}`", doing="cleaning up")
    connection.close()


TABLES = """
SELECT database, name, create_table_query AS made, total_rows FROM system.tables
WHERE database IN ({name:String}, {migrated:String}) ORDER BY name
"""


def _empty(connection: Connection, database: str) -> bool:
    """Remove all rows of a store; False when a test changed its schema."""
    parameters = {"name": database, "migrated": MIGRATED}
    tables = connection.query(TABLES, doing="comparing schemas", parameters=parameters).to_dicts()
    here, there = ({row["name"]: row for row in tables if row["database"] == name} for name in (database, MIGRATED))
    made = {name: str(row["made"]).replace(f" {database}", f" {MIGRATED}") for name, row in here.items()}
    if made != {name: row["made"] for name, row in there.items()}:
        return False
    if here["schema_migrations"]["total_rows"] != there["schema_migrations"]["total_rows"]:
        return False
    for name, row in here.items():
        if row["total_rows"] and name != "schema_migrations":
            connection.command(f"TRUNCATE TABLE `{database}`.`{name}`", doing="emptying a store")
    return True


@pytest.fixture(scope="session")
def schema(clickhouse: Address) -> Sequence[str]:
    """Statements that create the migrated schema as database `MIGRATED`, faster than the migrations do."""
    migrated = replace(clickhouse, database=MIGRATED)
    migrate(migrated)
    connection = Connection(migrated, database="default")
    sql = (
        "SELECT create_table_query AS made FROM system.tables WHERE database = {name:String} "
        "ORDER BY engine LIKE '%View'"
    )
    tables = connection.query(sql, doing="reading the schema", parameters={"name": MIGRATED})
    connection.close()
    journal = f"INSERT INTO {MIGRATED}.schema_migrations SELECT * FROM `{MIGRATED}`.schema_migrations"
    return [f"CREATE DATABASE {MIGRATED}", *map(str, tables["made"]), journal]


@pytest.fixture
def store(address: Address, schema: Sequence[str]) -> Iterator[Store]:
    """A migrated store in a database for one test."""
    connection = Connection(address, database="default")
    known = connection.query("SELECT name FROM system.databases", doing="looking for a used database")["name"]
    for statement in () if address.database in known else schema:
        renamed = statement.replace(f" {MIGRATED}", f" {address.database}")
        connection.command(renamed, doing="making a store", settings={"fsync_metadata": "0"})
    connection.close()
    with Store(address) as opened:
        yield opened


@pytest.fixture
def connection(address: Address, store: Store) -> Iterator[Connection]:
    """A bare connection to the test's database, for statements that are not named queries."""
    assert store.database == address.database
    opened = Connection(address)
    yield opened
    opened.close()


@pytest.fixture
def frame_of(store: Store) -> MakeFrame:
    """Make a complete frame for a table from sparse rows."""

    def make(table: str, rows: Rows) -> pl.DataFrame:
        return pl.DataFrame(rows, schema=store.schema(table))

    return make
