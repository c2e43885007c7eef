"""Fixtures of alerts: a control database, a clock, and receivers."""

from collections.abc import Iterator

import pytest

from spanloop.foundation.control.engines import dispose_engines
from spanloop.foundation.paths import DataDir
from spanloop.semconv.environment import CONTROL_URL_ENV
from spanloop.training.alerts.alert_api import AlertApi
from spanloop.training.jobs.database.control_database import ControlDatabase
from spanloop.training.jobs.paths import ControlPaths

from ..jobs.postgresql_server import PostgreSqlServer, find_programs
from ..jobs.support import FakeClock
from .receivers import Mails, Posts, mail_receiver, web_receiver


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgreSqlServer]:
    programs = find_programs()
    if programs is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    with PostgreSqlServer.running(programs) as server:
        yield server
        dispose_engines()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def database(
    request: pytest.FixtureRequest, data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ControlDatabase]:
    """The control database; `make test-slow` runs its tests on PostgreSQL too."""
    monkeypatch.delenv(CONTROL_URL_ENV, raising=False)
    if request.param == "sqlite":
        yield ControlDatabase(ControlPaths.of(data_dir))
        return
    with request.getfixturevalue("postgresql").database() as url:
        monkeypatch.setenv(CONTROL_URL_ENV, url)
        yield ControlDatabase(ControlPaths.of(data_dir))
        dispose_engines()


@pytest.fixture
def api(data_dir: DataDir, database: ControlDatabase, clock: FakeClock) -> AlertApi:
    """The API, with the channels ``ops`` and ``mail`` configured."""
    assert database.stored_version()
    (data_dir.path / "spanloop.toml").write_text(
        '[alerts]\ndashboard_url = "https://dash.test/"\n'
        '[alerts.channels.ops]\nkind = "webhook"\nurl = "http://127.0.0.1:1/hook"\n'
        '[alerts.channels.mail]\nkind = "smtp"\nhost = "127.0.0.1"\nsender = "a@b.test"\nrecipients = ["c@d.test"]\n'
    )
    return AlertApi(data_dir, clock=clock)


@pytest.fixture
def web() -> Iterator[Posts]:
    with web_receiver() as posts:
        yield posts


@pytest.fixture
def mail() -> Iterator[Mails]:
    with mail_receiver() as mails:
        yield mails
