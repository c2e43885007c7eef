"""Credit ``process``: returns to go over the mean at the same call number."""

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanloop.training.dataset.rejections import Rejection
from spanloop.training.dataset.selection import Rules
from spanloop.training.recipes.choices import Credit

from ..call_reference import call_advantages
from ..selection_rows import row, rules, select

Row = dict[str, Any]
KINDS = ["dr_grpo", "rloo", "grpo", "gspo", "reinforce_plus_plus"]
NUMBERS = st.floats(-2, 2, allow_nan=False).map(lambda value: round(value, 3))
EPISODES = st.lists(st.tuples(NUMBERS, st.lists(st.none() | NUMBERS, min_size=1, max_size=5)), min_size=1, max_size=6)
"""The reward and the scores of the calls of each episode of a group."""


def calls(scores: list[float | None], first: int = 0, **changes: Any) -> Row:
    """A row of one token for each call."""
    count = len(scores)
    return {
        "response_token_ids": [4] * count,
        "loss_mask": [1] * count,
        "logprobs": [-0.5] * count,
        "first_step": first,
        "last_step": first + count - 1,
        "sampled_steps": list(range(first, first + count)),
        "sampled_starts": list(range(count)),
        "sampled_ends": list(range(1, count + 1)),
        "step_rewards": scores,
    } | changes


def process(kind: str = "dr_grpo", **changes: Any) -> Rules:
    settings: dict[str, Any] = {"credit": Credit.PROCESS} | changes
    return rules(kind, **settings)


def advantages(rows: list[Row], job: Rules) -> dict[str, list[float]]:
    return dict(select(rows, job).rows.select("trajectory_id", "advantages").iter_rows())


@pytest.mark.parametrize(
    ("credit", "kind", "better", "worse"),
    [
        (Credit.PROCESS, "dr_grpo", [0.25, 0.25], [-0.25]),
        (Credit.PROCESS, "rloo", [2 / 7, 2 / 7], [-2 / 7]),
        (Credit.PROCESS, "grpo", [0.957424, 0.957424], [-0.957424]),
        (Credit.PROCESS, "reinforce_plus_plus", [0.957427, 0.957427], [-0.957427]),
        (Credit.PROCESS_GRPO, "dr_grpo", [-1 / 6, -1 / 3], [1 / 6]),
        (Credit.PROCESS_GRPO, "rloo", [-2 / 11, -4 / 11], [2 / 11]),
        (Credit.PROCESS_GRPO, "grpo", [-0.677, -1.354001], [0.677]),
        (Credit.PROCESS_GRPO, "reinforce_plus_plus", [-0.677003, -1.354006], [0.677003]),
    ],
)
def test_an_episode_that_earns_more_in_more_calls_is_the_better_one(
    credit: Credit, kind: str, better: list[float], worse: list[float]
) -> None:
    rows = [row(f"short{number}", reward=1.0, is_scored=False, **calls([1.0])) for number in range(4)]
    rows += [row(f"long{number}", reward=0.75, is_scored=False, **calls([1.0, 0.5])) for number in range(4)]
    by_row = advantages(rows, process(kind, credit=credit))
    for number in range(4):
        assert by_row[f"long{number}/0"] == pytest.approx(better, abs=1e-6)
        assert by_row[f"short{number}/0"] == pytest.approx(worse, abs=1e-6)


