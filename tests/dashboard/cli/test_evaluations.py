"""``spanloop evaluate`` and ``evaluations`` on episodes in a store, and the job that ``spanloop train`` asks for."""

import io
import json
import re
import sys
from datetime import UTC, datetime, timedelta
from importlib.metadata import EntryPoint
from pathlib import Path

import polars as pl
import pytest

from spanloop.cli import console
from spanloop.cli.app import app
from spanloop.evaluation.results import EvaluationError
from spanloop.foundation.errors import ConfigurationError, SpanloopError
from spanloop.foundation.paths import DataDir
from spanloop.foundation.plugins import lookup as extensions
from spanloop.semconv.environment import CLICKHOUSE_URL_ENV
from spanloop.store import Store
from spanloop.store.client import Address
from spanloop.training.models.registry import Registry
from spanloop.training.run.job_api import JobApi

from ...stored_states import insert_transitions
from ...training.recipe_kinds import flat_value

STARTED_AT = datetime(2026, 11, 1, tzinfo=UTC)


def episodes(store: Store, model: str, rewards: str) -> None:
    """One attempt at each task; a digit is its reward, ``-`` none."""
    rows = [
        {
            "episode_id": f"{model}-{number}",
            "revision": 1,
            "converter_version": "test",
            "task_id": f"test-{number:02}",
            "group_id": f"test-{number:02}",
            "policy_version": model,
            "started_at": STARTED_AT + timedelta(seconds=number),
            "outcome": {"1": "success", "0": "failure"}.get(reward, "unknown"),
            "reward": None if reward == "-" else float(reward),
            "is_terminated": True,
            "error_class": "wrong_answer" if reward == "0" else "",
        }
        for number, reward in enumerate(rewards)
    ]
    call: dict[str, object] = {"type": "tool_call", "id": "c", "name": "lookup", "arguments": {}}
    action = {"role": "assistant", "parts": [call]}
    steps = [
        {"transition_id": f"{row['episode_id']}/0", "episode_id": row["episode_id"], "revision": 1, "step": 0}
        | {"policy_version": model, "action": json.dumps(action), "tool_results": "[]"}
        for row in rows
    ]
    failures = [
        {"failure_id": f"{row['episode_id']}/0", "episode_id": row["episode_id"], "revision": 1}
        | {"error_class": "wrong_answer", "is_recovered": False}
        for row in rows
        if row["error_class"]
    ]
    for table, frame in (("episodes", rows), ("transitions", steps), ("failures", failures)):
        rows_of_table = pl.DataFrame(frame, schema=store.schema(table))
        if table == "transitions":
            insert_transitions(store, rows_of_table)
        else:
            store.insert(table, rows_of_table)


