from typing import Any

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from spanloop.training.dataset.groups import REWARD_TOLERANCE
from spanloop.training.dataset.pairs import Attempt, Pairing, choose_pairs
from spanloop.training.dataset.selection import Selection
from spanloop.training.dataset.tally import Tally

from ..selection_rows import row, rules, select

ATTEMPTS = st.lists(
    st.tuples(st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.booleans(), st.booleans()), min_size=1, max_size=12
).map(lambda drawn: [Attempt(f"e{number}", *attempt) for number, attempt in enumerate(drawn)])
PAIRINGS = st.builds(
    Pairing, margin=st.sampled_from([0.0, 0.25, 0.6]), pairs_per_group=st.integers(1, 8), seed=st.integers(0, 3)
)


def paired(rows: list[dict[str, Any]], *, margin: float = 0.0, at_most: int = 4, **changes: Any) -> Selection:
    return select(rows, rules("dpo", pairing=Pairing(margin, at_most, seed=0), **changes))


def sides(selection: Selection) -> list[tuple[str, str]]:
    """(better, worse) episode of each pair."""
    pairs = selection.rows.group_by("pair_id", "side", maintain_order=True).agg(pl.col("episode_id").first())
    episodes = pairs["episode_id"].to_list()
    assert pairs["side"].to_list() == ["chosen", "rejected"] * (len(episodes) // 2)
    return list(zip(episodes[::2], episodes[1::2], strict=True))


@given(ATTEMPTS, PAIRINGS, st.randoms(use_true_random=False))
def test_pairs_are_as_many_as_there_can_be_and_do_not_depend_on_the_order(
    attempts: list[Attempt], pairing: Pairing, random: Any
) -> None:
    pairs = choose_pairs(attempts, pairing)
    possible = {
        (good.episode_id, bad.episode_id)
        for good in attempts
        for bad in attempts
        if len(attempts) >= pairing.repeats_per_task
        and good.can_be_chosen
        and bad.can_be_rejected
        and good.reward - bad.reward > max(pairing.margin, REWARD_TOLERANCE)
    }
    names = [(pair.chosen.episode_id, pair.rejected.episode_id) for pair in pairs]
    assert len(set(names)) == len(names) == min(len(possible), pairing.pairs_per_group)
    assert set(names) <= possible
    random.shuffle(attempts)
    assert choose_pairs(attempts, pairing) == pairs


def test_each_attempt_is_used_as_seldom_as_possible_and_the_seed_decides_between_equals() -> None:
    attempts = [
        Attempt(f"e{number}", float(number % 2), can_be_chosen=True, can_be_rejected=True) for number in range(8)
    ]
    by_seed = [choose_pairs(attempts, Pairing(0, 4, seed)) for seed in (0, 1)]
    for pairs in by_seed:
        assert sorted(attempt.episode_id for pair in pairs for attempt in pair) == [f"e{number}" for number in range(8)]
    assert by_seed[0] != by_seed[1]


def test_the_largest_difference_comes_first() -> None:
    rows = [row(f"e{number}", reward=number / 4) for number in range(5)]
    assert sides(paired(rows, at_most=2)) == [("e4", "e0"), ("e3", "e1")]


def test_a_pair_has_all_rows_of_both_episodes_and_a_row_occurs_for_each_pair_of_its_episode() -> None:
    rows = [row("good", number=0), row("good", number=1), row("bad", reward=0.0), row("worse", reward=-1.0)]
    selection = paired(rows)
    assert sides(selection) == [("good", "worse"), ("good", "bad"), ("bad", "worse")]
    of_good = selection.rows.filter(pl.col("episode_id") == "good")
    assert of_good["row_number"].to_list() == [0, 1, 0, 1]
    assert (selection.row_tally, selection.episode_tally, selection.group_tally) == (
        Tally(4, {}),
        Tally(3, {}),
        Tally(1, {}),
    )


def test_neither_logprobs_nor_a_temperature_are_needed() -> None:
    nothing: dict[str, Any] = {"logprobs": [], "sampling": []}
    assert len(sides(paired([row("a", **nothing), row("b", reward=0.0, **nothing)]))) == 1


def test_each_group_that_gives_no_pair_has_its_reason() -> None:
    rows = [
        *(row(episode, "alone") for episode in ("a",)),
        *(row(episode, "same") for episode in ("b", "c")),
        *(row(episode, "near", reward) for episode, reward in (("d", 0.5), ("e", 0.6))),
        *(row(episode, "good", reward) for episode, reward in (("f", 0.0), ("g", 1.0), ("h", 1.0))),
        row("i", "unscored", None),
        row("j", "", 1.0),
    ]
    selection = paired(rows, margin=0.5, at_most=1)
    counts = {
        "group_too_small": 1, "reward_constant": 2, "within_pair_margin": 2, "not_paired": 1, "no_reward": 1,
        "no_group": 1,
    }  # fmt: skip
    assert selection.row_tally == Tally(2, counts)
    assert selection.episode_tally == Tally(2, counts)
    assert selection.group_tally.accepted == 1
    assert selection.group_tally.rejected == {
        "group_too_small": 1, "reward_constant": 1, "within_pair_margin": 1, "no_trainable_episode": 2
    }  # fmt: skip


TWO_STEPS: dict[str, Any] = {
    "last_step": 1, "sampled_steps": [0, 1], "sampled_starts": [0, 1], "sampled_ends": [1, 2],
}  # fmt: skip


def fault(step: int, owner: str) -> dict[str, Any]:
    return {
        "fault_steps": [step], "fault_classes": ["invalid_arguments"], "fault_owners": [owner],
        "fault_is_recovered": [1],
    }  # fmt: skip


def masks(selection: Selection) -> dict[str, list[int]]:
    return dict(selection.rows.select("episode_id", "loss_mask").iter_rows())


def test_the_better_side_leaves_out_mistakes_and_the_worse_one_what_others_broke() -> None:
    for owner, expected in (("policy", {"good": [1, 0], "bad": [1, 1]}), ("tool", {"good": [1, 1], "bad": [1, 0]})):
        both = TWO_STEPS | fault(1, owner)
        selection = paired([row("good", **both), row("bad", reward=0.0, **both)])
        assert masks(selection) == expected
        assert selection.rows["masked_steps"].sum() == 1


def test_an_episode_without_a_usable_row_on_its_side_is_in_no_pair() -> None:
    selection = paired([row("good", **fault(0, "policy")), row("bad", reward=0.0)])
    assert selection.row_tally == Tally(0, {"all_steps_masked": 1, "not_paired": 1})
    assert selection.group_tally == Tally(0, {"not_paired": 1})
    middle = [row("best", reward=2.0), row("good", **fault(0, "policy"))]
    assert sides(paired(middle)) == [("best", "good")]


def test_an_episode_that_others_made_fail_is_no_worse_side() -> None:
    selection = paired([row("good"), row("bad", reward=0.0, decided_by="environment")])
    assert selection.row_tally == Tally(0, {"not_the_policys_fault": 1, "group_too_small": 1})
