"""The demo without running it: its finished stages, its agent, and rejected settings."""
# pyright: reportPrivateUsage=false

import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any, cast

import pytest
import typer

from spanloop.demo.agent_runner import office_agent, write_tasks
from spanloop.demo.command import _duration, demo
from spanloop.demo.experiment import Experiment
from spanloop.demo.learning_loop import Recipe, run_loop
from spanloop.demo.running_services import check_services
from spanloop.demo.stages import FinishedStages, StageDisplay
from spanloop.foundation.errors import ConfigurationError, NotRunningError, ServiceError
from spanloop.foundation.paths import DataDir
from spanloop.runtime import environment_checks
from spanloop.training.run.job_api import JobSpec
from spanloop.training.spec.flat_settings import flat_settings

from .support import Run

SETTINGS = {"seed": 0, "source": "smollm2"}


def test_a_finished_stage_is_remembered_with_its_result(tmp_path: Path) -> None:
    path = tmp_path / "demo" / "done.json"
    stages = FinishedStages(path, SETTINGS)
    assert stages.result("model") is None
    stages.finish("model", {"version": "office@v1"}, 12.34)
    again = FinishedStages(path, SETTINGS)
    assert again.result("model") == {"version": "office@v1"}
    assert again.seconds == {"model": 12.3}
    assert [each.name for each in path.parent.iterdir()] == ["done.json"]


def test_the_duration_counts_what_was_broken_off_too(tmp_path: Path) -> None:
    path = tmp_path / "demo" / "done.json"
    stages = FinishedStages(path, SETTINGS)
    stages.finish("model", {}, 60.0)
    assert _duration(stages) == "the demo took 1.0 minutes: model 60 s"
    for _ in range(2):
        FinishedStages(path, SETTINGS).interrupt("train", 45.04)
    again = FinishedStages(path, SETTINGS)
    again.finish("train", {}, 120.0)
    assert again.interrupted_s == 90.0
    assert _duration(again) == ("the demo took 4.5 minutes, 1.5 of them in interrupted stages: train 120 s, model 60 s")


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ServiceError("gone")])
def test_a_stage_that_is_broken_off_leaves_its_time_and_no_result(tmp_path: Path, error: BaseException) -> None:
    settings = Recipe()._asdict()
    path = tmp_path / "demo" / "done.json"
    experiment = Experiment(DataDir(tmp_path), FinishedStages(path, settings), StageDisplay(), office_agent(), seed=0)

    def work() -> dict[str, Any]:
        time.sleep(0.2)
        raise error

    with pytest.raises(type(error)):
        experiment._stage("train", "trains", work)
    again = FinishedStages(path, settings)
    assert again.result("train") is None
    assert again.interrupted_s >= 0.2


def test_other_settings_do_not_go_on_with_what_was_begun(tmp_path: Path) -> None:
    path = tmp_path / "demo" / "done.json"
    FinishedStages(path, SETTINGS).finish("model", {}, 1.0)
    with pytest.raises(ConfigurationError, match="seed was 0, now 1") as caught:
        FinishedStages(path, {**SETTINGS, "seed": 1})
    assert "--fresh" in caught.value.next_step


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"settings": {}}', '{"settings": {}, "stages": 3}'])
def test_a_damaged_file_of_finished_stages_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "done.json"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=r"does not list the demo.s finished stages"):
        FinishedStages(path, SETTINGS)


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("sft", {"steps": 4}),
        ("sft", {"policy_version": "", "tokens": "rendered"}),
        ("dr_grpo", {"credit": "attributed"}),
        ("dpo", {"learning_rate": 3e-6, "steps": 8, "batch_groups": 16}),
    ],
)
def test_a_recipe_gives_a_valid_job_of_each_kind(kind: str, changes: dict[str, Any]) -> None:
    job = Recipe().job(kind, "office@v1", datetime(2026, 1, 1, tzinfo=UTC), **changes)
    assert job.kind == kind
    assert flat_settings(job).items() >= changes.items()


