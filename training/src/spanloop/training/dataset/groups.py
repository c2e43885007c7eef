"""Advantages of episodes, and the parts of groups that batches are made of.

Invariant: an advantage depends on the recipe and on the episodes that it compares and that can be trained on: those of
the same group, or of the whole dataset. Parts are cut afterwards and keep it, so neither the size of a part nor an
episode that is rejected changes another's advantage. A recipe without a comparison has no advantages here; verl
computes them from the critic's values.
"""

from typing import Final

import polars as pl

from spanloop.training.recipes.policy_gradient import Comparison, GroupRelative, PolicyGradient

from .rejections import Rejection

REWARD_TOLERANCE: Final = 1e-6
"""Rewards that lie closer together than this do not vary."""


def compare_groups(checked: pl.DataFrame, recipe: PolicyGradient) -> pl.DataFrame:
    """Give each row its episode's ``advantage``, ``part`` and ``session``; reject episodes that have no advantage.

    The parts of a group differ by at most one episode, and rewards are dealt out evenly. An episode without a group is
    a group of its own, which only recipes without a group's baseline accept. Where ``step_advantages`` has the scores
    of single steps, these vary too, and rewards that are their means have no advantage.

    Args:
        checked: Rows with ``reason``, empty where the row can be trained on, their final ``loss_mask``,
            ``compared_reward`` of the episode, and ``step_advantages``.
        recipe: With ``group_size``, the largest number of episodes in a part.
    """
    if recipe.comparison is not Comparison.GROUP:
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
        .with_columns(rank=rank, members=members, parts=(members + (recipe.group_size - 1)) // recipe.group_size)
        .with_columns(part=_part_name())
        .with_columns(session=pl.int_range(pl.len(), dtype=pl.UInt32).over("part"), rejection=_rejection(recipe))
    )
    compared = episodes.select("episode_id", "part", "session", "rejection", advantage=_advantages(episodes, recipe))
    reason = pl.when(pl.col("reason") == "").then(pl.col("rejection")).otherwise(pl.col("reason"))
    return checked.join(compared, on="episode_id", how="left").with_columns(reason=reason).drop("rejection")


def _part_name() -> pl.Expr:
    numbered = pl.format("{}#{}", pl.col("group_id"), pl.col("rank") % pl.col("parts") + 1)
    return pl.when(pl.col("parts") > 1).then(numbered).otherwise(pl.col("group_id"))


def _varies(step_advantages: pl.Expr) -> pl.Expr:
    return (step_advantages.list.eval(pl.element().abs()).list.max() > REWARD_TOLERANCE).fill_null(value=False)


def _compared(of_all: pl.Expr, comparison: Comparison) -> pl.Expr:
    """Return an aggregate over the episodes that are compared: those of a group, or all."""
    return of_all.over("group_id") if comparison is Comparison.GROUP else of_all


def _rejection(recipe: PolicyGradient) -> pl.Expr:
    comparison = recipe.comparison
    if comparison is Comparison.NONE:
        return pl.lit("")
    is_constant = pl.col("compared_reward").max() - pl.col("compared_reward").min() <= REWARD_TOLERANCE
    constant, accepted = pl.lit(Rejection.REWARD_CONSTANT.value), pl.lit("")
    is_alike = _compared(is_constant & ~pl.col("steps_vary").any(), comparison)
    rejection = pl.when(is_alike).then(constant).otherwise(accepted)
    if not isinstance(recipe, GroupRelative):
        return rejection
    is_small = pl.col("members") < recipe.repeats_per_task
    return pl.when(is_small).then(pl.lit(Rejection.GROUP_TOO_SMALL.value)).otherwise(rejection)


def _advantages(episodes: pl.DataFrame, recipe: PolicyGradient) -> pl.Series:
    """Return the advantage of each episode, null without a comparison; rows of a group lie side by side."""
    compared = [] if recipe.comparison is Comparison.NONE else [episodes]
    if recipe.comparison is Comparison.GROUP:
        compared = episodes.partition_by("group_id", maintain_order=True)
    advantages = [
        value
        for part in compared
        for value in recipe.advantages(part["compared_reward"].to_list(), part["tokens"].to_list())
    ]
    advantage = pl.Series("advantage", advantages or [None] * episodes.height, dtype=pl.Float64)
    is_counted_by_steps = _compared(pl.col("has_step_scores").any() & ~pl.col("is_scored").all(), recipe.comparison)
    factor = episodes.select(pl.when(is_counted_by_steps).then(0.0).otherwise(1.0).alias("factor"))["factor"]
    return advantage * factor
