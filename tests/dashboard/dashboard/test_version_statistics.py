"""Statistics of policy versions: shares, intervals, counts."""

import polars as pl
import pytest

from spanloop.dashboard.view_models.task_changes import Change, choose_pair, classify_changes
from spanloop.dashboard.view_models.version_statistics import (
    component_means,
    counts_by_version,
    failure_shares,
    with_intervals,
)

VERSIONS = pl.DataFrame({"policy_version": ["m@v1", "m@v2"], "episodes": [100, 50]})


def test_wilsons_interval_and_the_means_interval() -> None:
    frame = pl.DataFrame(
        {
            "policy_version": ["a", "b", "c"],
            "successes": [8, 0, 0],
            "failures": [2, 4, 0],
            "rewarded": [10, 1, 0],
            "mean_reward": [0.5, 0.1, float("nan")],
            "reward_stddev": [0.2, float("nan"), float("nan")],
        }
    )
    first, second, third = with_intervals(frame).iter_rows(named=True)
    # Wilson, 8 of 10: Agresti and Coull (1998) give (0.490, 0.943).
    assert (first["success_low"], first["success_high"]) == pytest.approx((0.4902, 0.9433), abs=1e-4)
    assert (first["reward_low"], first["reward_high"]) == pytest.approx((0.5 - 0.12396, 0.5 + 0.12396), abs=1e-5)
    assert second["success"] == 0
    assert second["success_low"] == pytest.approx(0)
    assert second["success_high"] > 0.3
    assert (second["reward"], second["reward_low"]) == (0.1, None)
    assert third["success"] is None
    assert third["success_high"] is None
    assert third["reward"] is None


def test_a_version_without_a_failure_has_a_share_of_zero() -> None:
    failures = pl.DataFrame(
        {
            "policy_version": ["m@v1", "m@v1", "m@v2"],
            "error_class": ["rare", "frequent", "rare"],
            "fault_owner": ["tool", "policy", "tool"],
            "failures": [2, 40, 1],
            "recovered": [0, 0, 0],
            "failed_episodes": [2, 30, 1],
        }
    )
    shares = failure_shares(VERSIONS, failures)
    assert shares.select("error_class", "policy_version", "value").rows() == [
        ("frequent", "m@v1", 0.3),
        ("frequent", "m@v2", 0.0),
        ("rare", "m@v1", 0.02),
        ("rare", "m@v2", 0.02),
    ]
    assert shares["episodes"].to_list() == [100, 50, 100, 50]
    assert (shares["low"] <= shares["value"]).all()


def test_a_group_has_a_column_for_each_version() -> None:
    groups = pl.DataFrame({"fingerprint": ["f", "g"], "failures": [9, 1]})
    counts = pl.DataFrame(
        {"fingerprint": ["g", "f", "f"], "policy_version": ["m@v2", "m@v1", "m@v2"], "episodes": [1, 5, 2]}
    )
    wide = counts_by_version(VERSIONS, groups, counts)
    assert wide.select("m@v1", "m@v2").rows() == [(5, 2), (0, 1)]
    assert wide["trend"].to_list() == [[0.05, 0.04], [0.0, 0.02]]
    assert counts_by_version(VERSIONS.head(0), groups, counts.head(0))["trend"].to_list() == [[], []]


def test_components_come_in_the_order_of_the_versions() -> None:
    components = pl.DataFrame(
        {
            "policy_version": ["m@v2", "m@v1", "gone@v1"],
            "component": ["answer"] * 3,
            "episodes": [4, 4, 4],
            "mean": [0.9, 0.5, 0.1],
            "stddev": [0.2, float("nan"), 0.1],
        }
    )
    means = component_means(VERSIONS, components)
    assert means["policy_version"].to_list() == ["m@v1", "m@v2"]
    assert means["low"].to_list() == [None, pytest.approx(0.9 - 0.196, abs=1e-3)]


def task(before: tuple[int, int], after: tuple[int, int]) -> dict[str, object]:
    row: dict[str, object] = {"task_id": "t"}
    for side, (successes, failures) in (("before", before), ("after", after)):
        row |= {f"{side}_successes": successes, f"{side}_failures": failures}
        row |= {f"{side}_success_id": f"{side} good", f"{side}_failure_id": f"{side} bad"}
    return row


@pytest.mark.parametrize(
    ("before", "after", "change", "ids"),
    [
        ((0, 1), (1, 0), Change.BETTER, ("before bad", "after good")),
        ((1, 3), (2, 2), Change.BETTER, ("before bad", "after good")),
        ((1, 0), (0, 1), Change.WORSE, ("before good", "after bad")),
        ((1, 0), (3, 0), Change.SOLVED, ("before good", "after good")),
        ((0, 2), (0, 1), Change.UNSOLVED, ("before bad", "after bad")),
    ],
)
def test_a_task_is_of_one_kind_and_its_pair_shows_it(
    before: tuple[int, int], after: tuple[int, int], change: Change, ids: tuple[str, str]
) -> None:
    (row,) = classify_changes(pl.DataFrame([task(before, after)])).to_dicts()
    assert row["change"] == change
    pair = choose_pair(row)
    assert pair is not None
    assert (pair.before_episode_id, pair.after_episode_id) == ids


def test_a_task_without_a_known_outcome_has_no_pair() -> None:
    (row,) = classify_changes(pl.DataFrame([task((0, 0), (1, 0))])).to_dicts()
    assert row["change"] == Change.UNKNOWN
    assert choose_pair(row) is None
