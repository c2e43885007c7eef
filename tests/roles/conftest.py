"""Fixtures: the roles on one control database."""

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from spanloop.foundation.control.engines import dispose_engines

from ..training.jobs.postgresql_server import PostgreSqlServer, find_programs
from .processes import Roles


@pytest.fixture
def postgresql() -> Iterator[PostgreSqlServer | None]:
    """A PostgreSQL server; None where it is not installed."""
    programs = find_programs()
    if programs is None:
        yield None
        return
    with PostgreSqlServer.running(programs) as server:
        yield server
        dispose_engines()


@pytest.fixture
def roles(tmp_path: Path, postgresql: PostgreSqlServer | None, monkeypatch: pytest.MonkeyPatch) -> Generator[Roles]:
    """The roles, none of them started; the test's own process has their addresses and key."""
    url = f"sqlite:///{tmp_path / 'control.db'}" if postgresql is None else postgresql.url("postgres")
    roles = Roles(tmp_path / "roles", url)
    for name, value in roles.variables().items():
        monkeypatch.setenv(name, value)
    yield roles
    roles.kill()
