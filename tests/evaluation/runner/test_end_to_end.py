"""``spanloop run`` as a user runs it: through the gateway of a running spanloop, under ``opentelemetry-instrument``."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from spanloop.evaluation.runner.planning import RunRequest, plan_run
from spanloop.foundation.errors import NotRunningError, SpanloopError
from spanloop.foundation.paths import DataDir
from spanloop.pipeline import run as convert
from spanloop.store import Store

from ...dashboard.cli.support import SPANLOOP
from ...gateway.support import serving
from ...instrumentation.support import clean_environment
from .conftest import ModelsOnly, Spanloop
from .support import stored_attempts

APP = """
import json, os, sys
from openai import OpenAI

task = json.load(sys.stdin)
seed = int(os.environ["SPANLOOP_SEED"])
question = {"role": "user", "content": task["question"]}
answer = OpenAI().chat.completions.create(model=os.environ["OPENAI_MODEL"], messages=[question], seed=seed)
print("thinking …")
print(answer.choices[0].message.content)
"""
SOLVER = """
import os
from openai import OpenAI

def solve(task):
    question = {"role": "user", "content": task["question"]}
    answer = OpenAI().chat.completions.create(model=os.environ["OPENAI_MODEL"], messages=[question])
    print("unlike " + answer.choices[0].message.content)
