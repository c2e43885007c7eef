import math
from statistics import fmean, stdev

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanloop.converters.credit import (
    CREDIT_METHODS,
    StepFault,
    assign,
    attributed_weights,
    broadcast,
    call_advantages,
    discounted_returns,
    group_advantages,
    leave_one_out,
    step_group_advantages,
)
from spanloop.converters.enums import FaultOwner

from .converters_world import World, exported_transitions, loop, trace_id

NUMBERS = st.floats(-100, 100, allow_nan=False).map(lambda value: round(value, 3))
REWARDS = st.lists(NUMBERS, max_size=12)


@given(REWARDS, st.floats(0, 1))
def test_returns_fulfil_their_recursion(rewards: list[float], gamma: float) -> None:
    found = discounted_returns(rewards, gamma)
    assert len(found) == len(rewards)
    for index, value in enumerate(found):
        following = found[index + 1] if index + 1 < len(found) else 0.0
        assert value == pytest.approx(rewards[index] + gamma * following)


@given(NUMBERS, st.integers(1, 20))
def test_a_reward_at_the_end_without_discount_is_a_broadcast(reward: float, steps: int) -> None:
    assert discounted_returns([0.0] * (steps - 1) + [reward], 1.0) == broadcast(reward, steps)


@pytest.mark.parametrize("gamma", [-0.1, 1.1, math.nan])
def test_a_discount_outside_its_range_is_refused(gamma: float) -> None:
    with pytest.raises(ValueError, match="expected a number from 0 to 1"):
        discounted_returns([1.0], gamma)


@given(st.lists(NUMBERS, min_size=2, max_size=12))
def test_group_advantages_are_centred_scaled_and_keep_the_order(rewards: list[float]) -> None:
    plain = group_advantages(rewards, by_deviation=False)
    scaled = group_advantages(rewards)
    assert math.fsum(plain) == pytest.approx(0, abs=1e-6)
    assert math.fsum(scaled) == pytest.approx(0, abs=1e-6)
    if stdev(rewards) > 0.01:
        assert stdev(scaled) == pytest.approx(1, abs=1e-3)
    for one in range(len(rewards)):
        assert plain[one] == pytest.approx(rewards[one] - fmean(rewards), abs=1e-6)
        assert all(scaled[one] >= scaled[two] for two in range(len(rewards)) if rewards[one] >= rewards[two])


@given(st.lists(NUMBERS, min_size=2, max_size=12))
def test_leaving_one_out_stretches_the_plain_advantages(rewards: list[float]) -> None:
    stretch = len(rewards) / (len(rewards) - 1)
    expected = [stretch * value for value in group_advantages(rewards, by_deviation=False)]
    assert leave_one_out(rewards) == pytest.approx(expected, abs=1e-6)


GROUPS = st.lists(st.lists(NUMBERS, min_size=1, max_size=5), max_size=6)


@given(GROUPS)
def test_with_ended_episodes_the_advantages_at_a_call_number_sum_to_zero(returns: list[list[float]]) -> None:
    found = call_advantages(returns)
    for number in range(max(map(len, returns), default=0)):
        reached = [episode[number] for episode in returns if len(episode) > number]
        mean = math.fsum(reached) / len(returns)
        values = [episode[number] for episode in found if len(episode) > number]
        if len(returns) > 1:
            assert math.fsum([*values, -mean * (len(returns) - len(reached))]) == pytest.approx(0, abs=1e-6)


@given(GROUPS)
def test_the_others_of_a_call_number_stretch_its_advantages(returns: list[list[float]]) -> None:
    plain, over_others = call_advantages(returns), call_advantages(returns, over_others=True)
    assert [len(each) for each in plain] == [len(each) for each in returns]
    stretch = len(returns) / max(len(returns) - 1, 1)
    for one, other in zip(plain, over_others, strict=True):
        assert other == pytest.approx([stretch * value for value in one], abs=1e-6)


@given(REWARDS)
def test_episodes_of_one_call_are_compared_by_their_rewards(rewards: list[float]) -> None:
    single = [[reward] for reward in rewards]
    assert [value for (value,) in call_advantages(single)] == group_advantages(rewards, by_deviation=False)
    assert [value for (value,) in call_advantages(single, over_others=True)] == leave_one_out(rewards)


@given(NUMBERS)
def test_a_group_of_one_has_no_advantage(reward: float) -> None:
    assert group_advantages([reward]) == leave_one_out([reward]) == [0.0]
    assert group_advantages([]) == leave_one_out([]) == []


STEP_FAULTS = st.dictionaries(
    st.integers(0, 7),
    st.lists(
        st.builds(
            StepFault, st.sampled_from(["loop", "timeout", "wrong_answer"]), st.sampled_from(FaultOwner), st.booleans()
        ),
        min_size=1,
        max_size=3,
    ),
)


@given(NUMBERS, STEP_FAULTS, st.integers(8, 80))
def test_a_weight_changes_neither_an_advantages_sign_nor_its_scale(
    advantage: float, faults: dict[int, list[StepFault]], steps: int
) -> None:
    weights = attributed_weights(advantage, faults)
    credited = [advantage * weights.at(step) for step in range(steps)]
    assert all(credit in {0.0, advantage} for credit in credited)
    others = {FaultOwner.TOOL, FaultOwner.ENVIRONMENT, FaultOwner.HARNESS, FaultOwner.UNKNOWN}
    for step, here in faults.items():
        if any(fault.owner in others for fault in here):
            assert weights.at(step) == 0


