import json
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanloop.training.dataset.pairs import Pairing
from spanloop.training.dataset.rejections import Rejection
from spanloop.training.dataset.tally import Tally

from ..recipe_kinds import KINDS, is_policy_gradient
from ..selection_rows import row, rules, select


def sampled(**parameters: str | None) -> str:
    """``transitions.sampling`` of one step."""
    return json.dumps({name: text for name, text in parameters.items() if text is not None})


def pair(**changes: Any) -> list[dict[str, Any]]:
    """A healthy group of two, and a third episode that ``changes`` break."""
    return [row("a", reward=0.0), row("b", reward=1.0), row("c", reward=0.5) | changes]


def test_a_healthy_group_is_accepted_whole() -> None:
    selection = select([row("a", reward=0.0), row("b"), row("b", number=1)], rules())
    assert selection.row_tally == Tally(3, {})
    assert selection.episode_tally == Tally(2, {})
    assert selection.group_tally == Tally(1, {})
    assert selection.rows.select("episode_id", "session", "row_number").rows() == [
        ("a", 0, 0),
        ("b", 1, 0),
        ("b", 1, 1),
    ]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"trajectory_id": "", "is_trainable": False}, Rejection.NO_TRAJECTORY),
        ({"is_trainable": False, "untrainable_reason": "token_mismatch"}, "token_mismatch"),
        ({"is_trainable": False}, Rejection.UNTRAINABLE),
        ({"loss_mask": [1]}, Rejection.MALFORMED),
        ({"prompt_token_ids": []}, Rejection.MALFORMED),
        ({"response_token_ids": [], "loss_mask": [], "logprobs": []}, Rejection.MALFORMED),
        ({"loss_mask": [0, 0]}, Rejection.NO_SAMPLED_TOKENS),
        ({"logprobs": []}, Rejection.NO_LOGPROBS),
        ({"logprobs": [-0.5, float("nan")]}, Rejection.NO_LOGPROBS),
        ({"prompt_token_ids": [50]}, Rejection.UNKNOWN_TOKEN),
        ({"policy_versions": ["other@v1"]}, Rejection.OTHER_TOKENIZER),
        ({"policy_versions": ["m@v1", "other@v1"]}, Rejection.OTHER_TOKENIZER),
        ({"policy_versions": ["m@v9"]}, Rejection.UNKNOWN_TOKENIZER),
        ({"policy_versions": ["m@v1", ""]}, Rejection.UNKNOWN_TOKENIZER),
        ({"tokenizers": ["theirs"]}, Rejection.OTHER_TOKENIZER),
        ({"tokenizers": ["", "theirs"]}, Rejection.OTHER_TOKENIZER),
        ({"tokenizers": ["", "ours"], "policy_versions": ["m@v1", "m@v9"]}, Rejection.UNKNOWN_TOKENIZER),
        ({"prompt_token_ids": [1] * 101}, Rejection.PROMPT_TOO_LONG),
        (
            {"response_token_ids": [1] * 101, "loss_mask": [1] * 101, "logprobs": [0.0] * 101},
            Rejection.RESPONSE_TOO_LONG,
        ),
        (
            {
                "prompt_token_ids": [1] * 90,
                "response_token_ids": [1] * 90,
                "loss_mask": [1] * 90,
                "logprobs": [0.0] * 90,
            },
            Rejection.CONTEXT_TOO_LONG,
        ),
        ({"sampling": [sampled(temperature="0")]}, Rejection.GREEDY_SAMPLING),
        ({"sampling": [sampled(top_k="40")]}, Rejection.TRUNCATED_SAMPLING),
        ({"sampling": [sampled(temperature="0.7")]}, Rejection.OTHER_TEMPERATURE),
        ({"sampling": ["{}", sampled(temperature="0.7")]}, Rejection.OTHER_TEMPERATURE),
        ({"reward": None}, Rejection.NO_REWARD),
        ({"reward": float("nan")}, Rejection.NO_REWARD),
        ({"reward": 1e308}, Rejection.REWARD_OUT_OF_RANGE),
        ({"reward": -3e38}, Rejection.REWARD_OUT_OF_RANGE),
        ({"step_rewards": [3e38]}, Rejection.REWARD_OUT_OF_RANGE),
        ({"group_id": ""}, Rejection.NO_GROUP),
    ],
)
def test_each_broken_row_is_rejected_for_its_own_reason(changes: dict[str, Any], reason: str) -> None:
    selection = select(pair(**changes), rules())
    assert selection.row_tally == Tally(2, {str(reason): 1})
    assert selection.episode_tally == Tally(2, {str(reason): 1})


