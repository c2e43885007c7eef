import itertools
import json
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanloop.evaluation.results import (
    NOTHING_TRAINED,
    EpisodePair,
    ErrorUse,
    EvaluationError,
    ToolUse,
    bootstrap,
    compare,
    load_episodes,
    load_errors,
    load_evaluation,
    load_evaluations,
    load_tools,
)
from spanloop.evaluation.results import evaluate as evaluate_version
from spanloop.evaluation.results.bootstrap import Interval, bootstrap_mean
from spanloop.foundation.errors import ConfigurationError, StoreError
from spanloop.store import Store

from ...training.evaluation_seeding import Attempt, seed_attempts
from ...training.training_seeding import REVISION, STARTED_AT

evaluate = partial(evaluate_version, trained=NOTHING_TRAINED)


def attempts(model: str, good: int, tasks: int = 20, *, prefix: str = "test-") -> list[Attempt]:
    """The first ``good`` of ``tasks`` succeed; the others fail by a tool call that went wrong."""
    names = [f"{prefix}{number:02}" for number in range(tasks)]
    failed = {"tools": ("lookup", "!calculate"), "errors": ("tool_raised",)}
    return [Attempt(task, model, 1.0) for task in names[:good]] + [
        Attempt(task, model, 0.0, tools=failed["tools"], errors=failed["errors"]) for task in names[good:]
    ]


def test_an_evaluation_says_how_often_its_tasks_succeed(store: Store) -> None:
    seed_attempts(store, [*attempts("m@v1", 5), *attempts("m@v1", 20, prefix="train-"), *attempts("m@v2", 20)])
    found = evaluate(store, name="test", model="m@v1", task_prefix="test-", seed=3)
    assert (found.evaluation_id, found.episodes, found.tasks, found.left_out) == ("test:m@v1", 20, 20, {})
    assert found.success.value == found.reward.value == 0.25
    assert 0.05 <= found.success.low < 0.25 < found.success.high <= 0.5
    assert (found.level, found.resamples, found.seed, found.converter_version) == (0.95, 10_000, 3, "test")
    assert found.task_set == "all tasks that start with test-"
    assert json.loads(found.parameters) == {
        "model": "m@v1", "task_prefix": "test-", "task_ids": [], "run_ids": [], "since": None,
        "allow_training_tasks": False, "reward_floor": 0.0,
    }  # fmt: skip
    assert found.started_at == STARTED_AT
    assert load_evaluations(store) == [found] == [load_evaluation(store, "test:m@v1")]


def test_the_interval_is_that_of_the_binomial_where_both_are_known() -> None:
    found = bootstrap_mean([1.0] * 60 + [0.0] * 140, seed=0)
    spread = 1.96 * (0.3 * 0.7 / 200) ** 0.5
    assert found.value == pytest.approx(0.3)
    assert (found.low, found.high) == pytest.approx((0.3 - spread, 0.3 + spread), abs=0.006)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(-1, 1), min_size=1, max_size=40), st.integers(0, 1000))
def test_an_interval_holds_the_mean_and_lies_among_the_values(values: list[float], seed: int) -> None:
    found = bootstrap_mean(values, seed=seed)
    assert found == bootstrap_mean(values, seed=seed)
    assert found.value == pytest.approx(float(np.mean(values)))
    assert min(values) - 1e-9 <= found.low <= found.high <= max(values) + 1e-9


def test_how_many_are_drawn_at_once_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [float(number % 3) for number in range(50)]
    at_once = bootstrap_mean(values, seed=7)
    monkeypatch.setattr(bootstrap, "_MAX_INDICES", 3_333)
    assert bootstrap_mean(values, seed=7) == at_once


def test_tasks_weigh_the_same_and_their_attempts_stay_together(store: Store) -> None:
    often = [Attempt("a", "m@v1", 1.0, number=number) for number in range(9)]
    seed_attempts(store, [*often, Attempt("b", "m@v1", 0.0)])
    found = evaluate(store, name="test", model="m@v1")
    assert (found.episodes, found.tasks) == (10, 2)
    # two tasks: a quarter of the resamples has only one of them
    assert found.success == Interval(0.5, 0.0, 1.0)


