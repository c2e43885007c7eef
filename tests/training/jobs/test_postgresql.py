"""Test what only PostgreSQL has: pooled connections, forks, a lock that times out, a password, a server that dies."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sqlalchemy import text

from spanloop.foundation.control import engines
from spanloop.foundation.errors import DataDirectoryError
from spanloop.runtime.environment_checks import all_checks
from spanloop.semconv.environment import CONTROL_URL_ENV
from spanloop.training.jobs.database.control_database import SCHEMA_VERSION, ControlDatabase
from spanloop.training.jobs.database.tables import JobRow, SchemaRow
from spanloop.training.jobs.paths import ControlPaths

from .postgresql_server import PASSWORD, PostgreSqlServer
from .support import ON_POSTGRESQL

FORKING = """
import os, sys
from pathlib import Path
from spanloop.training.jobs.database.control_database import SCHEMA_VERSION, ControlDatabase
from spanloop.training.jobs.paths import ControlPaths
from spanloop.training.jobs.database.tables import SchemaRow

database = ControlDatabase(ControlPaths(Path(sys.argv[1])))
with database.write() as session:
    session.add(SchemaRow(name="counter", version=0))
child = os.fork()
for _ in range(20):
    with ControlDatabase(ControlPaths(Path(sys.argv[1]))).write() as session:
        session.get_one(SchemaRow, "counter").version += 1
if child == 0:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""


pytestmark = ON_POSTGRESQL


@pytest.fixture
def postgresql(control_backend: str, tmp_path: Path) -> ControlDatabase:
    assert control_backend == "postgresql"
    return ControlDatabase(ControlPaths(tmp_path))


def shorten_timeouts(monkeypatch: pytest.MonkeyPatch, timeout: str) -> None:
    statements = tuple(each.replace("30s", timeout) for each in engines.BEGIN_POSTGRESQL_WRITE)
    assert statements != engines.BEGIN_POSTGRESQL_WRITE
    monkeypatch.setattr(engines, "BEGIN_POSTGRESQL_WRITE", statements)


def test_a_forked_process_has_its_own_connections_and_all_are_closed_at_the_end(
    postgresql: ControlDatabase, tmp_path: Path
) -> None:
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", FORKING, str(tmp_path)]
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (completed.returncode, completed.stderr) == (0, "")
    with postgresql.read() as session:
        assert session.get_one(SchemaRow, "counter").version == 40


