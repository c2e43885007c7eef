"""The demo without running it: its app, its ports, its report, and rejected settings."""

import json
import re
import tomllib
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
import typer

from spanloop.demo.command import demo
from spanloop.demo.learning_demo import (
    DemoSettings,
    app_text,
    office_folder,
    prepare_app,
    print_needs,
    stored_ports,
)
from spanloop.demo.learning_report import evaluation_ids
from spanloop.demo.running_services import check_services
from spanloop.evaluation.runner.agent import is_callable_target
from spanloop.foundation.errors import ConfigurationError, NotRunningError
from spanloop.foundation.paths import DataDir
from spanloop.runtime import environment_checks
from spanloop.training.loop.app_file import read_app
from spanloop.training.loop.rounds import LoopRound, RoundOutcome, StepName, StepRecord
from spanloop.training.spec.job_file import build_spec

from .support import Run


@pytest.fixture
def offices(tmp_path: Path) -> Path:
    """A demo's folder with a few tasks."""
    prepare_app(tmp_path / "demo", DemoSettings(seed=1, train_tasks=8, test_tasks=12))
    return tmp_path / "demo"


def test_the_app_is_copied_with_its_tasks_and_its_seed(offices: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(offices)
    app = read_app(Path("app.toml"))
    assert [spec.kind for spec in app.train] == ["sft", "dr_grpo"]
    assert {app.run.seed, app.evaluation.seed, *(spec.optimiser.seed for spec in app.train)} == {1}
    assert (app.model.source, app.run.agent) == ("smollm2", "agent:attempt_task")
    tasks = [json.loads(line) for line in (offices / "test.jsonl").read_text().splitlines()]
    assert len(tasks) == 12
    assert (offices / "office.sqlite").stat().st_size > 0
    assert is_callable_target(app.run.agent)


def test_the_demo_trains_as_its_measured_recipe() -> None:
    app = tomllib.loads(app_text((office_folder() / "app.toml").read_text(), DemoSettings()))
    sft, grpo = (build_spec(each | {"base": "office"}, where="app.toml") for each in app["train"])
    assert (sft.steps, sft.optimiser.batch_groups, sft.optimiser.learning_rate) == (8, 16, 3e-5)
    assert (grpo.steps, grpo.optimiser.batch_groups, grpo.optimiser.learning_rate) == (5, 16, 3e-6)


def test_the_same_settings_continue_and_others_are_refused(offices: Path) -> None:
    tasks = (offices / "train.jsonl").stat().st_mtime_ns
    settings = DemoSettings(seed=1, train_tasks=8, test_tasks=12)
    assert prepare_app(offices, settings._replace(rounds=5)) == offices / "app.toml"
    assert (offices / "train.jsonl").stat().st_mtime_ns == tasks
    with pytest.raises(ConfigurationError, match="it has 'seed = 1', now 'seed = 2'") as caught:
        prepare_app(offices, settings._replace(seed=2))
    assert "--fresh" in caught.value.next_step
    with pytest.raises(ConfigurationError, match="started with other settings: it has 'source"):
        prepare_app(offices, settings._replace(source="org/other"))


def test_too_many_tasks_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="there are not 4000 different questions"):
        prepare_app(tmp_path, DemoSettings(test_tasks=4000))
    assert not (tmp_path / "app.toml").exists()


def test_the_ports_stay_where_they_are_free(tmp_path: Path) -> None:
    file = tmp_path / "demo" / "ports.json"
    first = stored_ports(file)
    assert stored_ports(file) == first
    other = stored_ports(file, is_free=lambda port: port != first.dashboard)
    assert other != first
    assert stored_ports(file) == other
    file.write_text("damaged")
    assert stored_ports(file).dashboard > 0


def test_needs_and_duration_are_printed_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    print_needs(tmp_path / "demo", 2)
    text = capsys.readouterr().err
    assert re.search(r"It takes about \d+ min for 2 rounds on two quiet cores with bfloat16", text)
    assert re.search(r"It needs 11 GB of memory and 5 GB of disk. This machine: \d+ cores", text)


def step(name: StepName, seconds: float = 0.0, **result: object) -> StepRecord:
    return StepRecord(name, seconds, 0, "", result)


def test_the_report_reads_the_evaluation_of_each_version() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    first = (step(StepName.MEASURE, evaluation="e:m@v1"), step(StepName.TEST, evaluation="e:m@v2"))
    second = (step(StepName.MEASURE, evaluation="e:m@v2"), step(StepName.TEST, evaluation="e:m@v3"))
    rounds = [
        LoopRound("m", 1, "m@v1", "m@v2", first, RoundOutcome.PROMOTED, "", at, at),
        LoopRound("m", 2, "m@v2", "m@v3", second, RoundOutcome.KEPT, "", at, at),
        LoopRound("m", 3, "m@v2", "", (StepRecord(StepName.MEASURE),), None, "", at, None),
    ]
    assert evaluation_ids(rounds) == {f"m@v{number}": f"e:m@v{number}" for number in (1, 2, 3)}


def test_a_missing_extra_is_named_before_anything_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def installed(package: str) -> str:
        if package == "torch":
            raise PackageNotFoundError
        return "1.0"

    monkeypatch.setattr(environment_checks, "version", installed)
    with pytest.raises(ConfigurationError, match="missing torch") as caught:
        demo(tiny=True, data_dir=tmp_path / "data")
    assert caught.value.next_step.endswith("pip install '/path/to/spanloop[train]'")
    assert not (tmp_path / "data").exists()


def test_the_learning_demo_starts_services_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(typer.BadParameter, match="only the demo with --tiny"):
        demo(config=tmp_path / "spanloop.toml")


def test_only_the_demo_on_other_services_trains_on_another_ray() -> None:
    with pytest.raises(typer.BadParameter, match="only the demo on other services"):
        demo(tiny=True, ray_address="train1:6379")


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
