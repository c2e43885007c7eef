"""Migrations of the control database with rows, killed at every statement, and by several processes at once."""

import os
import random
import signal
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from sqlalchemy import inspect, text

from spanloop.foundation.control.engines import open_engine, reader_of
from spanloop.foundation.paths import DataDir
from spanloop.semconv.environment import CONTROL_URL_ENV
from spanloop.training.jobs.database.control_database import SCHEMA_VERSION, ControlDatabase
from spanloop.training.jobs.paths import ControlPaths
from spanloop.training.models.registry import Registry
from spanloop.training.run.job_api import Job, JobApi, JobSpec, Schedule

from ...killed_processes import ForkServer

MIGRATE = """
import signal
from pathlib import Path
from sqlalchemy import event, text
from sqlalchemy.engine import Engine
from spanloop.training.jobs.database import control_database as module
from spanloop.training.jobs.paths import ControlPaths

NEXT = (
    "CREATE TABLE labels (job_id VARCHAR(64) PRIMARY KEY, label TEXT NOT NULL)",
    "INSERT INTO labels SELECT job_id, state FROM jobs",
    "ALTER TABLE jobs ADD COLUMN priority INTEGER DEFAULT 0 NOT NULL",
    "UPDATE jobs SET priority = priority + 1",
    "ALTER TABLE schedules ADD COLUMN label TEXT DEFAULT '' NOT NULL",
    "UPDATE schedules SET label = label || cron",
    "DROP INDEX jobs_by_state",
    "CREATE INDEX jobs_by_priority ON jobs (priority, created_at)",
)

def migrate_to_next(connection):
    for statement in NEXT:
        connection.execute(text(statement))

module.MIGRATIONS = (*module.MIGRATIONS, migrate_to_next)
module.SCHEMA_VERSION += 1

def main(data_dir, number):
    executed = 0

    def kill(*_):
        nonlocal executed
        executed += 1
        if executed == number:
            os.kill(os.getpid(), signal.SIGKILL)

    for moment in ("before_cursor_execute", "after_cursor_execute", "commit"):
        event.listen(Engine, moment, kill)
    module.ControlDatabase(ControlPaths(Path(data_dir)))
"""
"""Makes the tables, or migrates them by a next migration; it is killed before or after its n-th statement, or before
its n-th commit."""


def tables(data_dir: DataDir) -> dict[str, list[str]]:
    """The columns of all tables, as they are."""
    engine = open_engine(os.environ.get(CONTROL_URL_ENV) or f"sqlite:///{data_dir.control_db}")
    with reader_of(engine).connect() as connection:
        inspector = inspect(connection)
        return {
            name: sorted(column["name"] for column in inspector.get_columns(name))
            for name in inspector.get_table_names()
        }


def make_initial(data_dir: DataDir, model_folder: Path) -> tuple[Job, Schedule]:
    """Make a database of the initial schema, with rows."""
    Registry(data_dir).add("tiny", model_folder)
    api = JobApi(data_dir)
    spec = JobSpec.of(kind="grpo", base="tiny", deploy=True)
    return api.submit(spec), api.schedule(spec, cron="0 3 * * *")


@pytest.mark.slow
@pytest.mark.parametrize("is_new", [True, False])
def test_a_migration_that_is_killed_at_every_statement_is_made_whole_or_not_at_all(
    data_dir: DataDir, model_folder: Path, tmp_path: Path, *, is_new: bool
) -> None:
    rows = None if is_new else make_initial(data_dir, model_folder)
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
    rows = make_initial(data_dir, model_folder)
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
        assert started[0].run(str(data_dir.path), 0) == 0, (tmp_path / "log").read_text()
    check_whole(data_dir, rows)


def check_whole(data_dir: DataDir, rows: tuple[Job, Schedule] | None) -> None:
    """Check that the schema is the next one, with the rows of the initial one, migrated once."""
    database = ControlDatabase(ControlPaths.of(data_dir), migrate=False)
    assert database.stored_version() == SCHEMA_VERSION + 1
    with database.read() as session:
        if rows is None:
            assert session.execute(text("SELECT count(*) FROM jobs")).scalar_one() == 0
            return
        job, schedule = rows
        assert session.execute(text("SELECT job_id, priority FROM jobs")).all() == [(job.id, 1)]
        assert session.execute(text("SELECT schedule_id, label FROM schedules")).all() == [(schedule.id, "0 3 * * *")]
        assert session.execute(text("SELECT job_id, label FROM labels")).all() == [(job.id, "queued")]
