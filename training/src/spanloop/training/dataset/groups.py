"""Advantages of episodes, and the parts of groups that batches are made of.

Invariant: an advantage depends on the recipe and on episodes that can be trained on: those of the same group, for
``reinforce_plus_plus`` those of the whole dataset. Parts are cut afterwards and keep it, so neither the size of a part
nor an episode that is rejected changes another's advantage. ``ppo`` has no advantages here; verl computes them from the
critic's values.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import fsum, sqrt
from typing import Final

import polars as pl

from spanloop.converters.credit import group_advantages, leave_one_out
from spanloop.training.jobs.kinds import JobKind

from .rejections import Rejection

REWARD_TOLERANCE: Final = 1e-6
"""Rewards that lie closer together than this do not vary."""
DEVIATION_EPSILON: Final = 1e-6
"""Added to the standard deviation of a group by ``group_advantages``."""
WHITENING_EPSILON: Final = 1e-8
"""Added to the variance by verl's ``masked_whiten``."""
GROUP_ADVANTAGES: Final[Mapping[JobKind, Callable[[Sequence[float]], list[float]]]] = {
    JobKind.GRPO: partial(group_advantages, epsilon=DEVIATION_EPSILON),
    JobKind.DR_GRPO: partial(group_advantages, by_deviation=False),
    JobKind.RLOO: leave_one_out,
    JobKind.GSPO: partial(group_advantages, epsilon=DEVIATION_EPSILON),
}
"""From the rewards of a group to its advantages: divided by the standard deviation (Shao et al. 2024, section 4.1.2;
Zheng et al. 2025, equation 6), not divided (Liu et al. 2025, section 3.2), over the others (Ahmadian et al. 2024)."""


def compare_groups(checked: pl.DataFrame, kind: JobKind, group_size: int, repeats_per_task: int = 2) -> pl.DataFrame:
    """Give each row its episode's ``advantage``, ``part`` and ``session``; reject episodes that have no advantage.

    The parts of a group differ by at most one episode, and rewards are dealt out evenly. An episode without a group is
    a group of its own, which only recipes without a group's baseline accept. Where ``step_advantages`` has the scores
    of single steps, these vary too, and rewards that are their means have no advantage.

    Args:
        checked: Rows with ``reason``, empty where the row can be trained on, their final ``loss_mask``,
            ``compared_reward`` of the episode, and ``step_advantages``.
        kind: The recipe.
        group_size: Largest number of episodes in a part.
        repeats_per_task: Smallest number of episodes in a group, where a group is compared.
    """
    if not kind.is_group_relative:
        own_group = pl.when(pl.col("group_id") == "").then(pl.col("episode_id")).otherwise(pl.col("group_id"))
        checked = checked.with_columns(group_id=own_group)
    scored = ("is_scored", "has_step_scores", "steps_vary")
    members, rank = pl.len().over("group_id").cast(pl.Int64), pl.int_range(pl.len()).over("group_id")
    episodes = (
        checked.filter(pl.col("reason") == "")
        .with_columns(
            tokens=pl.col("loss_mask").list.sum().cast(pl.Int64).sum().over("episode_id"),
            has_step_scores=pl.col("step_advantages").is_not_null().any().over("episode_id"),
            steps_vary=_varies(pl.col("step_advantages")).any().over("episode_id"),
        )
        .select("group_id", "episode_id", "started_at", "reward", "compared_reward", "tokens", *scored)
        .unique("episode_id")
        .sort("group_id", "reward", "started_at", "episode_id")
        .with_columns(rank=rank, members=members, parts=(members + (group_size - 1)) // group_size)
        .with_columns(part=_part_name())
        .with_columns(
            session=pl.int_range(pl.len(), dtype=pl.UInt32).over("part"), verdict=_verdict(kind, repeats_per_task)
        )
    )
    compared = episodes.select("episode_id", "part", "session", "verdict", advantage=_advantages(episodes, kind))
    reason = pl.when(pl.col("reason") == "").then(pl.col("verdict")).otherwise(pl.col("reason"))
    return checked.join(compared, on="episode_id", how="left").with_columns(reason=reason).drop("verdict")


def normalised_rewards(rewards: Sequence[float], tokens: Sequence[int]) -> list[float]:
    """Return ``(R_i - m) / sqrt(v + 1e-8)``, with mean ``m`` and unbiased variance ``v`` over all tokens.

    REINFORCE++ (Hu et al. 2025, https://arxiv.org/abs/2501.03262) with the numbers of verl's ``masked_whiten``. The
    paper normalises over a batch; here it is the whole dataset, so that an advantage does not depend on how batches are
    cut.

    Args:
        rewards: Of each episode, which all of its tokens have.
        tokens: The number of trained tokens of each episode.
    """
    count = sum(tokens)
    if count < 2:
        return [0.0] * len(rewards)
    pairs = list(zip(rewards, tokens, strict=True))
    mean = fsum(reward * number for reward, number in pairs) / count
    variance = fsum(number * (reward - mean) ** 2 for reward, number in pairs) / (count - 1)
    return [(reward - mean) / sqrt(variance + WHITENING_EPSILON) for reward in rewards]


def _part_name() -> pl.Expr:
    numbered = pl.format("{}#{}", pl.col("group_id"), pl.col("rank") % pl.col("parts") + 1)
    return pl.when(pl.col("parts") > 1).then(numbered).otherwise(pl.col("group_id"))


def _varies(step_advantages: pl.Expr) -> pl.Expr:
    return (step_advantages.list.eval(pl.element().abs()).list.max() > REWARD_TOLERANCE).fill_null(value=False)


def _compared(of_all: pl.Expr, kind: JobKind) -> pl.Expr:
    """Return an aggregate over the episodes that are compared: those of a group, or all."""
    return of_all.over("group_id") if kind.is_group_relative else of_all


def _verdict(kind: JobKind, repeats_per_task: int) -> pl.Expr:
    if kind is JobKind.PPO:
        return pl.lit("")
    is_constant = pl.col("compared_reward").max() - pl.col("compared_reward").min() <= REWARD_TOLERANCE
    constant, accepted = pl.lit(Rejection.REWARD_CONSTANT.value), pl.lit("")
    verdict = pl.when(_compared(is_constant & ~pl.col("steps_vary").any(), kind)).then(constant).otherwise(accepted)
    if not kind.is_group_relative:
        return verdict
    is_small = pl.col("members") < repeats_per_task
    return pl.when(is_small).then(pl.lit(Rejection.GROUP_TOO_SMALL.value)).otherwise(verdict)


def _advantages(episodes: pl.DataFrame, kind: JobKind) -> pl.Series:
    """Return the advantage of each episode, null for ppo; rows of a group lie side by side."""
    advantages: list[float] | list[None] = [None] * episodes.height
    if kind is JobKind.REINFORCE_PLUS_PLUS:
        advantages = normalised_rewards(episodes["compared_reward"].to_list(), episodes["tokens"].to_list())
    elif kind.is_group_relative:
        groups = episodes.group_by("group_id", maintain_order=True).agg("compared_reward")["compared_reward"].to_list()
        advantages = [value for rewards in groups for value in GROUP_ADVANTAGES[kind](rewards)]
    advantage = pl.Series("advantage", advantages, dtype=pl.Float64)
    is_counted_by_steps = _compared(pl.col("has_step_scores").any() & ~pl.col("is_scored").all(), kind)
    factor = episodes.select(pl.when(is_counted_by_steps).then(0.0).otherwise(1.0).alias("factor"))["factor"]
    return advantage * factor
