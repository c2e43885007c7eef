"""Advantages of episodes within their group, and the parts that batches are made of.

Invariant: the baseline of a group is the mean reward of all of its episodes that can be trained on. Parts are cut
afterwards and keep it, so neither the size of a part nor an episode that is rejected changes another's advantage.
"""

from typing import Final

import polars as pl

from spanloop.converters.credit import group_advantages

from .dataset_rejections import Rejection

REWARD_TOLERANCE: Final = 1e-6
"""Rewards of a group that lie closer together than this do not vary."""


def compare_groups(checked: pl.DataFrame, group_size: int) -> pl.DataFrame:
    """Give each row its episode's ``advantage``, ``part`` and ``session``; reject groups that give no advantage.

    The advantage is the reward minus the group's mean, without division by the standard deviation (Liu et al. 2025,
    "Dr. GRPO"). The parts of a group differ by at most one episode, and rewards are dealt out evenly.

    Args:
        checked: Rows with ``reason``, empty where the row can be trained on.
        group_size: Largest number of episodes in a part.
    """
    members, rank = pl.len().over("group_id").cast(pl.Int64), pl.int_range(pl.len()).over("group_id")
    episodes = (
        checked.filter(pl.col("reason") == "")
        .select("group_id", "episode_id", "started_at", "reward")
        .unique("episode_id")
        .sort("group_id", "reward", "started_at", "episode_id")
        .with_columns(rank=rank, members=members, parts=(members + (group_size - 1)) // group_size)
        .with_columns(part=_part_name())
        .with_columns(session=pl.int_range(pl.len(), dtype=pl.UInt32).over("part"), verdict=_verdict())
    )
    compared = episodes.select("episode_id", "part", "session", "verdict", advantage=_advantages(episodes))
    reason = pl.when(pl.col("reason") == "").then(pl.col("verdict")).otherwise(pl.col("reason"))
    return checked.join(compared, on="episode_id", how="left").with_columns(reason=reason).drop("verdict")


def _part_name() -> pl.Expr:
    numbered = pl.format("{}#{}", pl.col("group_id"), pl.col("rank") % pl.col("parts") + 1)
    return pl.when(pl.col("parts") > 1).then(numbered).otherwise(pl.col("group_id"))


def _verdict() -> pl.Expr:
    spread = (pl.col("reward").max() - pl.col("reward").min()).over("group_id")
    return (
        pl.when(pl.col("members") < 2)
        .then(pl.lit(Rejection.GROUP_TOO_SMALL.value))
        .when(spread <= REWARD_TOLERANCE)
        .then(pl.lit(Rejection.REWARD_CONSTANT.value))
        .otherwise(pl.lit(""))
    )


def _advantages(episodes: pl.DataFrame) -> pl.Series:
    """Return the advantage of each episode; rows of a group lie side by side."""
    groups = episodes.group_by("group_id", maintain_order=True).agg("reward")["reward"].to_list()
    advantages = [value for rewards in groups for value in group_advantages(rewards, by_deviation=False)]
    return pl.Series("advantage", advantages, dtype=pl.Float64)