class Recorded:
    """An experiment that trains nothing and whose rule promotes the versions ``better``."""

    agent = office_agent()

    def __init__(self, better: Sequence[str]) -> None:
        self._better = better
        self.champion = "m@v1"
        self.trained: list[tuple[str, str]] = []

    def add_model(self, _: str) -> str:
        return self.champion

    def make_tasks(self, **_: int) -> None:
        pass

    def evaluate(self, _: str) -> None:
        pass

    def collect(self, *_: object, version: str) -> datetime:
        assert version == self.champion
        return datetime(2026, 1, 1, tzinfo=UTC)

    def train(self, _name: str, _title: str, spec: JobSpec) -> str:
        self.trained.append((str(spec.kind), spec.base))
        return f"m@v{len(self.trained) + 1}"

    def decide(self, candidate: str) -> str:
        self.champion = candidate if candidate in self._better else self.champion
        return self.champion


def test_each_round_trains_the_champion() -> None:
    experiment = Recorded(better=["m@v2", "m@v4"])
    versions = run_loop(cast("Experiment", experiment), Recipe(rounds=4))
    assert experiment.trained == [("sft", "m@v1"), ("dr_grpo", "m@v2"), ("dr_grpo", "m@v2"), ("dr_grpo", "m@v4")]
    assert versions == ([f"m@v{number}" for number in range(1, 6)], "m@v4")


def test_a_recipe_survives_its_file(tmp_path: Path) -> None:
    settings = Recipe()._asdict()
    FinishedStages(tmp_path / "done.json", settings).finish("model", {}, 1.0)
    FinishedStages(tmp_path / "done.json", settings)


def test_the_agent_is_found_and_makes_its_office(tmp_path: Path) -> None:
    assert (office_agent().folder / "agent.py").is_file()
    write_tasks(office_agent(), tmp_path / "office", seed=1, train=8, test=12)
    assert len(json.loads((tmp_path / "office" / "test.json").read_text())) == 12
    assert (tmp_path / "office" / "office.sqlite").stat().st_size > 0


def test_too_many_tasks_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="there are not 4000 different questions"):
        write_tasks(office_agent(), tmp_path, seed=1, train=8, test=4000)


def test_a_missing_extra_is_named_before_anything_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def installed(package: str) -> str:
        if package == "torch":
            raise PackageNotFoundError
        return "1.0"

    monkeypatch.setattr(environment_checks, "version", installed)
    with pytest.raises(ConfigurationError, match="missing torch") as caught:
        demo(tiny=True, data_dir=tmp_path / "data")
    assert caught.value.next_step.endswith("pip install 'spanloop[train]'")
    assert not (tmp_path / "data").exists()


def test_the_learning_demo_starts_services_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(typer.BadParameter, match="only the demo with --tiny"):
        demo(config=tmp_path / "spanloop.toml")


def test_a_service_that_is_missing_is_named_with_its_setting(data_dir: DataDir) -> None:
    with pytest.raises(NotRunningError, match="No setting names a collector") as caught:
        check_services(data_dir)
    assert "collector_url under [services]" in caught.value.next_step


def test_a_service_that_does_not_answer_is_named_with_its_address(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPANLOOP_COLLECTOR_URL", "http://127.0.0.1:1")
    with pytest.raises(NotRunningError, match=r"collector at http://127.0.0.1:1 does not answer"):
        check_services(data_dir)


@pytest.mark.slow
def test_fresh_leaves_a_directory_alone_that_is_no_demo(spanloop: Run, tmp_path: Path) -> None:
    (tmp_path / "precious.txt").write_text("keep me")
    completed = spanloop("demo", "--fresh", "--no-serve", "--data-dir", str(tmp_path))
    assert completed.returncode != 0
    assert "holds no demo" in completed.stderr
    assert (tmp_path / "precious.txt").read_text() == "keep me"