def test_truncated_rows_are_counted_by_the_parameters_that_constrained_them() -> None:
    strict, both = sampled(strict_tools='["price"]'), sampled(strict_tools='["price"]', top_k="20")
    rows = [*pair(sampling=[strict]), row("d", sampling=["{}", both]), row("e", loss_mask=[0, 0], sampling=[both])]
    selection = select(rows, rules())
    assert selection.row_tally == Tally(2, {Rejection.TRUNCATED_SAMPLING: 2, Rejection.NO_SAMPLED_TOKENS: 1})
    assert list(selection.constrained_by.items()) == [("strict_tools", 2), ("top_k", 1)]


@pytest.mark.parametrize("kind", ["sft", "dpo"])
def test_imitation_and_preferences_take_constrained_rows(kind: str) -> None:
    rows = [row("a", reward=0.0, sampling=[sampled(strict_tools='["f"]')]), row("b", sampling=[sampled(new="1")])]
    selection = select(rows, rules(kind))
    assert (selection.row_tally, selection.constrained_by) == (Tally(2, {}), {})


@pytest.mark.parametrize("kind", KINDS)
def test_an_old_score_out_of_range_is_rejected_by_every_recipe_and_names_its_episode(kind: str) -> None:
    rows = [*pair(), row("d", reward=1e308), row("e", step_rewards=[-3e38]), row("f", reward=1e12)]
    selection = select(rows, rules(kind, pairing=Pairing(0, 2, 0)))
    assert selection.out_of_range == ("d", "e")
    assert selection.row_tally.rejected == {Rejection.REWARD_OUT_OF_RANGE: 2}
    advantages = selection.rows["advantages"].explode().drop_nulls()
    assert advantages.is_finite().all()


def test_a_fingerprint_of_the_capture_goes_before_the_registered_versions() -> None:
    unregistered = {"tokenizers": ["ours"], "policy_versions": ["m@v9"]}
    assert select(pair(**unregistered), rules()).row_tally == Tally(3, {})
    named_alike = {"tokenizers": ["ours"], "policy_versions": ["other@v1"]}
    assert select(pair(**named_alike), rules()).row_tally == Tally(3, {})


def test_sft_takes_only_successful_episodes_unless_told_otherwise() -> None:
    rows = [row("good"), row("bad", reward=0.0), row("unscored", reward=None)]
    chosen = select(rows, rules("sft", outcomes="successful"))
    assert chosen.rows["episode_id"].to_list() == ["good"]
    assert chosen.row_tally == Tally(1, {Rejection.NOT_SUCCESSFUL: 2})
    assert select(rows, rules("sft")).row_tally == Tally(3, {})
    both = select(rows, rules("sft", outcomes="successful", min_reward=0.5))
    assert both.row_tally == Tally(1, {Rejection.BELOW_MIN_REWARD: 1, Rejection.NO_REWARD: 1})


def test_a_group_waits_until_its_task_was_attempted_often_enough() -> None:
    three = [row(name, "three", float(number)) for number, name in enumerate("abc")]
    two = [row("d", "two", 0.0), row("e", "two", 1.0)]
    for kind in ("dr_grpo", "dpo"):
        pairing = Pairing(0, 2, 0, repeats_per_task=3)
        selection = select([*three, *two], rules(kind, repeats_per_task=3, pairing=pairing))
        assert selection.group_tally == Tally(1, {Rejection.GROUP_TOO_SMALL: 1})
        assert set(selection.rows["episode_id"]) <= {"a", "b", "c"}


def test_groups_that_give_no_advantage_are_counted() -> None:
    rows = [
        *pair(),
        row("d", "alone"),
        row("e", "same"),
        row("f", "same"),
        row("g", "unscored", None),
    ]
    selection = select(rows, rules())
    assert selection.group_tally == Tally(
        1,
        {Rejection.GROUP_TOO_SMALL: 1, Rejection.REWARD_CONSTANT: 1, Rejection.NO_TRAINABLE_EPISODE: 1},
    )
    assert selection.row_tally == Tally(
        3, {Rejection.GROUP_TOO_SMALL: 1, Rejection.REWARD_CONSTANT: 2, Rejection.NO_REWARD: 1}
    )


def test_an_episode_with_one_good_row_is_accepted() -> None:
    selection = select([*pair(), row("c", reward=0.5, number=1, loss_mask=[0, 0])], rules())
    assert selection.episode_tally == Tally(3, {})
    assert selection.row_tally == Tally(3, {Rejection.NO_SAMPLED_TOKENS: 1})


