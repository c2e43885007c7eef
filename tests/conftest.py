"""Fixtures shared by all tests: a fresh data directory, and a fresh database on one real ClickHouse."""
# pyright: reportMissingTypeStubs=false

import gc
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias
from unittest.mock import patch
from uuid import uuid4

import polars as pl
import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from spanloop.embedded_clickhouse import EmbeddedClickHouse
from spanloop.foundation.paths import DataDir
from spanloop.semconv.environment import (
    CLICKHOUSE_CLUSTER_ENV,
    CLICKHOUSE_URL_ENV,
    CONFIG_ENV,
    DATA_DIR_ENV,
    FILE_SUFFIX,
    KEY_ENV,
    SERVICE_URL_ENVS,
    SHARED_DIR_ENV,
    STORAGE_CACHE_BYTES_ENV,
    STORAGE_URL_ENV,
)
from spanloop.store import Store
from spanloop.store.client import Address, Connection
from spanloop.store.discovery import embedded_address

from .databases import ReusedDatabases
from .installed_packages import install

MEMORY_CAP_BYTES = 1 << 30
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
    "tests/training/verl_plugin/test_backbones.py",
    "tests/training/run/test_run_job.py",
)
"""Files whose tests run vLLM or verl: gigabytes each, and minutes."""
LONG = (
    "tests/dashboard/dashboard/test_tasks_in_a_browser.py",
    "tests/faults/hosts/test_kills.py",
    "tests/training/loop/test_loop.py",
    "tests/training/promotion/test_promote.py",
    "tests/examples/test_extend_pages.py",
)
"""Files that take more than half a minute."""


class ByFile(LoadFileScheduling):  # type: ignore[misc] # it has no type information
    """A file's tests stay in one process, and the heavy ones all in one, so that they never run side by side."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return "heavy" if file in HEAVY else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByFile:
    """Schedule tests of `make test` over its processes by file."""
    return ByFile(config, log)


def pytest_collection(session: pytest.Session) -> None:
    """Collect without a garbage collector, which would walk through all that is imported a dozen times."""
    del session
    gc.disable()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Let the garbage collector walk through what tests make, and no more through what was imported for them."""
    del session
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run heavy and long files first, so that they do not prolong the end of the run, and mix the files of all folders.

    The gateway's tests mostly wait. Run one after another by all processes, they would leave cores idle.
    """
    files: dict[str, list[str]] = {}
    for item in items:
        file = _file_of(item)
        in_folder = files.setdefault("/".join(file.split("/")[:2]), [])
        if file not in in_folder:
            in_folder.append(file)
    position = {file: index / len(folder) for folder in files.values() for index, file in enumerate(folder)}
    items.sort(key=lambda item: ((file := _file_of(item)) not in HEAVY, file not in LONG, position[file]))


def _file_of(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Isolate every test from the developer's spanloop settings and data directory."""
    addresses = (CLICKHOUSE_URL_ENV, CLICKHOUSE_CLUSTER_ENV, KEY_ENV, SHARED_DIR_ENV)
    for name in (*addresses, STORAGE_URL_ENV, STORAGE_CACHE_BYTES_ENV, CONFIG_ENV, *SERVICE_URL_ENVS.values()):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name + FILE_SUFFIX, raising=False)
    monkeypatch.setenv(DATA_DIR_ENV, str(tmp_path_factory.getbasetemp() / f"default-data-dir-{uuid4().hex}"))


@pytest.fixture(autouse=True, scope="session")
def _certificates_are_read_once() -> Iterator[None]:
    """Share the context in which httpx would read all authorities for each client, even of a plain HTTP server."""
    create = ssl.create_default_context
    shared: dict[str, ssl.SSLContext] = {}

    def create_or_share(*arguments: Any, **named: Any) -> ssl.SSLContext:
        # httpx names the file of certifi, or that of SSL_CERT_FILE.
        if arguments or named.keys() != {"cafile"} or named["cafile"] is None:
            return create(*arguments, **named)
        file = str(named["cafile"])
        if file not in shared:
            shared[file] = create(cafile=file)
        return shared[file]

    with patch.object(ssl, "create_default_context", create_or_share):
        yield


@pytest.fixture
def data_dir(tmp_path: Path) -> DataDir:
    """A fresh, opened data directory."""
    return DataDir(tmp_path / "data").open()


@pytest.fixture(scope="session")
def clickhouse_dir(tmp_path_factory: pytest.TempPathFactory) -> DataDir:
    """The data directory of the session's embedded ClickHouse."""
    return DataDir(tmp_path_factory.mktemp("clickhouse"))


@pytest.fixture(scope="session")
def clickhouse(clickhouse_dir: DataDir) -> Iterator[Address]:
    """The session's embedded ClickHouse."""
    with EmbeddedClickHouse(clickhouse_dir, memory_cap_bytes=MEMORY_CAP_BYTES):
        yield embedded_address(clickhouse_dir)


@pytest.fixture(scope="session")
def server(clickhouse: Address) -> Iterator[Connection]:
    """The session's connection to its ClickHouse, for making and emptying databases."""
    opened = Connection(clickhouse, database="default")
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def databases(clickhouse: Address, clickhouse_dir: DataDir, server: Connection) -> ReusedDatabases:
    """The session's databases with spanloop's tables."""
    return ReusedDatabases(clickhouse, server, clickhouse_dir.clickhouse)


@pytest.fixture
def address(clickhouse: Address, server: Connection, request: pytest.FixtureRequest) -> Iterator[Address]:
    """The address of a database for one test: a missing one, or with `store` one that has its tables, empty."""
    if "store" in request.fixturenames:
        databases: ReusedDatabases = request.getfixturevalue("databases")
        name = databases.take()
        yield replace(clickhouse, database=name)
        databases.give_back(name)
    else:
        name = f"t_{uuid4().hex[:12]}"
        yield replace(clickhouse, database=name)
        server.command(f"DROP DATABASE IF EXISTS `{name}`", doing="cleaning up")


@pytest.fixture
def store(address: Address) -> Iterator[Store]:
    """A migrated store in a database for one test."""
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


@pytest.fixture(scope="session")
def extending(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that has ``examples/extending`` as ``pip`` installs it; it is on no path yet."""
    target = tmp_path_factory.mktemp("installed") / "extending"
    install(Path(__file__).parents[1] / "examples" / "extending", target)
    return target
