"""``spanloop schedules``, and the options of ``spanloop train`` that make one."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from spanloop.cli import app as command_tree
from spanloop.foundation.errors import ConfigurationError, JobError, StoreError
from spanloop.foundation.paths import DataDir
from spanloop.semconv.environment import CLICKHOUSE_URL_ENV
from spanloop.training.jobs.database.control_database import ControlDatabase
from spanloop.training.jobs.paths import ControlPaths
from spanloop.training.jobs.schedules.outcome import TickOutcome
from spanloop.training.jobs.schedules.schedule_ticks import Decision, run_due_ticks
from spanloop.training.models.registry import Registry
from spanloop.training.run.job_api import JobApi
from spanloop.training.spec.stored_spec import parse_spec

from ...training.loop.support import write_app


@pytest.fixture
def with_model(data_dir: DataDir, tmp_path: Path) -> DataDir:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    (model / "model.safetensors").write_bytes(b"1")
    Registry(data_dir).add("m", model)
    return data_dir


def invoke(data_dir: DataDir, *arguments: str) -> Result:
    return CliRunner().invoke(command_tree.app, [*arguments, "--data-dir", str(data_dir.path)], env={"COLUMNS": "250"})


def text_of(data_dir: DataDir, *arguments: str) -> str:
    completed = invoke(data_dir, *arguments)
    assert completed.exit_code == 0, completed.output
    return " ".join(completed.output.split())


@pytest.mark.parametrize(
    ("options", "trigger"),
    [
        (("--cron", "0 3 * * *"), "cron 0 3 * * *"),
        (("--every", "6h"), "every 6h"),
        (("--after-transitions", "500"), "after 500 new transitions"),
        (("--when-failures", "timeout of planner above 20% of 50"), "when timeout of planner above 20% of the last 50"),
    ],
)
def test_each_trigger_is_an_option_and_is_listed(with_model: DataDir, options: tuple[str, str], trigger: str) -> None:
    text = text_of(with_model, "train", "m", *options, "--budget", "3 jobs/week")
    (schedule,) = JobApi(with_model).schedules()
    assert f"schedule {schedule.id}: next at" in text
    assert f"spanloop schedules preview {schedule.id}" in text
    assert trigger in text_of(with_model, "schedules", "list")
    shown = text_of(with_model, "schedules", "show", schedule.id)
    assert trigger in shown
    assert "budget 3 jobs/week" in shown
    assert JobApi(with_model).list() == ()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--every", "6h", "--cron", "0 3 * * *"), "give one of"),
        (("--budget", "3 jobs/week"), "--budget is of a job that starts repeatedly"),
        (("--every", "6h", "--wait"), "--wait watches a job that starts now"),
        (("--after-transitions", "5", "--foreground"), "--foreground runs the job now"),
        (("--after-transitions", "0"), "should be greater than or equal to 1"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    with_model: DataDir, options: tuple[str, ...], message: str
) -> None:
    completed = invoke(with_model, "train", "m", *options)
    assert completed.exit_code == 2
    assert message in " ".join(completed.output.replace("│", "").split())
    assert JobApi(with_model).schedules() == ()


@pytest.mark.parametrize(
    "options", [("--every", "soon"), ("--when-failures", "often"), ("--every", "6h", "--budget", "all")]
)
def test_what_cannot_be_read_says_what_to_write(with_model: DataDir, options: tuple[str, ...]) -> None:
    error = invoke(with_model, "train", "m", *options).exception
    assert isinstance(error, ConfigurationError)
    assert error.next_step.startswith("Write ")
    assert JobApi(with_model).schedules() == ()


def test_a_schedule_is_shown_with_its_ticks_paused_resumed_and_removed(with_model: DataDir) -> None:
    invoke(with_model, "train", "m", "--every", "6h", "--steps", "7")
    (schedule,) = JobApi(with_model).schedules()
    skipped = Decision(TickOutcome.SKIPPED, "no new trainable groups")
    run_due_ticks(ControlDatabase(ControlPaths.of(with_model)), lambda _: skipped, parse_spec, recurring=True)
    assert "skipped: no new trainable groups" in text_of(with_model, "schedules", "list")
    shown = text_of(with_model, "schedules", "show", schedule.id)
    assert '"steps": 7' in shown
    assert "skipped: no new trainable groups" in shown
    assert "paused" in text_of(with_model, "schedules", "pause", schedule.id)
    assert "paused since" in text_of(with_model, "schedules", "list")
    assert "next at" in text_of(with_model, "schedules", "resume", schedule.id)
    assert "removed" in text_of(with_model, "schedules", "remove", schedule.id)
    assert JobApi(with_model).schedules() == ()
    for command in ("show", "preview", "pause", "resume", "remove"):
        assert isinstance(invoke(with_model, "schedules", command, "nothing").exception, JobError)


def test_a_preview_says_what_decides(with_model: DataDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CLICKHOUSE_URL_ENV, "http://somebody:secret@127.0.0.1:9/default")
    api = JobApi(with_model)
    invoke(with_model, "train", "m", "--when-failures", "timeout above 20% of 50")
    (schedule,) = api.schedules()
    assert isinstance(invoke(with_model, "schedules", "preview", schedule.id).exception, StoreError)
    submitted = Decision(TickOutcome.SUBMITTED, "as if there were new data")
    run_due_ticks(ControlDatabase(ControlPaths.of(with_model)), lambda _: submitted, parse_spec, recurring=True)
    (job,) = api.list()
    text = text_of(with_model, "schedules", "preview", schedule.id)
    assert f"no job: its job {job.id} is queued, and it has one job at a time" in text
    once = api.schedule(schedule.spec, at=datetime(2100, 1, 1, tzinfo=UTC))
    assert "It ticks once. Next tick: 2100-01-01 00:00" in text_of(with_model, "schedules", "preview", once.id)


def test_a_file_of_a_loop_is_scheduled_listed_and_refused_without_a_time(with_model: DataDir, tmp_path: Path) -> None:
    write_app(tmp_path / "app")
    file = tmp_path / "app" / "app.toml"
    assert invoke(with_model, "schedules", "add", str(file)).exit_code == 2
    text = text_of(with_model, "schedules", "add", str(file), "--cron", "0 3 * * *")
    (schedule,) = JobApi(with_model).schedules()
    assert f"schedule {schedule.id}: next at" in text
    assert schedule.settings.loop is not None
    assert (schedule.settings.loop.path, schedule.settings.loop.model, schedule.spec.kind) == (str(file), "m", "sft")
    assert f"a round of {file}" in text_of(with_model, "schedules", "show", schedule.id)
    assert "a round starts: a round of its loop" in text_of(with_model, "schedules", "preview", schedule.id)
    file.unlink()
    assert "no round: there is no file" in text_of(with_model, "schedules", "preview", schedule.id)
    missing = invoke(with_model, "schedules", "add", str(file), "--cron", "0 3 * * *").exception
    assert isinstance(missing, ConfigurationError)