def test_a_large_group_is_split_evenly_and_loses_nobody() -> None:
    rows = [row(f"e{number}", reward=float(number % 2)) for number in range(9)]
    selection = select(rows, rules(group_size=8))
    sizes = selection.rows.group_by("group_id").len().sort("group_id").rows()
    assert sizes == [("g#1", 5), ("g#2", 4)]
    assert selection.rows.group_by("group_id").agg(pl.col("reward").n_unique())["reward"].to_list() == [2, 2]
    assert selection.row_tally.accepted == 9
    assert selection.group_tally == Tally(1, {})


@pytest.mark.parametrize(
    ("temperatures", "expected"),
    [
        (["0.7", "0.7", None], 0.7),
        ([None, None, "0.7"], 1.0),
        (["0.7", "1.0", None], 1.0),
        (["0.7", "0.699999988079071"], 0.7),
        (["0.5", "0.9"], 0.9),
    ],
)
def test_a_job_has_the_temperature_that_most_rows_have(temperatures: list[str | None], expected: float) -> None:
    rows = [
        row(f"{number}{side}", f"g{number}", float(side), sampling=[sampled(temperature=temperature)])
        for number, temperature in enumerate(temperatures)
        for side in (0, 1)
    ]
    selection = select(rows, rules())
    assert selection.temperature == expected
    assert selection.row_tally.total == len(rows)
    assert selection.group_tally.total == len(temperatures)
    assert set(selection.row_tally.rejected) <= {Rejection.OTHER_TEMPERATURE}
    assert selection.rows.filter(pl.col("temperature") != expected).is_empty()


def test_rows_that_cannot_be_trained_on_have_no_say_in_the_temperature() -> None:
    rows = [*pair(), *(row(f"x{number}", reward=None, sampling=[sampled(temperature="0.2")]) for number in range(9))]
    selection = select(rows, rules())
    assert (selection.temperature, selection.row_tally) == (1.0, Tally(3, {Rejection.NO_REWARD: 9}))


def test_sft_does_not_care_how_a_row_was_sampled() -> None:
    rows = [row("a", sampling=[sampled(temperature="0")]), row("b", sampling=[sampled(top_p="0.5")])]
    selection = select(rows, rules("sft"))
    assert (selection.temperature, selection.row_tally) == (None, Tally(2, {}))


def test_sft_takes_every_episode_unless_a_reward_is_asked_for() -> None:
    rows = [row("a", reward=None, logprobs=[]), row("b", reward=0.2), row("c", reward=0.9)]
    assert select(rows, rules("sft")).row_tally == Tally(3, {})
    filtered = select(rows, rules("sft", min_reward=0.5))
    assert filtered.row_tally == Tally(1, {Rejection.NO_REWARD: 1, Rejection.BELOW_MIN_REWARD: 1})
    assert filtered.rows["episode_id"].to_list() == ["c"]


def test_nothing_in_gives_nothing_out() -> None:
    selection = select([], rules())
    assert (selection.row_tally.total, selection.episode_tally.total, selection.group_tally.total) == (0, 0, 0)


ROWS = st.lists(
    st.builds(
        row,
        episode=st.sampled_from("abcdef"),
        group=st.just("g"),
        reward=st.just(1.0),
        number=st.integers(0, 3),
        trajectory_id=st.sampled_from(["t", ""]),
        loss_mask=st.sampled_from([[1, 1], [0, 0], [1]]),
        prompt_token_ids=st.sampled_from([[1], [], [99], [1] * 101]),
        is_trainable=st.booleans(),
    ),
    max_size=24,
)


@given(ROWS, st.sampled_from(list(KINDS)), st.integers(2, 4))
def test_accepted_plus_rejected_is_what_came_in(rows: list[dict[str, Any]], kind: str, group_size: int) -> None:
    for each in rows:  # group and reward belong to the episode
        each["group_id"] = "gh"[ord(each["episode_id"]) % 2]
        each["reward"] = float(ord(each["episode_id"]) % 3)
    selection = select(rows, rules(kind, group_size=group_size))
    assert selection.row_tally.total == len(rows)
    assert selection.row_tally.accepted == selection.rows.height
    assert selection.episode_tally.total == len({each["episode_id"] for each in rows})
    assert selection.episode_tally.accepted == selection.rows["episode_id"].n_unique()
    if is_policy_gradient(kind):
        assert selection.group_tally.total == len({each["group_id"] for each in rows})
        accepted = selection.rows["group_id"].str.split("#").list.first()
        assert selection.group_tally.accepted == accepted.n_unique()
        sizes = selection.rows.group_by("group_id").agg(pl.col("episode_id").n_unique())["episode_id"].to_list()
        assert all(1 <= size <= group_size for size in sizes)
        if kind != "ppo":
            assert selection.rows["advantages"].list.len().equals(selection.rows["loss_mask"].list.len())
