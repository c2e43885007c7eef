"""Test the control database: schema versions, writers, invalid URLs, PostgreSQL statements."""

import sqlite3
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import insert, select, update
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateTable

from spanloop.datadir import DataDir
from spanloop.semconv.errors import ConfigurationError, DataDirectoryError
from spanloop.training.control.clock import UtcMicros
from spanloop.training.control.database import CONTROL_URL_ENV, SCHEMA_VERSION, ControlDatabase
from spanloop.training.control.notices import unseen_notices
from spanloop.training.control.paths import ControlPaths
from spanloop.training.control.tables import Base, DeploymentRow, JobRow, ScheduleRow, SchemaRow
from spanloop.training.jobs import JobApi, JobKind, JobSpec


def test_it_is_made_in_wal_mode_with_its_version(data_dir: DataDir, database: ControlDatabase) -> None:
    with sqlite3.connect(data_dir.control_db) as raw:
        assert raw.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert raw.execute("SELECT version FROM control_schema").fetchall() == [(SCHEMA_VERSION,)]
    raw.close()
    assert database.url.endswith("control.db")


def test_a_newer_schema_is_refused_and_left_alone(data_dir: DataDir) -> None:
    ControlDatabase(ControlPaths.of(data_dir))
    with sqlite3.connect(data_dir.control_db) as raw:
        raw.execute("UPDATE control_schema SET version = 7")
    raw.close()
    with pytest.raises(
        DataDirectoryError, match=r"schema version 7; this spanloop supports versions up to 4(?s:.*)newer spanloop"
    ):
        JobApi(data_dir)
    with sqlite3.connect(data_dir.control_db) as raw:
        assert raw.execute("SELECT version FROM control_schema").fetchall() == [(7,)]
    raw.close()


def test_a_grpo_job_of_schema_version_1_is_a_dr_grpo_job(data_dir: DataDir, api: JobApi) -> None:
    grpo = JobSpec(kind=JobKind.GRPO, base="tiny", steps=7, kl_coefficient=0)
    sft = JobSpec(kind=JobKind.SFT, base="tiny")
    jobs = [api.submit(spec).id for spec in (grpo, sft)]
    schedule = api.schedule(grpo, cron="0 3 * * *").id
    unreadable = api.submit(sft).id
    with sqlite3.connect(data_dir.control_db) as raw:
        raw.execute("UPDATE control_schema SET version = 1")
        raw.execute("UPDATE jobs SET spec = 'no JSON' WHERE job_id = ?", [unreadable])
    raw.close()
    api = JobApi(data_dir)
    dr_grpo = grpo.model_copy(update={"kind": JobKind.DR_GRPO})
    assert [api.get(job).spec for job in jobs] == [dr_grpo, sft]
    assert [each.spec for each in api.schedules() if each.id == schedule] == [dr_grpo]
    with sqlite3.connect(data_dir.control_db) as raw:
        assert raw.execute("SELECT spec FROM jobs WHERE job_id = ?", [unreadable]).fetchone() == ("no JSON",)
        assert raw.execute("SELECT version FROM control_schema").fetchall() == [(SCHEMA_VERSION,)]
    raw.close()
    # what is submitted from now on is what it says
    assert JobApi(data_dir).get(api.submit(grpo).id).spec == grpo


def test_a_missing_data_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataDirectoryError, match=r"nowhere does not exist(?s:.*)spanloop up"):
        JobApi(tmp_path / "nowhere")


def test_a_file_that_is_no_database_is_an_error_of_ours(data_dir: DataDir) -> None:
    data_dir.control_db.write_bytes(b"not a database, but long enough to have a header" * 10)
    with pytest.raises(DataDirectoryError, match="not a database"):
        JobApi(data_dir)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("no url", "not a database URL"),
        ("mysql://host/db", "names a mysql database"),
        ("postgresql+psycopg://host/db", r"driver(?s:.*)pip install"),
        ("postgresql+nothing://host/db", "driver"),
    ],
)
def test_a_url_that_cannot_be_used_says_why(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch, url: str, message: str
) -> None:
    monkeypatch.setenv(CONTROL_URL_ENV, url)
    with pytest.raises(ConfigurationError, match=message):
        JobApi(data_dir)


def test_a_url_names_another_database(data_dir: DataDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CONTROL_URL_ENV, f"sqlite:///{tmp_path}/elsewhere.db")
    JobApi(data_dir)
    assert (tmp_path / "elsewhere.db").exists()
    assert not data_dir.control_db.exists()


def test_an_exception_rolls_a_write_back(database: ControlDatabase) -> None:
    def write_and_fail() -> None:
        with database.write() as session:
            session.add(SchemaRow(name="other", version=1))
            session.flush()
            raise KeyError

    with pytest.raises(KeyError):
        write_and_fail()
    with database.read() as session:
        assert session.get(SchemaRow, "other") is None


