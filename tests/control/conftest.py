"""Fixtures of the control state: a settable clock, a model folder, a job spec, the tiny runner."""

import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from spanloop.datadir import DataDir
from spanloop.training.control.database import CONTROL_URL_ENV, ControlDatabase
from spanloop.training.control.paths import ControlPaths
from spanloop.training.control.scheduler_loop import Scheduler, SchedulerSettings
from spanloop.training.jobs import JobApi, JobKind, JobSpec
from spanloop.training.registry import Registry

from .support import FakeClock, MakeScheduler, RunnerOf

RUNNER = Path(__file__).with_name("tiny_runner.py")


@pytest.fixture(autouse=True)
def _no_other_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CONTROL_URL_ENV, raising=False)


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
    return JobSpec(kind=JobKind.GRPO, base="tiny@v1", steps=3)


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
        settings = SchedulerSettings(
            poll_s=0.02, slots=slots, grace_s=grace_s, stopped_s=stopped_s, gpu_slots=gpu_slots
        )
        scheduler = Scheduler(data_dir, runner=runner, settings=settings, clock=clock)
        try:
            yield scheduler
        finally:
            scheduler.close()

    return make
