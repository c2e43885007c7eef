"""Attempts of the task runner in evaluations, and tasks of training."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from spanloop.evaluation.results import (
    NOTHING_TRAINED,
    Evaluation,
    EvaluationError,
    TrainedTasks,
    compare,
    load_episodes,
    load_figures,
    reference_calls_of,
)
from spanloop.evaluation.results import evaluate as evaluate_version
from spanloop.evaluation.tasks import Task
from spanloop.foundation.paths import DataDir
from spanloop.foundation.settings.metric import Metric
from spanloop.store import Store
from spanloop.training.dataset.manifest import MANIFEST_NAME
from spanloop.training.dataset.trained_tasks import trained_tasks
from spanloop.training.jobs.database.control_database import ControlDatabase
from spanloop.training.jobs.database.tables import ModelVersionRow
from spanloop.training.jobs.paths import ControlPaths
from spanloop.training.models.registry import Registry

from .evaluation_seeding import Attempt, RunAttempt, seed_attempts, seed_run
from .training_seeding import REVISION

evaluate = partial(evaluate_version, trained=NOTHING_TRAINED)


def figures(store: Store, evaluation: Evaluation) -> dict[str, float]:
    return {figure.name: round(figure.interval.value, 4) for figure in load_figures(store, evaluation)}


def test_a_crash_a_timeout_and_a_missing_score_are_failures_with_and_without_spans(store: Store) -> None:
    seed_attempts(
        store,
        [
            Attempt("good", "m@v1", None, key="k1"),
            Attempt("scored by the app", "m@v1", 1.0, key="k2"),
            Attempt("crashed", "m@v1", 1.0, key="k3"),
            Attempt("not scored", "m@v1", None, key="k4"),
        ],
    )
    seed_run(
        store,
        [
            RunAttempt("r", "good", "m@v1", 1.0, key="k1"),
            RunAttempt("r", "scored by the app", "m@v1", key="k2"),
            RunAttempt("r", "crashed", "m@v1", 1.0, state="crashed", key="k3"),
            RunAttempt("r", "not scored", "m@v1", key="k4"),
            RunAttempt("r", "crashed at once", "m@v1", state="crashed"),
            RunAttempt("r", "too slow", "m@v1", state="timed_out"),
            RunAttempt("r", "no spans", "m@v1", 1.0),
            RunAttempt("r", "of another version", "m@v2", 1.0),
        ],
    )
    for run_ids in ((), ("r",)):
        found = evaluate(store, name="test", model="m@v1", run_ids=run_ids)
        assert found.states == {"crashed": 2, "scored": 3, "timed_out": 1, "unscored": 1}
        assert (found.episodes, found.tasks) == (7, 7)
        assert found.success.value == found.reward.value == pytest.approx(3 / 7)
        measured = figures(store, found)
        assert measured[Metric.CRASHES] == round(3 / 7, 4)
        assert measured[Metric.LATENCY] == 2.0
        assert measured[Metric.TOKENS] == 2.0
    assert found.task_set == "all tasks of run r"


def test_an_evaluation_of_all_has_runs_and_other_episodes_and_one_of_a_run_only_its_own(store: Store) -> None:
    seed_attempts(store, [Attempt("a", "m@v1", 0.0, key="k1"), Attempt("b", "m@v1", 1.0)])
    seed_run(
        store, [RunAttempt("r", "a", "m@v1", 1.0, key="k1"), RunAttempt("later", "a", "m@v1", 0.0, state="crashed")]
    )
    assert evaluate(store, name="test", model="m@v1").episodes == 3
    assert evaluate(store, name="test", model="m@v1", run_ids=["r"]).success.value == 1
    with pytest.raises(EvaluationError, match=r"no attempt of m@v3 .*attempts: r by m@v1"):
        evaluate(store, name="test", model="m@v3", run_ids=["r"])


def test_an_attempt_that_was_made_again_counts_once(store: Store) -> None:
    seed_attempts(store, [Attempt("a", "m@v1", None, key="first"), Attempt("a", "m@v1", 1.0, key="again", number=1)])
    seed_run(store, [RunAttempt("r", "a", "m@v1", 1.0, key="again", interrupted=("first",))])
    found = evaluate(store, name="test", model="m@v1")
    assert (found.episodes, found.states) == (1, {"scored": 1})


def test_an_attempt_that_another_version_answered_is_left_out(store: Store) -> None:
    seed_attempts(store, [Attempt("a", "m@v2", 1.0, key="k1"), Attempt("b", "m@v1", 1.0, key="k2")])
    seed_run(store, [RunAttempt("r", "a", "m@v1", 1.0, key="k1"), RunAttempt("r", "b", "m@v1", 1.0, key="k2")])
    found = evaluate(store, name="test", model="m@v1", run_ids=["r"])
    assert (found.left_out, found.episodes) == ({"other_version": 1}, 1)


def test_pass_at_k_counts_attempts_of_one_task_together(store: Store) -> None:
    outcomes = {"a": "1000", "b": "1111", "c": "0000"}
    rows = [
        RunAttempt("r", task, "m@v1", float(digit), number=number)
        for task, digits in outcomes.items()
        for number, digit in enumerate(digits, 1)
    ]
    seed_run(store, rows)
    measured = figures(store, evaluate(store, name="test", model="m@v1"))
    assert {name: value for name, value in measured.items() if name.startswith("pass@")} == {
        "pass@2": round((0.5 + 1 + 0) / 3, 4),
        "pass@4": round((1 + 1 + 0) / 3, 4),
    }
    assert measured[Metric.SUCCESS] == round(5 / 12, 4)


def test_errors_are_figures_by_class_and_versions_are_compared_on_pairs(store: Store) -> None:
    for model, failing in (("m@v1", ("a", "b")), ("m@v2", ("a",))):
        seed_attempts(
            store,
            [
                Attempt(task, model, float(task not in failing), errors=("tool_raised",) if task in failing else ())
                for task in "abcd"
            ],
        )
        evaluate(store, name="test", model=model)
    found = compare(store, "test:m@v1", "test:m@v2")
    changes = {figure.name: figure for figure in found.figures}
    assert changes["error:tool_raised"].interval.value == -0.25
    assert changes[Metric.ERRORS].interval.value == -0.25
    assert changes[Metric.SUCCESS].interval == found.success
    assert (found.success.value, changes[Metric.SUCCESS].tasks) == (0.25, 4)
    assert changes[Metric.STEPS].interval.value == 0


def test_calls_are_compared_with_reference_calls(store: Store) -> None:
    seed_attempts(
        store,
        [
            Attempt("a", "m@v1", 1.0, tools=("lookup", "calculate")),
            Attempt("b", "m@v1", 0.0, tools=("calendar", "lookup", "lookup")),
            Attempt("c", "m@v1", 1.0, tools=("lookup",)),
            Attempt("d", "m@v1", None, tools=("lookup", "calculate")),
        ],
    )
    calls: list[Any] = [{"name": "lookup", "arguments": {}}, {"name": "calculate"}]
    references = reference_calls_of(Task(task, {"reference_calls": calls}, task) for task in ("a", "b", "d"))
    found = evaluate(store, name="test", model="m@v1", references=references)
    rows = load_episodes(store, found).select("task_id", "tool_selection", "plan_success", "step_efficiency").rows()
    assert rows == [("a", 1, 1, 1), ("b", pytest.approx(1 / 3), 0, 0), ("c", None, None, None), ("d", 0, 0, 0)]
    by_name = {figure.name: figure for figure in load_figures(store, found)}
    assert by_name[Metric.PLAN_SUCCESS].tasks == 3
    assert by_name[Metric.PLAN_SUCCESS].interval.value == pytest.approx(1 / 3)


def test_tasks_of_the_training_do_not_count_unless_told_otherwise(store: Store) -> None:
    seed_attempts(
        store, [Attempt("train-1", "m@v2", 1.0), Attempt("train-2", "m@v2", 1.0), Attempt("new", "m@v2", 0.0)]
    )
    trained = TrainedTasks(ids=frozenset({"train-1", "train-2"}))
    found = evaluate(store, name="test", model="m@v2", trained=trained)
    assert (found.left_out, found.tasks, found.success.value) == ({"training_task": 2}, 1, 0)
    allowed = evaluate(store, name="test", model="m@v2", trained=trained, allow_training_tasks=True)
    assert (allowed.left_out, allowed.tasks, allowed.training_tasks) == ({}, 3, 2)
    assert load_episodes(store, allowed).filter(pl.col("is_training_task"))["task_id"].to_list() == [
        "train-1", "train-2",
    ]  # fmt: skip
    with pytest.raises(EvaluationError, match=r"left out: training_task 2 \(train-1, train-2\)") as caught:
        evaluate(store, name="test", model="m@v2", trained=trained, task_prefix="train-")
    assert "--allow-training-tasks" in caught.value.next_step


def registered(data_dir: DataDir, tiny_model: Path, *episode_ids: str) -> None:
    """``m@v2`` is trained on the episodes, from ``m@v1``."""
    registry = Registry(data_dir)
    registry.add("m", tiny_model)
    registry.add("m", tiny_model, parent="m@v1")
    with ControlDatabase(ControlPaths.of(data_dir)).write() as session:
        row = session.get(ModelVersionRow, ("m", 2))
        assert row is not None
        row.job_id = "job-1"
    folder = data_dir.jobs / "job-1"
    folder.mkdir(parents=True)
    manifest: dict[str, object] = {
        "job_id": "job-1", "kind": "sft", "created_at": "2026-11-01T00:00:00Z", "base": "m@v1", "query": "",
        "query_parameters": {}, "rows": {"accepted": 1, "rejected": {}}, "episodes": {"accepted": 1, "rejected": {}},
        "groups": {"accepted": 0, "rejected": {}}, "prompt_groups": 0, "temperature": None, "longest_prompt_tokens": 1,
        "longest_response_tokens": 1, "longest_row_tokens": 1, "mean_reward": None, "data_sha256": "gone",
        "pinned": [{"episode_id": episode_id, "revision": REVISION} for episode_id in episode_ids],
    }  # fmt: skip
    (folder / MANIFEST_NAME).write_text(json.dumps(manifest))


def test_tasks_of_the_training_are_recognised_by_id_by_content_and_by_their_first_messages(
    store: Store, data_dir: DataDir, tiny_model: Path
) -> None:
    trained = [
        Attempt("by id", "m@v1", 1.0, prompt="begin"),
        Attempt("by record", "m@v1", 1.0, key="k1", prompt="begin"),
        Attempt("by words", "m@v1", 1.0, prompt="What is 1 + 1?"),
    ]
    seed_attempts(store, trained)
    seed_run(store, [RunAttempt("collect", "by record", "m@v1", 1.0, key="k1", digest="d1")])
    registered(data_dir, tiny_model, *(attempt.episode_id for attempt in trained))
    known = trained_tasks(store, data_dir, "m@v2")
    assert known.ids == {"by id", "by record", "by words"}
    assert known.digests == {"d1"}
    assert len(known.prompts) == 1  # "begin" belongs to two tasks, so it says nothing

    seed_attempts(
        store,
        [
            Attempt("by id", "m@v2", 1.0, prompt="anything"),
            Attempt("renamed", "m@v2", 1.0, key="k2", prompt="begin"),
            Attempt("same words", "m@v2", 1.0, prompt="What is 1 + 1?"),
            Attempt("new", "m@v2", 0.0, prompt="What is 2 + 2?"),
        ],
    )
    seed_run(store, [RunAttempt("test", "renamed", "m@v2", 1.0, key="k2", digest="d1")])
    found = evaluate(store, name="test", model="m@v2", trained=known)
    assert found.left_out == {"training_task": 3}
    assert load_episodes(store, found).filter(pl.col("left_out") == "")["task_id"].to_list() == ["new"]
    assert trained_tasks(store, data_dir, "m@v1") == NOTHING_TRAINED
    assert trained_tasks(store, data_dir, "never-registered") == NOTHING_TRAINED
