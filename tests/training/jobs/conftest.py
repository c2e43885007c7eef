"""Fixtures of the control state: a settable clock, a model folder, a job spec, the tiny runner."""

import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from spanloop.foundation.control.engines import dispose_engines
from spanloop.foundation.paths import DataDir
from spanloop.foundation.settings.roles import RunnerSettings, SchedulerSettings
from spanloop.semconv.environment import CONTROL_URL_ENV
from spanloop.training.jobs.database.control_database import ControlDatabase
from spanloop.training.jobs.paths import ControlPaths
from spanloop.training.jobs.processes.job_runner import JobRunner
from spanloop.training.jobs.processes.scheduler_loop import Scheduler
from spanloop.training.models.registry import Registry
from spanloop.training.run.job_api import JobApi, JobSpec
from spanloop.training.spec.stored_spec import parse_spec

from .postgresql_server import PostgreSqlServer, find_programs
from .support import DatabaseAway, FakeClock, MakeScheduler, RunnerOf, delete_all_rows

RUNNER = Path(__file__).with_name("tiny_runner.py")


FAST_ON_POSTGRESQL = frozenset(
    {
        "test_database",
        "test_jobs",
        "test_leadership",
        "test_offers",
        "test_schedule_ticks",
        "test_schedules",
        "test_state_machine",
    }
)
"""Modules whose tests `make test` runs on PostgreSQL too; all others do in `make test-slow`."""
HEAVY_ON_POSTGRESQL = frozenset(
    {
        "test_a_job_follows_its_model_whatever_happens_in_whatever_order",
        "test_any_order_of_ticks_arrivals_and_kills_trains_on_nothing_twice",
        "test_processes_that_open_a_new_database_at_once_lose_no_write",
    }
)
"""Tests of those modules that take seconds there."""
OF_THE_SCHEMA = frozenset({"test_database", "test_migration_kills"})
"""Modules whose tests make and change tables: each test has a PostgreSQL database without any."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test that opens the control database on SQLite and on PostgreSQL, unless it is marked for one."""
    is_marked = any(mark.args[0] == "control_backend" for mark in metafunc.definition.iter_markers("parametrize"))
    if "data_dir" in metafunc.fixturenames and not is_marked:
        test = metafunc.definition
        is_fast = test.path.stem in FAST_ON_POSTGRESQL and test.name not in HEAVY_ON_POSTGRESQL
        marks = () if is_fast else (pytest.mark.slow,)
        backends = ["sqlite", pytest.param("postgresql", marks=marks)]
        metafunc.parametrize("control_backend", backends, indirect=True)


@pytest.fixture(autouse=True)
def control_backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The kind of the test's control database, which is empty; a test without `data_dir` has SQLite."""
    backend: str = getattr(request, "param", "sqlite")
    monkeypatch.delenv(CONTROL_URL_ENV, raising=False)
    if backend == "sqlite":
        yield backend
    elif request.path.stem in OF_THE_SCHEMA:
        with request.getfixturevalue("postgresql_server").database() as url:
            monkeypatch.setenv(CONTROL_URL_ENV, url)
            yield backend
            dispose_engines()
    else:
        # Emptied now and not at the end of its test, whose processes may have been writing then.
        url = request.getfixturevalue("migrated_database")
        delete_all_rows(ControlDatabase(ControlPaths(Path()), url=url))
        monkeypatch.setenv(CONTROL_URL_ENV, url)
        yield backend


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[PostgreSqlServer]:
    """The session's PostgreSQL."""
    programs = find_programs()
    if programs is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    with PostgreSqlServer.running(programs) as server:
        yield server
        dispose_engines()


@pytest.fixture(scope="session")
def migrated_database(postgresql_server: PostgreSqlServer) -> Iterator[str]:
    """URL of a database that has the tables: emptying it is ten times as fast as making one."""
    with postgresql_server.database() as url:
        yield url
        dispose_engines()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def model_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "llama"}')
    (folder / "model.safetensors").write_bytes(b"weights of the base")
    return folder


@pytest.fixture
def registry(data_dir: DataDir, model_folder: Path, clock: FakeClock) -> Registry:
    """A registry that holds tiny@v1."""
    found = Registry(data_dir, clock=clock)
    found.add("tiny", model_folder)
    return found


@pytest.fixture
def api(data_dir: DataDir, registry: Registry, clock: FakeClock) -> JobApi:
    assert registry.get("tiny").version == "v1"
    return JobApi(data_dir, clock=clock)


@pytest.fixture
def spec() -> JobSpec:
    return JobSpec.of(kind="grpo", base="tiny@v1", steps=3)


@pytest.fixture
def database(data_dir: DataDir) -> ControlDatabase:
    return ControlDatabase(ControlPaths.of(data_dir))


@pytest.fixture
def runner_of() -> RunnerOf:
    """The command that behaves as it is told: see tiny_runner.py."""

    def command(*behaviour: str) -> tuple[str, ...]:
        return (sys.executable, str(RUNNER), *behaviour)

    return command


@pytest.fixture
def make_scheduler(data_dir: DataDir) -> MakeScheduler:
    @contextmanager
    def make(
        runner: tuple[str, ...],
        *,
        clock: FakeClock | None = None,
        slots: int = 1,
        grace_s: float = 1.0,
        stopped_s: float = 600,
        gpu_slots: int | None = None,
    ) -> Generator[Scheduler]:
        of_jobs = RunnerSettings(poll_s=0.02, slots=slots, grace_s=grace_s, stopped_s=stopped_s, gpu_slots=gpu_slots)
        jobs = JobRunner(data_dir, parse_spec, command=runner, settings=of_jobs, clock=clock)
        settings = SchedulerSettings(poll_s=0.02, grace_s=grace_s)
        scheduler = Scheduler(data_dir, parse_spec, jobs=jobs, settings=settings, clock=clock)
        try:
            yield scheduler
        finally:
            scheduler.close()

    return make


@pytest.fixture
def database_away(control_backend: str, data_dir: DataDir, request: pytest.FixtureRequest) -> DatabaseAway:
    """Take the database away for a block: hide SQLite's file, kill -9 PostgreSQL's server."""

    @contextmanager
    def away() -> Generator[None]:
        if control_backend == "postgresql":
            server: PostgreSqlServer = request.getfixturevalue("postgresql_server")
            server.kill()
            try:
                yield
            finally:
                server.start()
            return
        hidden = data_dir.path / "hidden.db"
        data_dir.control_db.rename(hidden)
        data_dir.control_db.mkdir()
        try:
            yield
        finally:
            data_dir.control_db.rmdir()
            hidden.rename(data_dir.control_db)

    return away
