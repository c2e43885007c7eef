"""Test copies between SQLite and PostgreSQL, and the backup of a control database on PostgreSQL."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from spanloop.cli.app import app
from spanloop.foundation.control.clock import utc_now
from spanloop.foundation.control.engines import dispose_engines
from spanloop.foundation.errors import ConfigurationError, JobError
from spanloop.foundation.paths import DataDir
from spanloop.semconv.environment import CONTROL_URL_ENV
from spanloop.training.jobs import job_outcomes, job_queue
from spanloop.training.jobs.database.control_database import ControlDatabase
from spanloop.training.jobs.database.database_copy import load_control_database, renew_tokens, save_control_database
from spanloop.training.jobs.paths import ControlPaths
from spanloop.training.models.checkpoint_fence import claim
from spanloop.training.models.registry import Registry
from spanloop.training.models.saved_registry import find_lost_versions
from spanloop.training.promotion.aliases import Aliases
from spanloop.training.run.job_api import JobApi, JobSpec

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


def test_a_restored_job_has_a_newer_token_than_any_before(
    *, api: JobApi, spec: JobSpec, data_dir: DataDir, tmp_path: Path
) -> None:
    """Checkpoints and gateways remember tokens that were given after the backup."""
    job = api.submit(spec)
    paths, file = ControlPaths.of(data_dir), tmp_path / "copy.db"
    save_control_database(paths, file)
    checkpoints, until = tmp_path / "checkpoints", utc_now() + timedelta(seconds=30)
    with ControlDatabase(paths).write() as session:
        lost = job_queue.lease_next_job(session, owner="lost", now=utc_now(), until=until)
    assert lost is not None
    claim(checkpoints, lost.token + 100)
    renew_tokens(file)
    restored = ControlDatabase(paths, url=f"sqlite:///{file}")
    with restored.write() as session:
        lease = job_queue.lease_next_job(session, owner="restored", now=utc_now(), until=until)
    assert lease is not None
    assert lease.job_id == job.id
    claim(checkpoints, lease.token)
    # What the lost database still runs is fenced off.
    with pytest.raises(JobError, match=r"belong to the lease with token(?s:.*)spanloop jobs retry"):
        claim(checkpoints, lost.token)


def test_a_job_of_a_database_that_was_restored_elsewhere_goes_on_when_it_is_retried(
    *, api: JobApi, spec: JobSpec, data_dir: DataDir, tmp_path: Path
) -> None:
    job = api.submit(spec)
    database, until = ControlDatabase(ControlPaths.of(data_dir)), utc_now() + timedelta(seconds=30)
    claim(tmp_path, 7)

    def lease_and_fail() -> int:
        with database.write() as session:
            lease = job_queue.lease_next_job(session, owner="runner", now=utc_now(), until=until)
            assert lease is not None
            job_outcomes.mark_failed(session, lease, now=utc_now(), error="refused")
        return lease.token

    refused = lease_and_fail()
    with pytest.raises(JobError, match="belong to the lease with token 7, got 1"):
        claim(tmp_path, refused)
    JobApi(data_dir).retry(job.id)
    claim(tmp_path, lease_and_fail())


def test_a_version_whose_weights_are_not_in_the_backup_is_named(
    *, registry: Registry, data_dir: DataDir, tmp_path: Path
) -> None:
    version, file = registry.get("tiny"), tmp_path / "copy.db"
    save_control_database(ControlPaths.of(data_dir), file)
    assert find_lost_versions(file, data_dir.models) == []
    assert find_lost_versions(file, tmp_path / "models") == [version.reference]
    with ControlDatabase(ControlPaths.of(data_dir)).write() as session:
        registry.mark_pruned(session, version)
    file.unlink()
    save_control_database(ControlPaths.of(data_dir), file)
    assert find_lost_versions(file, tmp_path / "models") == []


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
