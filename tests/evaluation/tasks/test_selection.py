"""Which tasks of a source are taken: splits, weights by type, pass rates."""

from collections import Counter
from itertools import chain
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanloop.evaluation.tasks import LeftOutReason, PassRates, Task, TaskSelection, content_digest
from spanloop.foundation.errors import ConfigurationError


def task(number: int, **fields: str) -> Task:
    content: dict[str, Any] = {"number": number, **fields}
    return Task(f"t{number}", content, content_digest(content))


TASKS = [task(number, type=("easy", "hard")[number % 2], split=("train", "test")[number < 20]) for number in range(100)]


def ids(selection: TaskSelection) -> list[str]:
    return [each.id for each in selection.choose(TASKS)]


def test_without_settings_all_tasks_are_taken_and_the_limit_takes_the_first() -> None:
    assert ids(TaskSelection()) == [each.id for each in TASKS]
    assert ids(TaskSelection(limit=3)) == ["t0", "t1", "t2"]


def test_a_split_is_named_by_a_field_or_made_by_shares() -> None:
    named = TaskSelection(split="test")
    assert ids(named) == [f"t{number}" for number in range(20)]
    assert named.left_out == {LeftOutReason.OTHER_SPLIT: 80}
    shares = {"train": 0.7, "dev": 0.1, "test": 0.2}
    parts = {name: ids(TaskSelection(split=name, shares=shares)) for name in shares}
    assert sorted(chain(*parts.values())) == sorted(each.id for each in TASKS)
    assert 55 <= len(parts["train"]) <= 85
    assert parts["test"] == ids(TaskSelection(split="test", shares=shares))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 5), st.integers(1, 60))
def test_a_draw_follows_the_weights_and_a_larger_one_holds_a_smaller_one(seed: int, limit: int) -> None:
    weights = {"easy": 1.0, "hard": 9.0}
    drawn = ids(TaskSelection(weights=weights, limit=limit, seed=seed))
    assert len(drawn) == limit
    assert drawn == sorted(drawn, key=lambda each: int(each[1:]))
    assert set(drawn) <= set(ids(TaskSelection(weights=weights, limit=limit + 5, seed=seed)))


def test_types_are_drawn_by_their_weights_and_one_without_a_weight_is_left_out() -> None:
    kinds = Counter[str]()
    for seed in range(100):
        selection = TaskSelection(weights={"easy": 1.0, "hard": 9.0}, limit=10, seed=seed)
        kinds.update(str(each.fields["type"]) for each in selection.choose(TASKS))
    assert 0.8 < kinds["hard"] / kinds.total() < 0.95
    none = TaskSelection(weights={"hard": 1.0})
    assert len(ids(none)) == 50
    assert none.left_out == {LeftOutReason.TYPE_WITHOUT_WEIGHT: 50}


def test_a_pass_rate_is_filtered_and_a_task_that_was_not_attempted_stays() -> None:
    selection = TaskSelection(pass_rates=PassRates({"t0": 0.0, "t1": 0.5, "t2": 1.0}, 0.1, 0.9), limit=2)
    assert ids(selection) == ["t1", "t3"]
    assert selection.left_out == {LeftOutReason.PASS_RATE: 2}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"split": "dev"}, "No task has a split of 'dev' .field 'split'.; there are: 'train', 'test'"),
        ({"weights": {"heard": 1.0}}, "No task has a type of 'heard' .field 'type'.; there are: 'easy', 'hard'"),
        ({"split": "dev", "shares": {"train": 1.0}}, "There is no split 'dev'; the splits are: train"),
        ({"split": "a", "shares": {"a": 0.8, "b": 0.3}}, "cannot be used"),
        ({"weights": {"easy": -1.0}}, "cannot be used"),
    ],
)
def test_a_split_or_type_that_no_task_has_is_one_error(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        ids(TaskSelection(**settings))  # type: ignore[arg-type]