def random_group(rng: random.Random, group: str, *, is_scored: bool) -> list[Row]:
    """Episodes of several rows, of which some are rejected, with masked calls and calls without a score."""
    rows: list[Row] = []
    for number in range(rng.randint(2, 7)):
        first, reward = 0, rng.uniform(-1, 1)
        for part in range(rng.randint(1, 3)):
            scores = [rng.choice([None, 0.0, rng.uniform(-1, 1)]) for _ in range(rng.randint(1, 4))]
            changes = {"loss_mask": [1] + [rng.choice([0, 1]) for _ in scores[1:]], "is_scored": is_scored}
            changes["is_trainable"] = part == 0 or rng.random() < 0.8
            rows.append(row(f"{group}{number}", group, reward, part, **calls(scores, first, **changes)))
            first += len(scores)
    return rows


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("gamma", [1.0, 0.7, 0.0])
def test_advantages_equal_the_numpy_reference(kind: str, gamma: float) -> None:
    rng = random.Random(str(kind))
    compared = 0
    for seed in range(6):
        rows = random_group(rng, "a", is_scored=seed % 2 == 0) + random_group(rng, "b", is_scored=seed % 2 == 0)
        by_row = advantages(rows, process(kind, gamma=gamma))
        groups = [rows] if kind == "reinforce_plus_plus" else [
            [each for each in rows if each["group_id"] == group] for group in "ab"
        ]  # fmt: skip
        for group in groups:
            episodes = list({each["episode_id"]: each for each in group}.values())
            expected = call_advantages(group, episodes, kind, gamma)
            for each in group:
                if each["is_trainable"]:
                    of_calls = [expected[each["episode_id"]][step] for step in each["sampled_steps"]]
                    values = np.array(of_calls) * each["loss_mask"]
                    np.testing.assert_allclose(by_row[each["trajectory_id"]], values, rtol=1e-6, atol=1e-6)
                    compared += 1
    assert compared > 40


def rows_of(episodes: list[tuple[float, list[float | None]]], order: list[int] | None = None) -> list[Row]:
    rows = [row(f"e{place}", reward=reward, **calls(scores)) for place, (reward, scores) in enumerate(episodes)]
    return [rows[place] for place in order or range(len(rows))]


@settings(max_examples=40, deadline=None)
@given(episodes=EPISODES, kind=st.sampled_from(KINDS), gamma=st.sampled_from([1.0, 0.5, 0.0]), data=st.data())
def test_advantages_are_finite_and_the_order_of_episodes_changes_nothing(
    episodes: list[tuple[float, list[float | None]]], kind: str, gamma: float, data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(len(episodes))))
    first, permuted = (advantages(rows_of(episodes, each), process(kind, gamma=gamma)) for each in (None, order))
    assert first == permuted
    assert np.isfinite([value for values in first.values() for value in values]).all()


@settings(max_examples=40, deadline=None)
@given(episodes=EPISODES, gamma=st.sampled_from([1.0, 0.5]))
def test_with_the_ended_episodes_the_advantages_at_a_call_number_sum_to_zero(
    episodes: list[tuple[float, list[float | None]]], gamma: float
) -> None:
    by_row = advantages(rows_of(episodes), process(gamma=gamma))
    if not by_row:
        return
    lengths = [len(scores) for _, scores in episodes]
    for number in range(max(lengths)):
        reached = [by_row[f"e{place}/0"][number] for place, length in enumerate(lengths) if length > number]
        returns = [
            following(*episodes[place], number, gamma) for place, length in enumerate(lengths) if length > number
        ]
        ended = -sum(returns) / len(episodes) * (len(episodes) - len(reached))
        assert sum(reached) + ended == pytest.approx(0, abs=1e-5)


def following(reward: float, scores: list[float | None], number: int, gamma: float) -> float:
    later = [score or 0.0 for score in scores[number:]]
    return sum(gamma**place * score for place, score in enumerate(later)) + gamma ** (len(later) - 1) * reward


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_number_that_one_episode_reaches_has_a_finite_advantage(kind: str) -> None:
    by_row = advantages(rows_of([(0.0, [1.0, None, 0.5]), (0.0, [1.0])]), process(kind))
    assert np.isfinite(by_row["e0/0"]).all()
    assert by_row["e0/0"][2] > 0


def test_the_reward_of_the_episode_follows_its_last_call() -> None:
    rows = rows_of([(1.0, [None, 0.5]), (0.0, [None, None])])
    assert advantages(rows, process()) == {"e0/0": [0.75, 0.75], "e1/0": [-0.75, -0.75]}
    assert advantages(rows, process(gamma=0.5)) == {"e0/0": [0.375, 0.75], "e1/0": [-0.375, -0.75]}
    assert advantages(rows, process(gamma=0.0)) == {"e0/0": [0.0, 0.75], "e1/0": [0.0, -0.75]}