@pytest.fixture
def seeded(address: Address, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"{address.scheme}://{address.user}:{address.password}@{address.host}:{address.port}/{address.database}"
    monkeypatch.setenv(CLICKHOUSE_URL_ENV, url)
    episodes(store, "m@v1", "1110000000-")
    episodes(store, "m@v2", "0111111100")


@pytest.fixture
def models(data_dir: DataDir, tmp_path: Path) -> DataDir:
    """A data directory with ``m@v1`` and ``m@v2``."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    for version in (b"1", b"2"):
        (folder / "model.safetensors").write_bytes(version)
        Registry(data_dir).add("m", folder)
    return data_dir


def run(data_dir: DataDir, *arguments: str) -> tuple[str, str]:
    """What it prints on stdout, with single spaces, and on stderr."""
    shown, noted = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(console.out, "_file", shown)
        patch.setattr(console.err, "_file", noted)
        app([*arguments, "--data-dir", str(data_dir.path)], standalone_mode=False)
    return re.sub(r" +", " ", shown.getvalue()), noted.getvalue()


@pytest.mark.usefixtures("seeded")
def test_models_are_evaluated_listed_shown_and_compared(models: DataDir) -> None:
    def say(*arguments: str) -> str:
        return run(models, *arguments)[0]

    assert "test:m@v1 11 11 27.3 %" in say("evaluate", "m@v1", "--task-prefix", "test-")
    assert "test:m@v2 10 10 70.0 %" in say("evaluate", "m", "--task-prefix", "test-")
    listed = say("evaluations", "list")
    assert listed.index("test:m@v1") < listed.index("test:m@v2")
    shown = say("evaluations", "show", "test:m@v1")
    assert "all tasks that start with test-" in shown
    assert "lookup 11 0 11 27.3 %" in shown
    assert "wrong_answer 7 63.6 % 7" in shown
    assert "crashes 0 0 to 0 11" in shown
    assert "error:wrong_answer 0.636" in shown
    compared = say("evaluations", "compare", "test:m@v1", "test:m@v2")
    assert "success +40.0 points" in compared
    assert "wrong_answer 7 → 3 63.6 % → 30.0 %" in compared
    assert "5 tasks failed before and succeed now" in compared
    assert "test-03 m@v1-3 m@v2-3" in compared
    assert "1 tasks succeeded before and fail now" in compared


@pytest.mark.usefixtures("seeded")
def test_figures_are_grouped_by_a_field_of_the_tasks(models: DataDir, tmp_path: Path) -> None:
    rows = [{"id": f"test-{n:02}", "n": n, "level": "easy" if n < 4 else "hard"} for n in range(10)]
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text("".join(json.dumps(row) + "\n" for row in rows))
    shown, _ = run(models, "evaluate", "m@v1", "--tasks", str(tasks), "--group-by", "level")
    assert "level tasks attempts success sd reward sd of reward" in shown
    assert "easy 4 4 75.0 % 50.0 % 0.750 0.500" in shown
    assert "hard 6 6 0.0 % 0.0 % 0.000 0.000" in shown
    with pytest.raises(ConfigurationError, match="No task has the field 'size'; there are: level, n"):
        run(models, "evaluate", "m@v1", "--tasks", str(tasks), "--group-by", "size")


@pytest.mark.usefixtures("seeded")
def test_what_has_no_score_is_said(models: DataDir) -> None:
    assert "failures without a score: unscored 1" in run(models, "evaluate", "m@v1")[1]
    with pytest.raises(EvaluationError, match="no episode of m@v7"):
        run(models, "evaluate", "m@v7")
    with pytest.raises(SpanloopError, match="no model"):
        run(models, "evaluate", "nobody")


@pytest.mark.usefixtures("seeded")
def test_records_that_are_no_task_are_counted_and_a_reader_that_raises_is_always_named(
    models: DataDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "late_reader.py").write_text(
        "def read(source, **options):\n"
        "    yield {'id': 'test-01'}\n"
        "    yield from range(20)\n"
        "    raise OSError('the wire is cut')\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "late_reader", raising=False)
    point = EntryPoint("late", "late_reader:read", "spanloop.task_readers")

    def entry_points(**_: str) -> list[EntryPoint]:
        return [point]

    monkeypatch.setattr(extensions, "entry_points", entry_points)
    noted = io.StringIO()
    with monkeypatch.context() as patch:
        patch.setattr(console.err, "_file", noted)
        arguments = ["evaluate", "m@v1", "--tasks", "late:db", "--data-dir", str(models.path)]
        assert app(arguments, standalone_mode=False) == 1
    lines = noted.getvalue().splitlines()
    assert "late:22: task reader" in lines[10]
    assert "20 records are no task; the others were evaluated" in lines
    assert "the source was not read to its end; the tasks before were evaluated" in lines


def test_a_file_without_a_task_evaluates_nothing(models: DataDir, tmp_path: Path) -> None:
    (tmp_path / "tasks.jsonl").write_text("broken\n")
    with pytest.raises(SpanloopError, match="has no task"):
        run(models, "evaluate", "m@v1", "--tasks", str(tmp_path / "tasks.jsonl"))


def test_train_asks_for_what_its_options_say(models: DataDir) -> None:
    queued, _ = run(
        models, "train", "m", "--group-size", "16", "--epochs", "2", "--max-prompt-tokens", "600",
        "--max-response-tokens", "300", "--seed", "7", "--task-prefix", "train-", "--task-ids", "train-1",
        "--task-ids", "train-2", "--pause-serving",
    )  # fmt: skip
    spec = JobApi(models).get(queued.strip()).spec
    assert (
        flat_value(spec, "group_size"),
        flat_value(spec, "epochs"),
        spec.episodes.max_prompt_tokens,
        spec.episodes.max_response_tokens,
    ) == (16, 2, 600, 300)
    assert (spec.optimiser.seed, spec.episodes.task_prefix, spec.episodes.task_ids, spec.run.pause_serving) == (
        7,
        "train-",
        ("train-1", "train-2"),
        True,
    )
    queued, _ = run(models, "train", "m")
    spec = JobApi(models).get(queued.strip()).spec
    assert (flat_value(spec, "group_size"), spec.run.pause_serving, spec.episodes.task_ids) == (8, False, ())