def test_all_users_of_a_process_share_a_few_connections(postgresql: ControlDatabase, tmp_path: Path) -> None:
    databases = [ControlDatabase(ControlPaths(tmp_path)) for _ in range(20)]
    for database in databases:
        with database.read() as session:
            statement = text("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
            assert session.execute(statement).scalar_one() <= 2
    assert postgresql.url == databases[0].url


def test_a_reader_cannot_write(postgresql: ControlDatabase) -> None:
    def write() -> None:
        with postgresql.read() as session:
            session.add(SchemaRow(name="other", version=1))
            session.flush()

    with pytest.raises(DataDirectoryError, match="read-only"):
        write()


def test_a_writer_that_waits_too_long_fails(postgresql: ControlDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(name: str) -> None:
        with postgresql.write() as session:
            session.add(SchemaRow(name=name, version=1))

    with postgresql.write():
        shorten_timeouts(monkeypatch, "100ms")
        with pytest.raises(DataDirectoryError, match="Another process has been writing") as caught:
            write("other")
    assert caught.value.is_transient


def test_a_writer_that_hangs_loses_the_lock_and_its_rows(
    postgresql: ControlDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hang() -> None:
        with postgresql.write() as hanging:
            hanging.add(SchemaRow(name="hanging", version=1))
            hanging.flush()
            time.sleep(1)
            with postgresql.write() as session:
                session.add(SchemaRow(name="next", version=1))

    shorten_timeouts(monkeypatch, "500ms")
    with pytest.raises(DataDirectoryError, match="idle-in-transaction") as caught:
        hang()
    assert caught.value.is_transient
    with postgresql.read() as session:
        assert session.get(SchemaRow, "hanging") is None
        assert session.get(SchemaRow, "next") is not None


def test_doctor_names_the_database_and_shows_no_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = os.environ[CONTROL_URL_ENV]

    def check() -> tuple[bool, str]:
        (found,) = [each for each in all_checks(tmp_path) if each.name == "control database"]
        assert PASSWORD not in repr(found)
        return found.ok, found.detail

    server = url.rpartition("@")[2]
    assert check() == (True, f"postgresql://{server}, schema version {SCHEMA_VERSION}")
    wrong = url.replace(PASSWORD, f"{PASSWORD}-at-all")
    monkeypatch.setenv(CONTROL_URL_ENV, wrong)
    ok, detail = check()
    assert not ok
    assert "password authentication failed" in detail


SUBMITTING = """
import sys, time
from pathlib import Path
from spanloop.foundation.errors import DataDirectoryError
from spanloop.training.jobs import job_queue
from spanloop.foundation.control.clock import utc_now
from spanloop.training.jobs.database.control_database import SCHEMA_VERSION, ControlDatabase
from spanloop.training.jobs.paths import ControlPaths
from spanloop.training.jobs.database.tables import SchemaRow
from spanloop.training.run.job_api import JobSpec

spec = JobSpec.of(kind="sft", base="tiny")
database = ControlDatabase(ControlPaths(Path(sys.argv[1])))
while not Path(sys.argv[1], "stop").exists():
    try:
        with database.write() as session:
            session.get_one(SchemaRow, "counter").version += 1
            job = job_queue.insert_job(session, spec, now=utc_now()).job_id
    except DataDirectoryError as error:
        assert error.is_transient, error
        print("failed", flush=True)
        time.sleep(0.02)
    else:
        print(job, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("pauses_s", [(0.5, 0.9, 0.3, 1.3, 0.7)])
def test_kill_9_of_the_server_loses_and_doubles_no_acknowledged_job(
    *, postgresql: ControlDatabase, postgresql_server: PostgreSqlServer, tmp_path: Path, pauses_s: tuple[float, ...]
) -> None:
    with postgresql.write() as session:
        session.add(SchemaRow(name="counter", version=0))
    command = [sys.executable, "-c", SUBMITTING, str(tmp_path)]
    ledgers = [tmp_path / f"ledger-{number}" for number in range(3)]
    with ledgers[0].open("w") as one, ledgers[1].open("w") as two, ledgers[2].open("w") as three:
        writers = [subprocess.Popen(command, stdout=ledger) for ledger in (one, two, three)]
    for pause_s in pauses_s:
        wait_for_lines(ledgers)
        time.sleep(pause_s)
        postgresql_server.kill()
        postgresql_server.start()
    wait_for_lines(ledgers)
    (tmp_path / "stop").touch()
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    lines = [line for ledger in ledgers for line in ledger.read_text().split()]
    acknowledged, failures = [line for line in lines if line != "failed"], lines.count("failed")
    with postgresql.read() as session:
        stored = {row.job_id for row in session.query(JobRow)}
        counter = session.get_one(SchemaRow, "counter").version
    print(f"ledger: {len(acknowledged)} acknowledged, {failures} failed, {len(stored)} stored, counter {counter}")  # noqa: T201 - `pytest -rP` shows it
    assert failures >= len(pauses_s)
    assert len(set(acknowledged)) == len(acknowledged)
    assert set(acknowledged) <= stored
    assert counter == len(stored), "a transaction is stored whole"
    assert len(stored) <= len(acknowledged) + failures


def wait_for_lines(ledgers: list[Path]) -> None:
    """Wait until every writer has had another job acknowledged."""
    counts = [ledger.read_text().count("sft-") for ledger in ledgers]
    give_up_at = time.monotonic() + 60
    while any(ledger.read_text().count("sft-") <= count for ledger, count in zip(ledgers, counts, strict=True)):
        assert time.monotonic() < give_up_at
        time.sleep(0.02)