@pytest.mark.parametrize(
    "change",
    [
        {"loss_mask": [0]},
        {"is_trainable": False, "untrainable_reason": "environment_fault"},
        {"response_token_ids": [4] * 101, "loss_mask": [1] * 101, "logprobs": [-0.5] * 101},
        {"sampling": ['{"top_p": "0.9"}']},
    ],
)
def test_a_call_that_is_not_trained_on_keeps_its_number_and_its_score(change: Row) -> None:
    def rows(change: Row) -> list[Row]:
        middle = row("a", reward=1.0, number=1, **calls([0.5], 1, **change))
        a = [row("a", reward=1.0, **calls([0.0])), middle, row("a", reward=1.0, number=2, **calls([1.0], 2))]
        return [*a, row("b", reward=0.0, **calls([1.0, 1.0])), row("b", reward=0.0, number=1, **calls([0.25], 2))]

    trained, changed = (advantages(rows(each), process()) for each in ({}, change))
    assert trained == {"a/0": [0.125], "a/1": [0.625], "a/2": [0.875], "b/0": [-0.125, -0.625], "b/1": [-0.875]}
    assert changed == {name: values for name, values in trained.items() if name != "a/1"}


def test_calls_of_several_agents_are_numbered_together() -> None:
    """The steps of a planner (0, 3) and of its helper (1, 2)."""
    spread = [
        row("a", reward=0.0, **calls([1.0, 2.0], sampled_steps=[0, 3], last_step=3)),
        row("a", reward=0.0, number=1, **calls([4.0, 8.0], 1)),
        row("b", reward=0.0, **calls([0.0])),
    ]
    returns = {"a/0": [15.0, 2.0], "a/1": [14.0, 10.0], "b/0": [0.0]}
    expected = {name: [value / 2 if name != "b/0" else -7.5 for value in values] for name, values in returns.items()}
    assert advantages(spread, process()) == expected


def test_a_row_without_the_positions_of_its_steps_is_one_call() -> None:
    unknown: Row = {"sampled_steps": [], "sampled_starts": [], "sampled_ends": [], "step_rewards": []}
    rows = [row("a", reward=1.0, **calls([None, None], **unknown)), row("b", reward=0.0, **calls([None, None]))]
    assert advantages(rows, process()) == {"a/0": [0.5, 0.5], "b/0": [-0.5, 0.0]}


def test_returns_that_do_not_vary_are_a_constant_group() -> None:
    alike = [row("a", reward=1.0, **calls([0.0])), row("b", reward=0.0, **calls([1.0]))]
    assert select(alike, process()).row_tally.rejected == {Rejection.REWARD_CONSTANT: 2}
    assert select(alike, process("grpo")).row_tally.rejected == {Rejection.REWARD_CONSTANT: 2}
    by_call = [row("a", **calls([1.0, 0.0])), row("b", **calls([0.0, 1.0]))]
    assert advantages(by_call, process()) == {"a/0": [0.0, -0.5], "b/0": [0.0, 0.5]}
    assert select(by_call, rules()).row_tally.rejected == {Rejection.REWARD_CONSTANT: 2}


@pytest.mark.parametrize(("gamma", "long"), [(1.0, 1.0), (0.5, 0.25)])
def test_attributed_credit_compares_rewards_that_are_discounted_to_the_first_call(gamma: float, long: float) -> None:
    rows = [
        row("long", reward=1.0, **calls([None, None])),
        row("long", reward=1.0, number=1, **calls([None], 2, is_trainable=False)),
        row("short", reward=0.5, **calls([None])),
    ]
    job = rules(credit=Credit.ATTRIBUTED, gamma=gamma)
    assert advantages(rows, job) == {"long/0": [(long - 0.5) / 2] * 2, "short/0": [(0.5 - long) / 2]}


def test_a_score_in_a_rejected_row_follows_the_calls_of_ppo_before_it() -> None:
    later = row("a", reward=1.0, number=1, **calls([2.0], 1, is_trainable=False))
    rows = [row("a", reward=1.0, **calls([0.5])), later]
    assert select(rows, process("ppo")).rows["rewards"].to_list() == [[3.5]]
