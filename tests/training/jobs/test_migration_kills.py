"""Migrations of the control database with rows, killed at every statement, and by several processes at once."""

import os
import random
import signal
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from sqlalchemy import inspect, text

from spanloop.foundation.paths import DataDir
from spanloop.semconv.environment import CONTROL_URL_ENV
from spanloop.training.jobs.database.control_database import SCHEMA_VERSION, ControlDatabase
from spanloop.training.jobs.database.engines import open_engine, reader_of
from spanloop.training.jobs.notices import unseen_notices
from spanloop.training.jobs.paths import ControlPaths
from spanloop.training.models.registry import Registry
from spanloop.training.run.job_api import Job, JobApi, JobKind, JobSpec, Schedule

from ...killed_processes import ForkServer

MIGRATE = """
import signal
from pathlib import Path
from sqlalchemy import event
from sqlalchemy.engine import Engine
from spanloop.training.jobs.database.control_database import ControlDatabase
from spanloop.training.jobs.notices import unseen_notices
from spanloop.training.jobs.paths import ControlPaths

def main(data_dir, number):
    executed = 0

    def kill(*_):
        nonlocal executed
        executed += 1
        if executed == number:
            os.kill(os.getpid(), signal.SIGKILL)

    for moment in ("before_cursor_execute", "after_cursor_execute", "commit"):
        event.listen(Engine, moment, kill)
    ControlDatabase(ControlPaths(Path(data_dir)))
"""
"""Migrates, and is killed before or after its n-th statement, or before its n-th commit."""


def tables(data_dir: DataDir) -> dict[str, list[str]]:
    """The columns of all tables, as they are."""
    engine = open_engine(os.environ.get(CONTROL_URL_ENV) or f"sqlite:///{data_dir.control_db}")
    with reader_of(engine).connect() as connection:
        inspector = inspect(connection)
        return {
            name: sorted(column["name"] for column in inspector.get_columns(name))
            for name in inspector.get_table_names()
        }


def make_version_1(data_dir: DataDir, model_folder: Path) -> tuple[Job, Schedule]:
    """Turn a new database with rows into one of schema version 1."""
    Registry(data_dir).add("tiny", model_folder)
    api = JobApi(data_dir)
    spec = JobSpec(kind=JobKind.GRPO, base="tiny", deploy=True)
    job, schedule = api.submit(spec), api.schedule(spec, cron="0 3 * * *")
    added = {"jobs": ("ran_s", "retries", "retry_at"), "schedules": ("settings", "paused_at")}
    created = [name for name in tables(data_dir) if name not in {"jobs", "schedules", "model_versions", "deployments"}]
    with ControlDatabase(ControlPaths.of(data_dir)).write() as session:
        for name in created:
            if name != "control_schema":
                session.execute(text(f"DROP TABLE {name}"))
        for table, columns in added.items():
            for column in columns:
                session.execute(text(f"ALTER TABLE {table} DROP COLUMN {column}"))
        session.execute(text("UPDATE control_schema SET version = 1"))
    return job, schedule


@pytest.mark.slow
@pytest.mark.parametrize("is_new", [True, False])
def test_a_migration_that_is_killed_at_every_statement_is_made_whole_or_not_at_all(
    data_dir: DataDir, model_folder: Path, tmp_path: Path, *, is_new: bool
) -> None:
    rows = None if is_new else make_version_1(data_dir, model_folder)
    former = {} if is_new else tables(data_dir)
    kills = 0
    with ForkServer(MIGRATE, tmp_path / "log") as server:
        while (status := server.run(str(data_dir.path), kills + 1)) == -signal.SIGKILL:
            kills += 1
            if tables(data_dir) != former:
                # Killed after the commit.
                break
        else:
            assert status == 0, (tmp_path / "log").read_text()
    assert kills > 20
    check_whole(data_dir, rows)
    print(f"{kills} kills")  # noqa: T201 - the ledger


@pytest.mark.slow
def test_processes_that_migrate_at_once_and_are_killed_lose_nothing(
    data_dir: DataDir, model_folder: Path, tmp_path: Path
) -> None:
    rows = make_version_1(data_dir, model_folder)
    choose = random.Random(18)
    with ExitStack() as servers:
        started = [servers.enter_context(ForkServer(MIGRATE, tmp_path / "log")) for _ in range(3)]
        for _ in range(10):
            pids = [server.start(str(data_dir.path), 0) for server in started]
            time.sleep(choose.uniform(0, 0.1))
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            assert {server.wait() for server in started} <= {0, -signal.SIGKILL}, (tmp_path / "log").read_text()
    check_whole(data_dir, rows)


def check_whole(data_dir: DataDir, rows: tuple[Job, Schedule] | None) -> None:
    """Check that the schema is the current one, with the rows of the former one; migrates if nothing has."""
    database = ControlDatabase(ControlPaths.of(data_dir))
    assert database.stored_version() == SCHEMA_VERSION
    if rows is None:
        assert JobApi(data_dir).list() == ()
        return
    job, schedule = rows
    kind = {"kind": JobKind.DR_GRPO}
    api = JobApi(data_dir)
    assert [each.spec for each in api.list()] == [job.spec.model_copy(update=kind)]
    assert [(each.id, each.spec) for each in api.schedules()] == [(schedule.id, schedule.spec.model_copy(update=kind))]
    # Told once, however often the migration began.
    assert len(unseen_notices(data_dir)) == 1
