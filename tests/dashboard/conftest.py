"""Fixtures of the dashboard's tests: a data directory whose ClickHouse is the session's, empty or seeded."""

from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
import streamlit as st
from dashboard_seeding import Seeded, seed, seed_control, seed_metrics
from spanloop.dashboard.service import APP
from spanloop.semconv.environment import CLICKHOUSE_URL_ENV, DATA_DIR_ENV
from spanloop.store import DataDir, Store
from spanloop.store.client import Address
from streamlit.testing.v1 import AppTest

OpenPage = Callable[..., AppTest]


@pytest.fixture(autouse=True)
def _fresh_caches() -> Iterator[None]:
    st.cache_resource.clear()
    yield
    st.cache_resource.clear()


@pytest.fixture
def environment(data_dir: DataDir, address: Address, store: Store, monkeypatch: pytest.MonkeyPatch) -> DataDir:
    """The dashboard's environment over an empty store of the test's own."""
    assert store.database == address.database
    monkeypatch.setenv(DATA_DIR_ENV, str(data_dir.path))
    monkeypatch.setenv(CLICKHOUSE_URL_ENV, clickhouse_url(address))
    return data_dir


@pytest.fixture
def seeded(environment: DataDir, store: Store, tmp_path: Path) -> Seeded:
    """The same with rows in every table, models, jobs and schedules."""
    found = seed(store)
    job_ids = seed_control(environment, tmp_path / "scratch")
    seed_metrics(store, job_ids[-1])
    return found


@pytest.fixture
def open_page() -> OpenPage:
    """Open a page of the app by its file's stem, with query parameters."""

    def open_named(page: str, **query: str) -> AppTest:
        app = AppTest.from_file(str(APP), default_timeout=30)
        app.switch_page(f"pages/{page}.py")
        for name, value in query.items():
            app.query_params[name] = value
        return app.run()

    return open_named


def clickhouse_url(address: Address) -> str:
    """The address with its password, as the environment variable has it."""
    user, password = quote(address.user), quote(address.password, safe="")
    return f"{address.scheme}://{user}:{password}@{address.host}:{address.port}/{address.database}"


def everything(app: AppTest) -> str:
    """All text that a page shows outside tables and charts."""
    kinds = (
        app.title,
        app.header,
        app.subheader,
        app.markdown,
        app.caption,
        app.error,
        app.warning,
        app.info,
        app.success,
    )
    return "\n".join(str(element.value) for elements in kinds for element in elements) + "\n".join(
        str(element.value) for element in app.code
    )