def test_a_reader_does_not_wait_for_a_writer(database: ControlDatabase) -> None:
    with database.write() as writer:
        writer.add(SchemaRow(name="other", version=1))
        writer.flush()
        with database.read() as session:
            assert session.get(SchemaRow, "other") is None


COUNT = """
import sys
from pathlib import Path
from spanloop.training.control.database import ControlDatabase
from spanloop.training.control.notices import unseen_notices
from spanloop.training.control.paths import ControlPaths
from spanloop.training.control.tables import SchemaRow

database = ControlDatabase(ControlPaths(Path(sys.argv[1])))
for _ in range(10):
    with database.write() as session:
        row = session.get(SchemaRow, "counter")
        if row is None:
            session.add(SchemaRow(name="counter", version=1))
        else:
            row.version += 1
"""


def test_processes_that_open_a_new_database_at_once_lose_no_write(data_dir: DataDir) -> None:
    command = [sys.executable, "-c", COUNT, str(data_dir.path)]
    processes = [subprocess.Popen(command) for _ in range(4)]
    assert [process.wait() for process in processes] == [0] * 4
    with ControlDatabase(ControlPaths.of(data_dir)).read() as session:
        assert session.get_one(SchemaRow, "counter").version == 40


@given(st.datetimes(timezones=st.timezones()))
def test_an_instant_survives_to_the_microsecond(instant: datetime) -> None:
    column = UtcMicros()
    dialect = postgresql.dialect()  # type: ignore[no-untyped-call]
    restored = column.process_result_value(column.process_bind_param(instant, dialect), dialect)
    assert restored == instant.astimezone(UTC)
    assert restored is not None
    assert restored.utcoffset() == timedelta(0)


def test_a_naive_instant_is_refused() -> None:
    with pytest.raises(ValueError, match="naive"):
        UtcMicros().process_bind_param(datetime(2026, 1, 1), postgresql.dialect())  # type: ignore[no-untyped-call]  # noqa: DTZ001


def test_the_statements_compile_for_postgresql() -> None:
    """No PostgreSQL is at hand in the tests: this holds that the SQL can be written for it, not that it runs."""
    dialect = postgresql.dialect()  # type: ignore[no-untyped-call]
    for table in Base.metadata.sorted_tables:
        assert f"CREATE TABLE {table.name}" in str(CreateTable(table).compile(dialect=dialect))
    now = datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=1)))
    for statement in (
        select(JobRow).where(JobRow.state.in_(["queued"])).order_by(JobRow.created_at).limit(1),
        update(JobRow).where(JobRow.lease_token == 3, JobRow.lease_until < now).values(state="queued"),
        update(ScheduleRow).where(ScheduleRow.next_at == now).values(next_at=None),
        insert(DeploymentRow).values(name="tiny", number=1, deployed_at=now),
    ):
        assert str(statement.compile(dialect=dialect))


def test_a_schedule_of_schema_version_2_deploys_by_the_rule_and_its_owner_is_told_once(
    data_dir: DataDir, api: JobApi
) -> None:
    schedules = [
        api.schedule(JobSpec(kind=JobKind.SFT, base="tiny", deploy=deploy), cron="0 3 * * *").id
        for deploy in (True, False)
    ]
    with sqlite3.connect(data_dir.control_db) as raw:
        for table in ("aliases", "promotion_decisions", "notices"):
            raw.execute(f"DROP TABLE {table}")
        raw.execute("UPDATE control_schema SET version = 2")
    raw.close()
    (notice,) = unseen_notices(data_dir)
    assert schedules[0] in notice
    assert schedules[1] not in notice
    assert "--deploy-always" in notice
    assert unseen_notices(data_dir) == ()
    deploys = {each.id: (each.spec.deploy, each.spec.deploy_always) for each in JobApi(data_dir).schedules()}
    assert deploys == {schedules[0]: (True, False), schedules[1]: (False, False)}


def test_a_new_database_has_nothing_to_tell(data_dir: DataDir) -> None:
    assert unseen_notices(data_dir) == ()


def test_a_schedule_and_a_job_of_schema_version_3_go_on(data_dir: DataDir, api: JobApi) -> None:
    job = api.submit(JobSpec(kind=JobKind.SFT, base="tiny"))
    schedule = api.schedule(job.spec, cron="0 3 * * *")
    with sqlite3.connect(data_dir.control_db) as raw:
        raw.execute("DROP TABLE schedule_ticks")
        for table, columns in (("jobs", ("ran_s", "retries", "retry_at")), ("schedules", ("settings", "paused_at"))):
            for column in columns:
                raw.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
        raw.execute("UPDATE control_schema SET version = 3")
    raw.close()
    for _ in range(2):
        assert JobApi(data_dir).schedules() == (schedule,)
        assert JobApi(data_dir).get(job.id) == job
    assert api.pause(schedule.id).paused_at is not None
    assert api.ticks(schedule.id) == ()
