"""Fixtures of alerts: a control database, a clock, and receivers."""

from collections.abc import Iterator

import pytest

from spanloop.foundation.paths import DataDir
from spanloop.semconv.environment import CONTROL_URL_ENV
from spanloop.training.alerts.alert_api import AlertApi
from spanloop.training.jobs.database.control_database import ControlDatabase
from spanloop.training.jobs.paths import ControlPaths

from ..jobs.support import FakeClock
from .receivers import Mails, Posts, mail_receiver, web_receiver


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def database(data_dir: DataDir, monkeypatch: pytest.MonkeyPatch) -> ControlDatabase:
    monkeypatch.delenv(CONTROL_URL_ENV, raising=False)
    return ControlDatabase(ControlPaths.of(data_dir))


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