def test_without_a_task_id_equal_beginnings_are_one_task(store: Store) -> None:
    seed_attempts(store, attempts("m@v1", 5))
    filters: dict[str, Any] = {"model": "m@v1", "task_ids": [], "task_prefix": "", "since": STARTED_AT, "run_ids": []}
    frame = store.query("evaluation_source", **filters)
    nameless = [Attempt("", "m@v3", 1.0, number=number) for number in range(2)]
    seed_attempts(store, nameless)
    assert frame["task_id"].to_list() == [f"test-{number:02}" for number in range(20)]
    assert evaluate(store, name="test", model="m@v3").tasks == 1


def test_an_attempt_without_a_score_is_a_failure_and_says_why(store: Store) -> None:
    odd = [
        Attempt("test-90", "m@v1", None),
        Attempt("test-91", "m@v1", None, has_ended=False),
        Attempt("test-92", "m@v1", None, has_ended=False),
        Attempt("test-94", "m@v1", 0.0, has_ended=False),
    ]
    seed_attempts(store, [*attempts("m@v1", 6, 6), *odd])
    found = evaluate(store, name="test", model="m@v1")
    assert (found.episodes, found.left_out, found.training_tasks) == (10, {}, 0)
    assert found.states == {"incomplete": 2, "scored": 7, "unscored": 1}
    assert found.success.value == found.reward.value == 0.6
    states = dict(load_episodes(store, found).select("task_id", "state").iter_rows())
    assert [states[task] for task in ("test-00", "test-90", "test-91", "test-94")] == [
        "scored", "unscored", "incomplete", "scored",
    ]  # fmt: skip
    lower = evaluate(store, name="test", model="m@v1", reward_floor=-1.0)
    assert lower.reward.value == pytest.approx(0.3)


def test_what_does_not_count_is_kept_with_the_reason(store: Store) -> None:
    odd = [Attempt("test-93", "m@v1", 1.0, other_model="m@v2")]
    seed_attempts(store, [*attempts("m@v1", 5, 10), *odd])
    found = evaluate(store, name="test", model="m@v1")
    assert (found.left_out, found.episodes, found.tasks) == ({"other_version": 1}, 10, 10)
    stored = load_episodes(store, found)
    assert stored.height == 11
    kept = dict(stored.filter(pl.col("left_out") != "").select("task_id", "left_out").iter_rows())
    assert kept == {"test-93": "other_version"}


def test_only_current_revisions_count(store: Store) -> None:
    seed_attempts(store, attempts("m@v1", 0, 10))
    seed_attempts(store, attempts("m@v1", 10, 10), revision=REVISION + 1)
    found = evaluate(store, name="test", model="m@v1")
    assert (found.success.value, found.episodes) == (1.0, 10)
    assert load_errors(store, found) == ()
    assert load_tools(store, found) == (ToolUse("lookup", 10, 0, 10, 10),)


@pytest.mark.parametrize(
    ("filters", "tasks"),
    [
        ({"task_ids": ["test-01", "test-02", "elsewhere"]}, 2),
        ({"task_prefix": "test-1"}, 10),
        ({"since": STARTED_AT + timedelta(seconds=1)}, 1),
        ({"task_prefix": "test-9", "task_ids": ["test-99"]}, 1),
    ],
)
def test_filters(store: Store, filters: dict[str, object], tasks: int) -> None:
    seed_attempts(store, [*attempts("m@v1", 5), Attempt("test-99", "m@v1", 1.0, number=5)])
    assert evaluate(store, name="test", model="m@v1", **filters).tasks == tasks  # type: ignore[arg-type]