"""
TASKS = (
    {"id": "capital", "question": "capital of Norway?", "answer": "Oslo"},
    {"id": "shout", "question": "shout", "answer": "SHOUT"},
)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "app"
    folder.mkdir()
    (folder / "app.py").write_text(APP)
    (folder / "solver.py").write_text(SOLVER)
    lines = [json.dumps(task) for task in TASKS]
    (folder / "tasks.jsonl").write_text("\n".join([lines[0], "half a line {", lines[1]]) + "\n")
    return folder


def run(spanloop: Spanloop, place: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [str(SPANLOOP), "run", "tasks.jsonl", *options, "--data-dir", str(spanloop.data_dir.path)]
    variables = {"SPANLOOP_CLICKHOUSE_URL": spanloop.clickhouse_url, "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    everything = {**clean_environment(), **variables, **environment}
    return subprocess.run(command, cwd=place, env=everything, capture_output=True, text=True, check=False, timeout=250)


def episodes(store: Store) -> dict[str, dict[str, Any]]:
    """The converted episodes, with where the tokens of their first step come from."""
    convert(store)
    sql = (
        "SELECT e.episode_id AS episode_id, task_id, outcome, reward, policy_version, step_count, "
        "(SELECT groupUniqArray(token_source) FROM transitions) AS token_sources "
        "FROM episode_summaries AS e FINAL WHERE is_deleted = 0"
    )
    return {row["episode_id"]: row for row in store.connection.query(sql, doing="reading episodes").to_dicts()}


def test_a_command_is_run_on_tasks_graded_and_its_episodes_are_rewarded(
    spanloop: Spanloop, store: Store, place: Path
) -> None:
    spanloop.model.script = {"capital of Norway?": "Bergen"}
    completed = run(
        spanloop, place, "--agent", "python app.py", "--model", spanloop.served, "--grader", "exact", "--run", "r1"
    )
    assert completed.returncode == 1, completed.stderr  # for the broken line
    assert "tasks.jsonl:2: the line is not JSON" in completed.stderr
    assert "capital  #1  finished  failure 0" in completed.stdout
    assert "shout  #1  finished  success 1" in completed.stdout
    rows = {row["task_id"]: row for row in stored_attempts(store)}
    assert {task: (row["is_success"], row["model"]) for task, row in rows.items()} == {
        "capital": (False, spanloop.served),
        "shout": (True, spanloop.served),
    }
    assert sorted(request["seed"] for request in spanloop.model.requests) == sorted(
        row["seed"] for row in rows.values()
    )
    found = episodes(store)
    assert {row["episode_id"] for row in rows.values()} == set(found)
    for row in rows.values():
        episode = found[row["episode_id"]]
        assert (episode["task_id"], episode["reward"], episode["step_count"]) == (row["task_id"], row["reward"], 1)
        assert episode["outcome"] == ("success" if row["is_success"] else "failure")
        assert (episode["policy_version"], episode["token_sources"]) == (spanloop.served, ["captured"])


@pytest.mark.slow
def test_a_callables_answer_may_be_the_last_message_of_its_spans(spanloop: Spanloop, store: Store, place: Path) -> None:
    spanloop.model.script = {"capital of Norway?": "Oslo"}
    options = (
        "--agent",
        "solver:solve",
        "--answer",
        "message",
        "--grader",
        "exact",
        "--parallel",
        "1",
        "--attempts",
        "2",
    )
    completed = run(spanloop, place, *options, "--run", "r2")
    assert completed.returncode == 1, completed.stderr
    rows = stored_attempts(store)
    assert [(row["task_id"], row["is_success"], row["error"]) for row in rows] == [
        ("capital", True, ""),
        ("capital", True, ""),
        ("shout", True, ""),
        ("shout", True, ""),
    ]
    traces = store.connection.query(
        "SELECT DISTINCT TraceId, SpanloopEpisodeId FROM otel_traces", doing="reading spans"
    )
    assert {(row["trace_id"], row["episode_id"]) for row in rows} == set(traces.iter_rows())
    assert set(episodes(store)) == {row["episode_id"] for row in rows}
    listed = subprocess.run(
        [str(SPANLOOP), "runs", "show", "r2", "--data-dir", str(spanloop.data_dir.path)],
        env={**os.environ, "COLUMNS": "200"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "100.0%" in listed.stdout
    assert rows[0]["episode_id"] in listed.stdout


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"model": "other@v9"}, "spanloop models deploy other@v9"),
        ({"grader": "guess"}, "No grader is called 'guess'"),
        ({"reader": "guess"}, "No task reader is called 'guess'"),
        ({"reader": "csv", "reader_options": {"delimeter": ";"}}, "did you mean 'delimiter'"),
        ({"answer": "all"}, "line, stdout, message"),
        ({"run_id": "../up"}, "not a run's id"),
        ({"cwd": Path("/nowhere")}, "/nowhere is not a directory"),
        ({"agent": "echo 'open"}, "No closing quotation"),
    ],
)
def test_what_cannot_be_run_is_one_error_and_starts_nothing(
    store: Store, data_dir: DataDir, settings: dict[str, Any], error: str
) -> None:
    with serving(ModelsOnly().app()) as url, data_dir.announce("gateway", url), data_dir.announce("collector", url):
        request = RunRequest(run_id="r", tasks="tasks.jsonl", agent="echo {question}").model_copy(update=settings)
        with pytest.raises(SpanloopError) as caught:
            plan_run(data_dir, request, store, on_reject=print)
    assert error in str(caught.value)
    assert not data_dir.runs.exists()


def test_without_a_gateway_or_a_collector_the_next_step_is_named(store: Store, data_dir: DataDir) -> None:
    request = RunRequest(run_id="r", tasks="tasks.jsonl", agent="echo")
    with pytest.raises(NotRunningError, match="No gateway runs") as caught:
        plan_run(data_dir, request, store, on_reject=print)
    assert "spanloop up" in caught.value.next_step
    with pytest.raises(NotRunningError, match="No collector runs"):
        plan_run(data_dir, request.model_copy(update={"base_url": "http://127.0.0.1:1/v1"}), store, on_reject=print)


@pytest.mark.slow
def test_a_runner_makes_the_attempts_through_the_gateway_and_grades_them_by_their_spans(
    spanloop: Spanloop, store: Store, place: Path
) -> None:
    (place / "tasks.jsonl").write_text("".join(json.dumps(task) + "\n" for task in TASKS))
    (place / "graders.py").write_text("def shouted(task, answer):\n    return float(answer == task.fields['answer'])\n")
    options = ("--slots=0", "--attempt-slots=2", "--poll-s=0.2", f"--data-dir={spanloop.data_dir.path}")
    variables = {"SPANLOOP_CLICKHOUSE_URL": spanloop.clickhouse_url, "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    command, environment = [str(SPANLOOP), "serve", "runner", *options], clean_environment() | variables
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as runner:
        try:
            asked = ("--pool", "--agent", "solver:solve", "--answer", "message", "--grader", "graders:shouted")
            done = run(spanloop, place, *asked, "--attempts", "2", "--run", "pooled")
        finally:
            runner.terminate()
        _, log = runner.communicate(timeout=60)
    assert done.returncode == 0, done.stdout
    assert "run pooled: 4 attempts made" in log
    assert "Fatal" not in log
    rows = {(row["task_id"], row["attempt"]): row for row in stored_attempts(store)}
    assert {key: row["reward"] for key, row in rows.items()} == {
        ("capital", 1): 0.0,
        ("capital", 2): 0.0,
        ("shout", 1): 1.0,
        ("shout", 2): 1.0,
    }
    assert {row["model"] for row in rows.values()} == {spanloop.served}
    found = episodes(store)
    assert {found[row["episode_id"]]["policy_version"] for row in rows.values()} == {spanloop.served}
