"""A control database of the former migrations: opened as it is, or refused."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from spanloop.foundation.errors import DataDirectoryError
from spanloop.foundation.former_schemas import OPENING_COMMIT
from spanloop.foundation.paths import DataDir
from spanloop.runtime.environment_checks import all_checks
from spanloop.semconv.environment import CONTROL_URL_ENV
from spanloop.training.jobs.database.control_database import INITIAL_VERSION, SCHEMA_VERSION, ControlDatabase
from spanloop.training.jobs.paths import ControlPaths
from spanloop.training.models.registry import Registry
from spanloop.training.run.job_api import JobApi

FORMER: Final = Path(__file__).with_name("control.sql").read_text(encoding="utf-8")
UNUSED: Final = {"notices"}
"""Tables that a former migration made and that this code leaves alone."""


@pytest.fixture
def former(data_dir: DataDir, monkeypatch: pytest.MonkeyPatch) -> DataDir:
    """A data directory with the stored control database."""
    monkeypatch.delenv(CONTROL_URL_ENV, raising=False)
    execute(data_dir, FORMER)
    return data_dir


def execute(data_dir: DataDir, script: str) -> None:
    with closing(sqlite3.connect(data_dir.control_db)) as database:
        database.executescript(script)


def read(data_dir: DataDir) -> tuple[dict[str, str], list[str]]:
    """The definitions of all tables and indexes, and all rows."""
    with closing(sqlite3.connect(data_dir.control_db)) as database:
        made = database.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
        return dict(made), [line for line in database.iterdump() if line.startswith("INSERT")]


def test_an_adopted_control_database_has_the_schema_of_a_new_one_and_its_rows(former: DataDir, tmp_path: Path) -> None:
    made, rows = read(former)
    (job,) = JobApi(former).list()
    (schedule,) = JobApi(former).schedules()
    assert (job.spec.kind, job.spec.optimiser.steps, schedule.spec.kind) == ("grpo", 7, "sft")
    assert [version.reference for version in Registry(former).list()] == ["tiny@v1"]
    adopted, kept = read(former)
    assert made.items() <= adopted.items()
    versions = [f"VALUES('control',{version})" for version in (INITIAL_VERSION, SCHEMA_VERSION)]
    assert kept == [row.replace(*versions) for row in rows]
    new = DataDir(tmp_path / "new").open()
    ControlDatabase(ControlPaths.of(new))
    assert read(new)[0] == {name: sql for name, sql in adopted.items() if name not in UNUSED}


@pytest.mark.parametrize("version", range(1, INITIAL_VERSION))
def test_an_older_control_database_is_refused(former: DataDir, version: int) -> None:
    execute(former, f"UPDATE control_schema SET version = {version}")
    stored = read(former)
    with pytest.raises(DataDirectoryError, match=rf"schema version {version}, of an older spanloop") as caught:
        JobApi(former)
    assert f"Open it once with commit {OPENING_COMMIT}" in caught.value.next_step
    assert read(former) == stored


def test_doctor_names_the_commit_that_opens_an_older_control_database(
    former: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(former, "UPDATE control_schema SET version = 4")
    monkeypatch.setenv(CONTROL_URL_ENV, f"sqlite:///{former.control_db}")
    (check,) = [each for each in all_checks(former.path) if each.name == "control database"]
    assert not check.ok
    assert OPENING_COMMIT in check.fix