BAD_CALL = StepFault("invalid_arguments", FaultOwner.POLICY)
RECOVERED = BAD_CALL._replace(is_recovered=True)
WRONG = StepFault("wrong_answer", FaultOwner.POLICY)
TOOL = StepFault("tool_error", FaultOwner.TOOL)
USER = StepFault("invalid_user_input", FaultOwner.USER)


@pytest.mark.parametrize(
    ("advantage", "faults", "expected"),
    [
        (-0.5, {}, [1, 1, 1]),
        (0.5, {}, [1, 1, 1]),
        (-0.5, {1: [BAD_CALL]}, [0, 1, 0]),
        (-0.5, {0: [RECOVERED], 1: [BAD_CALL]}, [1, 1, 0]),
        (-0.5, {1: [RECOVERED]}, [1, 1, 1]),
        (-0.5, {1: [RECOVERED], 2: [WRONG]}, [1, 1, 1]),
        (-0.5, {1: [TOOL]}, [1, 0, 1]),
        (-0.5, {0: [BAD_CALL], 1: [TOOL]}, [1, 0, 0]),
        (-0.5, {1: [BAD_CALL, TOOL]}, [1, 0, 1]),
        (-0.5, {1: [USER]}, [1, 1, 1]),
        (0.5, {1: [RECOVERED]}, [1, 0, 1]),
        (0.5, {1: [BAD_CALL], 2: [WRONG]}, [1, 0, 1]),
        (0.5, {0: [TOOL]}, [0, 1, 1]),
        (0.0, {1: [BAD_CALL]}, [1, 1, 1]),
    ],
)
def test_the_policy_pays_at_the_step_of_its_own_mistake(
    advantage: float, faults: dict[int, list[StepFault]], expected: list[float]
) -> None:
    weights = attributed_weights(advantage, faults)
    assert [weights.at(step) for step in range(3)] == expected


@given(st.lists(st.tuples(st.lists(st.sampled_from("abc"), min_size=1, max_size=4), NUMBERS), min_size=1, max_size=5))
def test_step_groups_compare_equal_states_and_nothing_else(episodes: list[tuple[list[str], float]]) -> None:
    states = [each for each, _ in episodes]
    rewards = [[0.0] * (len(each) - 1) + [reward] for each, reward in episodes]
    returns = [discounted_returns(each, 0.9) for each in rewards]
    whole = group_advantages([reward for _, reward in episodes])
    found = step_group_advantages(states, rewards, gamma_returns=returns)
    alone = step_group_advantages(states, rewards, gamma_returns=returns, weight=0.0)
    assert alone == [[advantage] * len(each) for advantage, each in zip(whole, states, strict=True)]
    for state in "abc":
        shares = [found[i][t] - whole[i] for i, each in enumerate(states) for t in range(len(each)) if each[t] == state]
        assert math.fsum(shares) == pytest.approx(0, abs=1e-6)
        if len(shares) == 1:
            assert shares == [pytest.approx(0, abs=1e-9)]


def transitions() -> pl.DataFrame:
    world = World()
    for name, reward in (("a", 1.0), ("b", 0.0), ("c", None)):
        loop(world, name, trace=trace_id(name), attributes={"spanloop.task.id": "task"})
        if reward is not None:
            world.score(reward, trace_id=trace_id(name))
    return exported_transitions(world.convert())


@pytest.mark.parametrize("method", sorted(CREDIT_METHODS))
def test_every_method_gives_each_scored_step_a_credit_and_keeps_the_rows(method: str) -> None:
    rows = transitions()
    found = assign(rows, CREDIT_METHODS[method], gamma=0.5)
    assert found.drop("credit", "is_credit_masked").equals(rows)
    assert (found["credit"].is_null() == rows["reward"].is_null()).all()
    assert found["credit"].drop_nulls().is_finite().all()
    again = assign(rows.reverse(), CREDIT_METHODS[method], gamma=0.5).reverse()
    assert again.equals(found)


def test_methods_give_what_their_formulas_say() -> None:
    rows = transitions().filter(pl.col("reward").is_not_null()).sort("reward", "step", descending=[True, False])
    by_method = {name: assign(rows, CREDIT_METHODS[name], gamma=0.5)["credit"].to_list() for name in CREDIT_METHODS}
    assert by_method["broadcast"] == [1.0, 1.0, 1.0, 0.0, 0.0, 0.0]
    assert by_method["returns"] == [0.25, 0.5, 1.0, 0.0, 0.0, 0.0]
    assert by_method["leave-one-out"] == [1.0, 1.0, 1.0, -1.0, -1.0, -1.0]
    assert by_method["group"] == pytest.approx([math.sqrt(0.5)] * 3 + [-math.sqrt(0.5)] * 3, abs=1e-5)
    assert by_method["attributed"] == pytest.approx(by_method["group"], abs=1e-5)
    assert by_method["step-groups"][0] > by_method["step-groups"][1] > 0
