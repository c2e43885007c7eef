"""Run the ``spanloop`` command as a process."""

import os
import subprocess
from pathlib import Path

import pytest

from spanloop.semconv.environment import CLICKHOUSE_URL_ENV
from spanloop.store import Store
from spanloop.store.client import Address

from .support import SPANLOOP, Run


@pytest.fixture
def spanloop(tmp_path: Path) -> Run:
    """``spanloop ARGUMENTS`` on a data directory of the test."""

    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        command = [str(SPANLOOP), *arguments]
        variables = {"SPANLOOP_DATA_DIR": str(tmp_path / "data"), "COLUMNS": "200", **environment}
        return subprocess.run(
            command, env={**os.environ, **variables}, capture_output=True, text=True, timeout=200, check=False
        )

    return run


@pytest.fixture
def spanloop_on_store(spanloop: Run, address: Address, store: Store) -> Run:
    """The same on a migrated database of the test, instead of a server that each command starts and stops."""
    assert store.database == address.database
    user = f"{address.user}:{address.password}"
    url = f"{address.scheme}://{user}@{address.host}:{address.port}/{address.database}"

    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return spanloop(*arguments, **{CLICKHOUSE_URL_ENV: url}, **environment)

    return run
