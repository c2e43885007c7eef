"""Fixtures of the dashboard's tests: a data directory whose ClickHouse is the session's, empty or seeded."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest
import streamlit as st
from streamlit.components.v2 import manifest_scanner

from spanloop.foundation.paths import DataDir
from spanloop.semconv.environment import CLICKHOUSE_URL_ENV, DATA_DIR_ENV
from spanloop.store import Store
from spanloop.store.client import Address

from ...databases import ReusedDatabases
from ..urls import clickhouse_url
from .dashboard_driver import visit_as_operator
from .dashboard_learning import Learned, seed_learning, seed_learning_control
from .dashboard_seeding import Seeded, seed_control


@pytest.fixture(autouse=True, scope="session")
def _components_are_searched_once() -> Iterator[None]:
    """Search installed packages for components once, as a server does at its start; AppTest does so at each run."""
    manifests = manifest_scanner.scan_component_manifests()
    with patch.object(manifest_scanner, "scan_component_manifests", lambda: manifests):
        yield


@pytest.fixture(autouse=True)
def _fresh_caches() -> Iterator[None]:
    st.cache_resource.clear()
    yield
    st.cache_resource.clear()


@pytest.fixture(autouse=True)
def _as_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    visit_as_operator(monkeypatch)


@pytest.fixture
def environment(data_dir: DataDir, address: Address, store: Store, monkeypatch: pytest.MonkeyPatch) -> DataDir:
    """The dashboard's environment over an empty store of this test."""
    assert store.database == address.database
    monkeypatch.setenv(DATA_DIR_ENV, str(data_dir.path))
    monkeypatch.setenv(CLICKHOUSE_URL_ENV, clickhouse_url(address))
    return data_dir


@pytest.fixture(scope="session")
def seeded_control(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with models, jobs and schedules, to copy."""
    directory = DataDir(tmp_path_factory.mktemp("control") / "data").open()
    seed_control(directory, tmp_path_factory.mktemp("folders"))
    return directory.path


@pytest.fixture
def seeded_environment(
    seeded_address: tuple[Address, Seeded], seeded_control: Path, data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> DataDir:
    """The dashboard's environment over the seeded store, with control state of this test."""
    shutil.copytree(seeded_control, data_dir.path, dirs_exist_ok=True)
    monkeypatch.setenv(DATA_DIR_ENV, str(data_dir.path))
    monkeypatch.setenv(CLICKHOUSE_URL_ENV, clickhouse_url(seeded_address[0]))
    return data_dir


@pytest.fixture
def seeded(seeded_environment: DataDir, seeded_address: tuple[Address, Seeded]) -> Seeded:
    """Ids and counts of the seeded rows."""
    assert seeded_environment.control_db.exists()
    return seeded_address[1]


@pytest.fixture
def seeded_store(seeded_address: tuple[Address, Seeded]) -> Iterator[Store]:
    """The seeded store, to look something up or to add metrics of one more job."""
    with Store(seeded_address[0]) as store:
        yield store


@pytest.fixture(scope="session")
def learned_stage(
    clickhouse: Address, databases: ReusedDatabases, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Address, Path, Learned]:
    """A database and a data directory (to copy) in which sft made v2 from v1, and grpo v3."""
    database = replace(clickhouse, database=databases.take())
    directory = DataDir(tmp_path_factory.mktemp("learned") / "data").open()
    with Store(database) as store:
        seeded = seed_learning(store)
        seed_learning_control(directory, store, tmp_path_factory.mktemp("learned-folders"))
    return database, directory.path, seeded


@pytest.fixture
def learned_environment(
    learned_stage: tuple[Address, Path, Learned], data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> DataDir:
    """The dashboard's environment over a trained model."""
    shutil.copytree(learned_stage[1], data_dir.path, dirs_exist_ok=True)
    monkeypatch.setenv(DATA_DIR_ENV, str(data_dir.path))
    monkeypatch.setenv(CLICKHOUSE_URL_ENV, clickhouse_url(learned_stage[0]))
    return data_dir


@pytest.fixture
def learned(learned_environment: DataDir, learned_stage: tuple[Address, Path, Learned]) -> Learned:
    """Ids and counts of the seeded rows."""
    assert learned_environment.control_db.exists()
    return learned_stage[2]


@pytest.fixture
def stopped(data_dir: DataDir, monkeypatch: pytest.MonkeyPatch) -> DataDir:
    """The dashboard's environment with no ClickHouse running."""
    monkeypatch.setenv(DATA_DIR_ENV, str(data_dir.path))
    monkeypatch.delenv(CLICKHOUSE_URL_ENV, raising=False)
    return data_dir
