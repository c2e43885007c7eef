"""Coreset, replay and curriculum choose whole groups or episodes, and change nothing of what they keep."""

from collections import defaultdict
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from spanloop.training.dataset.rejections import Rejection
from spanloop.training.dataset.selection import Selection
from spanloop.training.dataset.strategies.coreset import (
    bigram_features,
    choose,
    farthest_first,
    requested,
    squared_distances,
)
from spanloop.training.dataset.strategies.replay import UnitRows, kept_by_replay
from spanloop.training.dataset.strategies.sample_metrics import distinct_2
from spanloop.training.dataset.strategies.settings import DataStrategies
from spanloop.training.spec.choices import Coreset, Curriculum

from ..recipe_kinds import KINDS
from ..selection_rows import row, rules, select

METHODS = [method for method in Coreset if method is not Coreset.NONE]
NAMES = st.lists(st.text("abc", min_size=1, max_size=4), unique=True, max_size=12)
OUTCOMES = ("success", "failure", "unknown")


def base_loss(rows: pl.DataFrame) -> pl.Series:
    """A stand-in for the base model: the mean of a row's trained token ids."""
    pairs = rows.select("response_token_ids", "loss_mask").iter_rows()
    return pl.Series([float(np.mean([token for token, kept in zip(*pair, strict=True) if kept])) for pair in pairs])


