"""Fixtures: the roles on one control database, and a model behind the gateway."""

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from spanloop.semconv.environment import CLICKHOUSE_URL_ENV, CONTROL_URL_ENV, SHARED_DIR_ENV
from spanloop.training.control.engines import dispose_engines

from ..control.postgresql_server import PostgreSqlServer, find_programs
from ..gateway.support import StandIn, serving, write_model
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
    """The roles, not started but ClickHouse; the test's own process shares their ClickHouse, jobs and models."""
    stand_in = StandIn(write_model(tmp_path / "upstream", 1))
    url = f"sqlite:///{tmp_path / 'control.db'}" if postgresql is None else postgresql.url("postgres")
    with serving(stand_in.app()) as upstream:
        made = Roles(tmp_path / "roles", url, upstream, "work 4 0.3")
        for name in (CLICKHOUSE_URL_ENV, CONTROL_URL_ENV, SHARED_DIR_ENV):
            monkeypatch.setenv(name, made.environment[name])
        try:
            yield made
        finally:
            made.kill()