def test_evaluating_again_replaces(store: Store) -> None:
    seed_attempts(store, attempts("m@v1", 5))
    first = evaluate(store, name="test", model="m@v1")
    other = evaluate(store, name="other", model="m@v1", task_ids=["test-00"])
    seed_attempts(store, [Attempt("test-00", "m@v1", 0.0, number=1)])
    second = evaluate(store, name="test", model="m@v1")
    assert second.revision > first.revision
    assert load_evaluations(store) == [other, second]
    assert load_episodes(store, second).height == 21


def test_a_clock_that_was_set_back_does_not_hide_the_newer_one(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    seed_attempts(store, attempts("m@v1", 5))
    first = evaluate(store, name="test", model="m@v1")

    class Earlier(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
            assert tz is UTC
            return datetime(2020, 1, 1, tzinfo=UTC)

    monkeypatch.setattr("spanloop.evaluation.results.measure.datetime", Earlier)
    assert evaluate(store, name="test", model="m@v1").revision == first.revision + 1
    assert load_evaluation(store, "test:m@v1").created_at.year == 2020


def test_an_insert_that_fails_leaves_the_one_before(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    seed_attempts(store, attempts("m@v1", 5))
    first = evaluate(store, name="test", model="m@v1")
    seed_attempts(store, [Attempt("test-00", "m@v1", 0.0, number=1)])
    insert = Store.insert

    def failing(self: Store, table: str, frame: pl.DataFrame, *, token: str = "") -> int:
        if table == "evaluations":
            raise StoreError("out of reach")
        return insert(self, table, frame, token=token)

    monkeypatch.setattr(Store, "insert", failing)
    with pytest.raises(StoreError, match="out of reach"):
        evaluate(store, name="test", model="m@v1")
    assert load_evaluations(store) == [first]
    assert load_episodes(store, first).height == 20


def test_nothing_to_evaluate_says_what_there_is(store: Store) -> None:
    seed_attempts(store, [*attempts("m@v1", 5), Attempt("test-00", "m@v2", 1.0, other_model="m@v1")])
    with pytest.raises(EvaluationError, match=r"no episode of m@v3 \(all tasks\); .* episodes: m@v1, m@v2"):
        evaluate(store, name="test", model="m@v3")
    with pytest.raises(EvaluationError, match=r"No attempt of m@v2 counts.*left out: other_version 1"):
        evaluate(store, name="test", model="m@v2")
    assert load_evaluations(store) == []


def test_what_cannot_be_asked_is_refused(store: Store) -> None:
    with pytest.raises(ConfigurationError, match="name of an evaluation"):
        evaluate(store, name="a:b", model="m@v1")
    with pytest.raises(ConfigurationError, match="expected a time with its zone"):
        evaluate(store, name="a", model="m@v1", since=datetime(2026, 1, 1))  # noqa: DTZ001 - the point


def test_tools_and_errors_are_counted_by_episode(store: Store) -> None:
    seed_attempts(
        store,
        [
            Attempt("a", "m@v1", 1.0, tools=("lookup", "lookup", "!calculate", "calculate")),
            Attempt("b", "m@v1", 0.0, tools=("!calculate", "!calculate"), errors=("tool_raised", "tool_raised")),
            Attempt("c", "m@v1", 0.0, tools=(), errors=("wrong_answer", "~tool_raised")),
            Attempt("d", "m@v1", 0.0, errors=("unknown_tool", "wrong_answer")),
            Attempt("e", "m@v1", 1.0, tools=("calendar",), errors=("wrong_answer",), other_model="m@v2"),
        ],
    )
    found = evaluate(store, name="test", model="m@v1")
    assert load_tools(store, found) == (ToolUse("calculate", 4, 3, 2, 1), ToolUse("lookup", 3, 0, 2, 1))
    assert load_errors(store, found) == (
        ErrorUse("wrong_answer", 2, 1),
        ErrorUse("tool_raised", 1, 1),
        ErrorUse("unknown_tool", 1, 1),
    )
    assert load_tools(store, found)[0].success == 0.5


def test_a_comparison_is_paired_by_task(store: Store) -> None:
    seed_attempts(store, [*attempts("m@v1", 5), *attempts("m@v2", 15), Attempt("test-77", "m@v2", 1.0)])
    for model in ("m@v1", "m@v2"):
        evaluate(store, name="test", model=model)
    found = compare(store, "test:m@v1", "test:m@v2")
    assert (found.before.model, found.after.model, found.tasks) == ("m@v1", "m@v2", 20)
    assert found.success.value == found.reward.value == 0.5
    assert 0.25 <= found.success.low < 0.5 < found.success.high <= 0.75
    assert found.success.excludes_zero
    assert found.mended == tuple(
        EpisodePair(f"test-{number:02}", f"m@v1-test-{number:02}-0", f"m@v2-test-{number:02}-0")
        for number in range(5, 15)
    )
    assert found.broken == ()
    calculate, lookup = found.tools
    assert (calculate.tool, calculate.before.failed_calls, calculate.after.failed_calls) == ("calculate", 15, 5)
    assert (lookup.before.success, lookup.after.success) == (0.25, 16 / 21)
    (error,) = found.errors
    assert (error.error_class, error.before.episodes, error.after.episodes) == ("tool_raised", 15, 5)
    back = compare(store, "test:m@v2", "test:m@v1")
    assert back.success.value == -found.success.value
    assert [pair.task_id for pair in back.broken] == [pair.task_id for pair in found.mended]


def test_a_paired_difference_is_surer_than_two_intervals(store: Store) -> None:
    seed_attempts(store, [*attempts("m@v1", 8), *attempts("m@v2", 13)])
    before, after = (evaluate(store, name="test", model=model) for model in ("m@v1", "m@v2"))
    assert before.success.high > after.success.low
    assert compare(store, "test:m@v1", "test:m@v2").success.excludes_zero


def test_of_several_attempts_the_pair_is_one_that_failed_and_one_that_succeeds(store: Store) -> None:
    outcomes = {"m@v1": {"a": "10", "b": "11", "c": "00"}, "m@v2": {"a": "11", "b": "01", "c": "00"}}
    seed_attempts(
        store,
        [
            Attempt(task, model, float(digit), number=number)
            for (model, tasks) in outcomes.items()
            for (task, digits) in tasks.items()
            for number, digit in enumerate(digits)
        ],
    )
    for model in outcomes:
        evaluate(store, name="test", model=model)
    found = compare(store, "test:m@v1", "test:m@v2")
    assert found.mended == (EpisodePair("a", "m@v1-a-1", "m@v2-a-0"),)
    assert found.broken == (EpisodePair("b", "m@v1-b-0", "m@v2-b-0"),)


def test_what_cannot_be_compared_is_refused(store: Store) -> None:
    seed_attempts(store, [*attempts("m@v1", 5), *attempts("m@v2", 5, prefix="train-")])
    for model in ("m@v1", "m@v2"):
        evaluate(store, name="test", model=model)
    with pytest.raises(EvaluationError, match="no task in common"):
        compare(store, "test:m@v1", "test:m@v2")
    for wrong in ("test:m@v9", ""):
        with pytest.raises(EvaluationError, match="stored: test:m@v1, test:m@v2"):
            compare(store, "test:m@v1", wrong)


def test_a_difference_of_tasks_that_all_changed_alike_has_no_width() -> None:
    for value in itertools.chain([0.0], [0.5]):
        assert bootstrap_mean([value] * 9, seed=1) == Interval(value, value, value)


def test_an_interval_has_one_form_as_text() -> None:
    success, change = Interval(0.34, 0.28, 0.404), Interval(-0.02, -0.1, 0.06)
    assert success.text(".0f", scale=100, unit=" %") == "34 % [28, 40]"
    assert change.text("+.3g") == "-0.02 [-0.1, +0.06]"
    assert success.range_text(".1f", scale=100, unit=" %") == "28.0 % to 40.4 %"
    assert change.range_text("+.1f", scale=100) == "-10.0 to +6.0"