@st.composite
def datasets(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Groups of one to four episodes of one or two rows, with rewards, outcomes and responses of their own."""
    rows: list[dict[str, Any]] = []
    for group in range(draw(st.integers(1, 6))):
        for episode in range(draw(st.integers(1, 4))):
            reward = draw(st.sampled_from([0.0, 0.25, 1.0]))
            changes = {
                "outcome": draw(st.sampled_from(OUTCOMES)),
                "decided_by": draw(st.sampled_from(["", "policy", "tool"])),
            }
            for number in range(draw(st.integers(1, 2))):
                tokens = draw(st.lists(st.integers(1, 49), min_size=1, max_size=6))
                mask = [1, *draw(st.lists(st.integers(0, 1), min_size=len(tokens) - 1, max_size=len(tokens) - 1))]
                arrays = {"response_token_ids": tokens, "loss_mask": mask, "logprobs": [-1.0] * len(tokens)}
                rows.append(
                    row(f"g{group}e{episode}", f"g{group}", reward, number, **changes, **arrays)
                    | {"sampled_ends": [len(tokens)]}
                )
    return rows


@st.composite
def given_strategies(draw: st.DrawFn) -> DataStrategies:
    limits = sorted([draw(st.sampled_from([0.0, 0.3, 0.5])), draw(st.sampled_from([0.5, 0.7, 1.0]))])
    return DataStrategies(
        min_pass_rate=draw(st.sampled_from([None, limits[0]])),
        max_pass_rate=draw(st.sampled_from([None, limits[1]])),
        curriculum=draw(st.sampled_from(list(Curriculum))),
        coreset=draw(st.sampled_from(list(Coreset))),
        coreset_share=draw(st.sampled_from([0.3, 0.8])),
        coreset_size=draw(st.sampled_from([None, 1, 3])),
        replay_ratio=draw(st.sampled_from([None, 0.0, 0.5])),
        seed=draw(st.integers(0, 3)),
        trained_episodes=frozenset(draw(st.sets(st.sampled_from([f"g{g}e{e}" for g in range(6) for e in range(4)])))),
        row_losses=base_loss,
    )


def by_identity(selection: Selection) -> dict[tuple[str, ...], dict[str, Any]]:
    return {
        (each["trajectory_id"], str(each["pair_id"]), str(each["side"])): each
        for each in selection.rows.iter_rows(named=True)
    }


@given(rows=datasets(), kind=st.sampled_from(list(KINDS)), strategies=given_strategies())
@settings(max_examples=30)
def test_whole_units_are_kept_unchanged_and_all_input_is_counted(
    rows: list[dict[str, Any]], kind: str, strategies: DataStrategies
) -> None:
    everything = select(rows, rules(kind))
    chosen = select(rows, rules(kind, strategies=strategies))
    before, after = by_identity(everything), by_identity(chosen)
    columns = set(everything.rows.columns) - {"base_loss"}
    for identity, kept in after.items():  # advantages, parts, sessions and pairs are bit-equal
        assert {name: kept[name] for name in columns} == {name: before[identity][name] for name in columns}
    of_unit = "task_id" if kind != "sft" else "episode_id"
    kept_units = {each[of_unit] for each in after.values()}
    assert {identity for identity, each in before.items() if each[of_unit] in kept_units} == set(after)
    for tally in ("row_tally", "episode_tally", "group_tally"):
        assert getattr(chosen, tally).total == getattr(everything, tally).total
    left_out = {Rejection.PASS_RATE_OUTSIDE, Rejection.NOT_IN_CORESET, Rejection.OVER_REPLAY_RATIO}
    lost = sum(count for reason, count in chosen.row_tally.rejected.items() if reason in left_out)
    assert everything.row_tally.accepted - chosen.row_tally.accepted == lost
    # each report goes on where the one before it ended
    numbers = [len({each[of_unit] for each in before.values()})]
    for report in chosen.reports:
        assert report.available == numbers[-1]
        numbers.append(report.kept)
    assert numbers[-1] == len(kept_units)


@given(rows=datasets(), kind=st.sampled_from(list(KINDS)), order=st.sampled_from(list(Curriculum)))
@settings(max_examples=25)
def test_a_curriculum_is_by_the_share_of_attempts_that_succeed(
    rows: list[dict[str, Any]], kind: str, order: Curriculum
) -> None:
    outcomes: dict[str, dict[str, str]] = defaultdict(dict)
    for each in rows:
        if each["outcome"] != "unknown" and each["decided_by"] != "tool":
            outcomes[each["group_id"]][each["episode_id"]] = each["outcome"]
    expected = {
        group: sum(outcome == "success" for outcome in known.values()) / len(known) for group, known in outcomes.items()
    }
    selection = select(rows, rules(kind, strategies=DataStrategies(curriculum=order, min_pass_rate=0.3)))
    rates = selection.rows["pass_rate"].to_list()
    assert rates == [expected[group] for group in selection.rows["task_id"]]
    assert all(rate >= 0.3 for rate in rates)
    if order is not Curriculum.NONE:
        assert rates == sorted(rates, reverse=order is Curriculum.EASY_TO_HARD)
    unlimited = select(rows, rules(kind)).rows
    kept = unlimited.filter(pl.col("pass_rate") >= 0.3)
    assert_frame_equal(selection.rows, kept, check_row_order=order is Curriculum.NONE)


@given(names=NAMES, method=st.sampled_from(METHODS), seed=st.integers(0, 3), data=st.data())
def test_a_coreset_has_its_number_whatever_the_order(
    names: list[str], method: Coreset, seed: int, data: st.DataObject
) -> None:
    number = data.draw(st.integers(0, len(names)))
    losses = np.array([data.draw(st.sampled_from([0.5, 1.0, 2.0, 3.0])) for _ in names])
    features = bigram_features([np.frombuffer((name * 2).encode(), dtype=np.uint8).astype(np.int64) for name in names])
    chosen = choose(method, names, number, seed, losses=losses, features=features)
    assert len(set(chosen)) == len(chosen) == number
    order = data.draw(st.permutations(range(len(names))))
    again = choose(
        method, [names[place] for place in order], number, seed, losses=losses[order], features=features[order]
    )
    assert {names[order[place]] for place in again} == {names[place] for place in chosen}
    others = set(range(len(names))) - set(chosen)
    if method is Coreset.LOSS and chosen and others:
        assert min(losses[chosen]) >= max(losses[sorted(others)])
    if method is Coreset.HYBRID and chosen:
        assert min(losses[chosen]) >= sorted(losses, reverse=True)[min(2 * number, len(names)) - 1]
        assert max(losses[chosen]) == max(losses)


@given(
    points=st.lists(st.tuples(st.integers(-5, 5), st.integers(-5, 5)), min_size=1, max_size=7), number=st.integers(1, 4)
)
def test_diversity_is_within_twice_the_best_radius(points: list[tuple[int, int]], number: int) -> None:
    assume(number <= len(points))
    features = np.array(points, dtype=np.float32)

    def radius(centres: tuple[int, ...]) -> float:
        distances = np.stack([squared_distances(features, centre) for centre in centres])
        return float(np.sqrt(distances.min(axis=0).max()))

    best = min(radius(centres) for centres in combinations(range(len(points)), number))
    assert radius(tuple(farthest_first(features, number))) <= 2 * best + 1e-5


def test_equal_responses_are_chosen_last() -> None:
    tokens = [np.array(words, dtype=np.int64) for words in ([1, 2, 3, 4], [1, 2, 3, 4], [9, 8, 7, 6], [1, 2, 3, 5])]
    chosen = choose(Coreset.DIVERSITY, ["a", "b", "c", "d"], 3, 0, features=bigram_features(tokens))
    assert {2, 3} < set(chosen)


@pytest.mark.parametrize(
    ("share", "size", "number"), [(0.5, None, 50), (0.07, None, 7), (0.001, None, 1), (None, 7, 7), (0.5, 60, 50)]
)
def test_a_share_is_rounded_up_and_the_smaller_of_both_counts(
    share: float | None, size: int | None, number: int
) -> None:
    assert requested(100, share, size) == number


@given(
    sizes=st.lists(st.tuples(st.integers(1, 5), st.integers(0, 5)), max_size=10),
    ratio=st.floats(0, 0.99),
    seed=st.integers(0, 3),
)
def test_replay_keeps_all_that_is_new_and_as_much_of_the_old_as_the_ratio_allows(
    sizes: list[tuple[int, int]], ratio: float, seed: int
) -> None:
    units = [UnitRows(f"u{place}", rows, min(rows, replayed)) for place, (rows, replayed) in enumerate(sizes)]
    kept = kept_by_replay(units, ratio, seed)
    assert all(is_kept for unit, is_kept in zip(units, kept, strict=True) if not unit.is_replayed)

    def share(chosen: list[UnitRows]) -> float:
        return sum(unit.replayed_rows for unit in chosen) / max(1, sum(unit.rows for unit in chosen))

    chosen = [unit for unit, is_kept in zip(units, kept, strict=True) if is_kept]
    assert share(chosen) <= max(ratio, share([unit for unit in units if not unit.is_replayed])) + 1e-9
    for unit, is_kept in zip(units, kept, strict=True):
        assert is_kept or share([*chosen, unit]) > ratio - 1e-9
    order = list(reversed(range(len(units))))
    assert kept_by_replay([units[place] for place in order], ratio, seed) == [kept[place] for place in order]


@given(rows=datasets())
@settings(max_examples=30)
def test_metrics_of_a_row_are_those_of_its_trained_tokens(rows: list[dict[str, Any]]) -> None:
    strategies = DataStrategies(coreset=Coreset.LOSS, coreset_share=1.0, row_losses=base_loss)
    selected = select(rows, rules("sft", strategies=strategies)).rows
    assert selected["base_loss"].to_list() == base_loss(selected).to_list()
    for each, value in zip(selected.iter_rows(named=True), distinct_2(selected), strict=True):
        tokens = [token for token, kept in zip(each["response_token_ids"], each["loss_mask"], strict=True) if kept]
        bigrams = list(pairwise(tokens))
        assert value == each["distinct_2"] == (len(set(bigrams)) / len(bigrams) if bigrams else None)


def test_the_manifests_line_says_what_was_kept_and_why() -> None:
    rows = [row(f"{group}{number}", group, float(number)) for group in "abc" for number in (0, 1)]
    strategies = DataStrategies(
        max_pass_rate=0.5, coreset=Coreset.RANDOM, coreset_size=2, seed=5, replay_ratio=0.4,
        trained_episodes=frozenset({"a0", "a1", "b0", "b1", "c0"}),
    )  # fmt: skip
    selection = select(rows, rules(strategies=strategies))
    assert [str(report) for report in selection.reports][:2] == [
        "curriculum kept 3 of 3 groups (pass rate of at most 0.5)",
        "coreset kept 2 of 3 groups (random: by seed 5)",
    ]
    assert selection.reports[2].why.endswith("rows are of episodes that the base learned from, ratio 0.4")
    assert selection.group_tally.rejected.keys() <= {Rejection.NOT_IN_CORESET, Rejection.OVER_REPLAY_RATIO}
