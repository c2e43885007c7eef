"""Test copies between SQLite and PostgreSQL, and the backup of a control database on PostgreSQL."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from spanloop.cli.app import app
from spanloop.datadir import DataDir
from spanloop.semconv.environment import CONTROL_URL_ENV
from spanloop.semconv.errors import ConfigurationError
from spanloop.training.control.database_copy import load_control_database, save_control_database
from spanloop.training.control.engines import dispose_engines
from spanloop.training.control.paths import ControlPaths
from spanloop.training.jobs import JobApi, JobSpec
from spanloop.training.promotion.aliases import Aliases
from spanloop.training.registry import Registry

from .postgresql_server import PASSWORD, PostgreSqlServer


@pytest.fixture
def other_url(postgresql_server: PostgreSqlServer) -> Iterator[str]:
    """An empty database on PostgreSQL."""
    with postgresql_server.database() as url:
        yield url
        dispose_engines()


def test_a_copy_on_postgresql_has_every_row_and_goes_on(
    *, api: JobApi, spec: JobSpec, data_dir: DataDir, tmp_path: Path, other_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, schedule = api.submit(spec), api.schedule(spec, cron="0 3 * * *")
    alias = Aliases(data_dir).set("tiny@v1", "champion")
    paths, file = ControlPaths.of(data_dir), tmp_path / "copy.db"
    save_control_database(paths, file)
    api.submit(spec)
    assert [path.name for path in tmp_path.glob("copy.db*")] == ["copy.db"]
    monkeypatch.setenv(CONTROL_URL_ENV, other_url)
    for _ in range(2):
        load_control_database(paths, file)
    copy = JobApi(data_dir)
    assert (copy.list(), copy.schedules()) == ((job,), (schedule,))
    assert Registry(data_dir).get("tiny").version == "v1"
    assert Aliases(data_dir).list() == (alias,)
    assert Aliases(data_dir).set("tiny@v1", "second").version == "v1"
    with pytest.raises(ConfigurationError, match=r"has other rows(?s:.*)names? an empty database|name an empty"):
        load_control_database(paths, file)
    assert len(Aliases(data_dir).list()) == 2


@pytest.mark.slow
def test_a_backup_has_the_jobs_of_postgresql_and_shows_no_password(
    *, postgresql_server: PostgreSqlServer, other_url: str, registry: Registry, spec: JobSpec, data_dir: DataDir,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    assert registry.get("tiny").version == "v1"
    sqlite_job = JobApi(data_dir).submit(spec)
    load_into = tmp_path / "copy.db"
    save_control_database(ControlPaths.of(data_dir), load_into)
    monkeypatch.setenv(CONTROL_URL_ENV, other_url)
    load_control_database(ControlPaths.of(data_dir), load_into)
    job = JobApi(data_dir).submit(spec)

    def run(*arguments: str) -> str:
        result = CliRunner().invoke(app, [*arguments], catch_exceptions=False)
        assert PASSWORD not in result.output
        assert result.exit_code == 0, result.output
        return result.output

    run("backup", str(tmp_path / "monday"), "--data-dir", str(data_dir.path))
    contents = [path.read_bytes() for path in (tmp_path / "monday").rglob("*") if path.is_file()]
    assert not [content for content in contents if PASSWORD.encode() in content]
    with postgresql_server.database() as url:
        monkeypatch.setenv(CONTROL_URL_ENV, url)
        run("restore", str(tmp_path / "monday"), "--data-dir", str(tmp_path / "restored"))
        assert JobApi(tmp_path / "restored").list() == (job, sqlite_job)
        assert not (tmp_path / "restored" / "control.db").exists()
        dispose_engines()
    monkeypatch.delenv(CONTROL_URL_ENV)
    run("restore", str(tmp_path / "monday"), "--data-dir", str(tmp_path / "in-sqlite"))
    assert JobApi(tmp_path / "in-sqlite").list() == (job, sqlite_job)
