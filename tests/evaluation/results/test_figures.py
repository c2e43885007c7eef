import itertools
import json
from math import comb
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanloop.evaluation.results.bootstrap import bootstrap_mean, bootstrap_means
from spanloop.evaluation.results.figures import pass_at_k
from spanloop.evaluation.results.reference_calls import ToolCall, compare_calls, parse_calls, reference_calls_of
from spanloop.evaluation.tasks import Task
from spanloop.foundation.errors import ConfigurationError

NAMES = st.sampled_from(("a", "b", "c"))
CALLS = st.lists(st.builds(ToolCall, NAMES, st.dictionaries(NAMES, st.integers(0, 2), max_size=2)), max_size=6)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.booleans(), min_size=1, max_size=7), st.data())
def test_pass_at_k_is_the_share_of_all_choices_with_a_success(outcomes: list[bool], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(outcomes)))
    choices = list(itertools.combinations(outcomes, k))
    assert len(choices) == comb(len(outcomes), k)
    assert pass_at_k(len(outcomes), sum(outcomes), k) == pytest.approx(sum(map(any, choices)) / len(choices))


def test_columns_share_their_draws_and_tasks_without_a_value_count_for_the_others() -> None:
    values = np.array([[1.0, 2.0, np.nan], [0.0, 0.0, 4.0], [0.0, 0.0, 4.0], [1.0, 2.0, 4.0]])
    first, doubled, partial = bootstrap_means(values, seed=3)
    assert first == bootstrap_mean(values[:, 0].tolist(), seed=3)
    assert doubled == tuple(2 * end for end in first)
    assert partial == (4.0, 4.0, 4.0)


@settings(max_examples=60, deadline=None)
@given(CALLS, CALLS, st.booleans())
def test_call_figures_are_shares_and_the_reference_itself_has_all_of_them(
    calls: list[ToolCall],
    reference: list[ToolCall],
    is_success: bool,  # noqa: FBT001
) -> None:
    found = compare_calls(calls, reference, is_success=is_success)
    assert all(0 <= value <= 1 for value in found)
    assert compare_calls(reference, reference, is_success=is_success) == (1, 1, is_success)
    longer = compare_calls([*calls, ToolCall("other", {})], reference, is_success=is_success)
    assert longer.plan_success == found.plan_success
    assert longer.step_efficiency <= found.step_efficiency
    if reference:
        assert compare_calls((), reference, is_success=is_success) == (0, 0, is_success)


def test_a_plan_needs_its_calls_in_order_with_their_arguments() -> None:
    reference = [ToolCall("lookup", {"id": 7}), ToolCall("pay", {})]
    for calls, expected in (
        ([ToolCall("lookup", {"id": 7, "page": 1}), ToolCall("help", {}), ToolCall("pay", {"sum": 3})], 1),
        ([ToolCall("lookup", {"id": 8}), ToolCall("pay", {})], 0),
        ([ToolCall("pay", {}), ToolCall("lookup", {"id": 7})], 0),
        ([ToolCall("lookup", {"id": 7})], 0),
    ):
        assert compare_calls(calls, reference, is_success=True).plan_success == expected
    assert compare_calls([], [], is_success=True) == (1, 1, 1)


def test_reference_calls_are_read_from_tasks_in_both_spellings() -> None:
    openai: list[Any] = [{"type": "function", "function": {"name": "lookup", "arguments": '{"id": 7}'}}]
    plain: list[Any] = [{"name": "lookup", "arguments": {"id": 7}}]
    tasks = [Task("a", {"reference_calls": plain}, ""), Task("b", {"reference_calls": openai}, ""), Task("c", {}, "")]
    assert reference_calls_of(tasks) == {"a": (ToolCall("lookup", {"id": 7}),), "b": (ToolCall("lookup", {"id": 7}),)}
    assert reference_calls_of([Task("d", {"reference_calls": []}, "")]) == {"d": ()}
    assert parse_calls([json.dumps(plain[0]), "no JSON"]) == (ToolCall("lookup", {"id": 7}), ToolCall("", {}))


@pytest.mark.parametrize("wrong", ["lookup", [7], [{"arguments": {}}], {"name": "lookup"}])
def test_a_field_that_is_no_list_of_calls_is_named(wrong: object) -> None:
    with pytest.raises(ConfigurationError, match=r"reference_calls.*task 't'.*expected a list of calls"):
        reference_calls_of([Task("t", {"reference_calls": wrong}, "")])  # type: ignore[dict-item]
