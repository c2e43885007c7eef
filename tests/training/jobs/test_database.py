"""Test the control database on SQLite and PostgreSQL: schema versions, writers, readers, invalid URLs."""

import os
import sqlite3
import subprocess
import sys
import threading
import time
import traceback
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Connection, inspect, select, text
from sqlalchemy.dialects import postgresql

from spanloop.foundation.control.clock import UtcMicros
from spanloop.foundation.control.engines import open_engine, reader_of
from spanloop.foundation.errors import ConfigurationError, DataDirectoryError, SpanloopError
from spanloop.foundation.paths import DataDir
from spanloop.semconv.environment import CONTROL_URL_ENV
from spanloop.training.jobs.database import control_database as database_module
from spanloop.training.jobs.database.control_database import SCHEMA_VERSION, ControlDatabase
from spanloop.training.jobs.database.tables import Base, SchemaRow
from spanloop.training.jobs.paths import ControlPaths
from spanloop.training.run.job_api import JobApi

from .support import ON_SQLITE


def change(database: ControlDatabase, *statements: str) -> None:
    """Change the tables behind spanloop's back."""
    with database.write() as session:
        for statement in statements:
            session.execute(text(statement))


@ON_SQLITE
def test_it_is_made_in_wal_mode_with_its_version(data_dir: DataDir, database: ControlDatabase) -> None:
    with sqlite3.connect(data_dir.control_db) as raw:
        assert raw.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert raw.execute("SELECT version FROM control_schema").fetchall() == [(SCHEMA_VERSION,)]
    raw.close()
    assert database.url.endswith("control.db")


def test_a_newer_schema_is_refused_and_left_alone(data_dir: DataDir, database: ControlDatabase) -> None:
    newer = SCHEMA_VERSION + 1
    change(database, f"UPDATE control_schema SET version = {newer}")
    with pytest.raises(
        DataDirectoryError,
        match=rf"schema version {newer}; this spanloop supports versions up to {SCHEMA_VERSION}(?s:.*)newer spanloop",
    ):
        JobApi(data_dir)
    assert database.stored_version() == newer


@pytest.mark.parametrize("is_new", [True, False])
def test_an_interrupted_migration_leaves_the_former_schema(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch, *, is_new: bool
) -> None:
    def interrupt(connection: Connection) -> None:
        Base.metadata.tables["schedules"].drop(connection)
        raise KeyboardInterrupt

    def create_and_interrupt(connection: Connection) -> None:
        Base.metadata.tables["schedules"].create(connection)
        raise KeyboardInterrupt

    def tables() -> list[str]:
        engine = open_engine(os.environ.get(CONTROL_URL_ENV) or f"sqlite:///{data_dir.control_db}")
        with reader_of(engine).connect() as connection:
            return inspect(connection).get_table_names()

    if not is_new:
        ControlDatabase(ControlPaths.of(data_dir))
    former = tables()
    with monkeypatch.context() as patch:
        patch.setattr(database_module, "MIGRATIONS", (*database_module.MIGRATIONS, interrupt))
        patch.setattr(database_module, "SCHEMA_VERSION", SCHEMA_VERSION + 1)
        patch.setattr(Base.metadata, "create_all", create_and_interrupt)
        with pytest.raises(KeyboardInterrupt):
            ControlDatabase(ControlPaths.of(data_dir))
    assert tables() == former
    assert ("schedules" in former) != is_new
    assert ControlDatabase(ControlPaths.of(data_dir)).stored_version() == SCHEMA_VERSION


def test_a_missing_data_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataDirectoryError, match=r"nowhere does not exist(?s:.*)spanloop up"):
        JobApi(tmp_path / "nowhere")


@ON_SQLITE
def test_a_file_that_is_no_database_is_an_error_of_ours(data_dir: DataDir) -> None:
    data_dir.control_db.write_bytes(b"not a database, but long enough to have a header" * 10)
    with pytest.raises(DataDirectoryError, match="not a database"):
        JobApi(data_dir)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("no url", "not a database URL"),
        ("mysql://me:secret@host/db", "names a mysql database"),
        ("postgresql+nothing://me:secret@host/db", r"driver postgresql\+nothing"),
        ("postgresql://me:secret@host:secret/db", "not a database URL"),
        ("postgresql://me:very@secret@host/db", "more than one @"),
        ("postgresql://me:secret@127.0.0.1:1/db", r"postgresql://127.0.0.1:1/db is unreachable(?s:.*)pg_isready"),
        ("postgresql://127.0.0.1:1/db?user=me&password=secret", r"postgresql://127.0.0.1:1/db is unreachable"),
    ],
)
@ON_SQLITE
def test_a_url_that_cannot_be_used_says_why_and_shows_no_password(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch, url: str, message: str
) -> None:
    monkeypatch.setenv(CONTROL_URL_ENV, url)
    with pytest.raises(SpanloopError, match=message) as caught:
        JobApi(data_dir)
    assert isinstance(caught.value, DataDirectoryError if "unreachable" in message else ConfigurationError)
    assert "secret" not in "".join(traceback.format_exception(caught.value, limit=0))


@ON_SQLITE
def test_a_missing_driver_names_the_extra(data_dir: DataDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CONTROL_URL_ENV, "postgresql://host/db")
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ConfigurationError, match=r"driver(?s:.*)pip install '/path/to/spanloop\[postgres\]'"):
        JobApi(data_dir)


@ON_SQLITE
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


def test_a_reader_sees_one_state_whatever_is_written_meanwhile(database: ControlDatabase) -> None:
    with database.read() as session:
        assert session.get(SchemaRow, "other") is None
        with database.write() as writer:
            writer.add(SchemaRow(name="other", version=1))
        assert session.scalars(select(SchemaRow.name)).all() == ["control"]
    with database.read() as session:
        assert session.scalars(select(SchemaRow.name).order_by(SchemaRow.name)).all() == ["control", "other"]


def test_a_reader_does_not_wait_for_a_writer(database: ControlDatabase) -> None:
    with database.write() as writer:
        writer.add(SchemaRow(name="other", version=1))
        writer.flush()
        with database.read() as session:
            assert session.get(SchemaRow, "other") is None


def test_a_writer_has_the_lock_from_its_first_line(database: ControlDatabase) -> None:
    """So what it reads elsewhere before its first statement, such as files, cannot change meanwhile."""
    order = list[str]()

    def write() -> None:
        with database.write():
            order.append("second")

    with database.write():
        thread = threading.Thread(target=write)
        thread.start()
        time.sleep(0.1)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


COUNT = """
import sys
from pathlib import Path
from spanloop.training.jobs.database.control_database import ControlDatabase
from spanloop.training.jobs.paths import ControlPaths
from spanloop.training.jobs.database.tables import SchemaRow

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
