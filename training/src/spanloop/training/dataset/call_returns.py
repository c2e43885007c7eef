"""Returns to go of the model calls of an episode, and the advantages that compare them.

The return to go of a call is its own score and those of all later calls of its episode, discounted once for each call
between. The episode's own reward follows the last call. An episode that was not scored as a whole has the mean of its
calls' scores as its reward, which would count them twice: where such an episode is compared and a call was scored, no
episode's own reward counts.

Invariant: the number of a call is its position among all sampled calls of its episode, in the order of steps, whatever
agent made them. Neither a call without a score, nor a masked one, nor one whose row is rejected changes the number or
the return of another. Only episodes that can be trained on are compared.
"""

from collections.abc import Sequence
from math import fsum
from typing import Final

import polars as pl

from spanloop.converters.credit import call_advantages, discounted_returns
from spanloop.training.recipes.choices import Credit
from spanloop.training.recipes.policy_gradient import Comparison, PolicyGradient, StoredAdvantages

from .groups import REWARD_TOLERANCE

ROW: Final = ("episode_id", "row_number")
STEPS: Final = pl.List(pl.Float64)


def sampled_calls(checked: pl.DataFrame) -> pl.DataFrame:
    """Return every sampled call of the episodes that have a usable row, in the order of their episodes.

    A row without ``sampled_steps`` (of an earlier converter) counts as one call without a score, at its first step.

    Args:
        checked: Rows with ``reason``, empty where the row can be trained on.

    Returns:
        ``group_id``, ``episode_id``, ``row_number``, ``step``, ``score`` (null without one), ``reward``, ``is_scored``.
    """
    has_steps = pl.col("sampled_steps").list.len() > 0
    step = pl.when(has_steps).then("sampled_steps").otherwise(pl.concat_list("first_step"))
    score = pl.when(has_steps).then("step_rewards").otherwise(pl.lit([None], STEPS))
    rows = checked.filter((pl.col("reason") == "").any().over("episode_id"))
    calls = rows.select("group_id", *ROW, "reward", "is_scored", step=step, score=score).explode("step", "score")
    return calls.sort("group_id", "episode_id", "step")


def with_call_advantages(checked: pl.DataFrame, recipe: StoredAdvantages) -> pl.DataFrame:
    """Add ``step_advantages``, parallel to the row's sampled calls; null in episodes without a usable row.

    Args:
        checked: Rows with ``reason``, empty where the row can be trained on, and ``step_rewards``.
        recipe: The recipe.
    """
    calls = sampled_calls(checked)
    is_whole = recipe.comparison is Comparison.DATASET
    groups = [calls] if is_whole else calls.partition_by("group_id", maintain_order=True)
    parts = [group.with_columns(_advantages_of_calls(group, recipe)) for group in groups]
    return join_steps(checked, parts)


def with_compared_rewards(checked: pl.DataFrame, recipe: PolicyGradient) -> pl.DataFrame:
    """Add ``compared_reward``, by which whole episodes are compared.

    ``process`` compares calls: 0. ``attributed`` takes the return of the first call, ``gamma^(calls - 1)·R``: a
    discount at each call would make the baseline of a call depend on the length of its episode.

    Args:
        checked: Rows with ``reason``, empty where the row can be trained on.
        recipe: The recipe.
    """
    if recipe.credit is Credit.PROCESS:
        return checked.with_columns(compared_reward=pl.lit(0.0))
    gamma = recipe.gamma if isinstance(recipe, StoredAdvantages) else 1.0
    if recipe.credit is not Credit.ATTRIBUTED or gamma == 1:
        return checked.with_columns(compared_reward="reward")
    counts = sampled_calls(checked).group_by("episode_id").agg(calls=pl.len().cast(pl.Int64))
    discounted = pl.col("reward") * pl.lit(gamma, pl.Float64).pow(pl.col("calls") - 1)
    with_calls = checked.join(counts, on="episode_id", how="left", maintain_order="left")
    return with_calls.with_columns(compared_reward=discounted).drop("calls")


def join_steps(checked: pl.DataFrame, parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Join ``step_advantages`` of calls to their rows as lists in the order of steps; null where ``parts`` has none."""
    schema = {**checked.select(ROW).schema, "step_advantages": STEPS}
    lists = [part.group_by(ROW, maintain_order=True).agg("step_advantages") for part in parts]
    return checked.join(pl.concat([pl.DataFrame(schema=schema), *lists]), on=ROW, how="left", maintain_order="left")


def _advantages_of_calls(calls: pl.DataFrame, recipe: StoredAdvantages) -> pl.Series:
    """Return the advantages of the calls of all episodes that are compared."""
    episodes = calls.group_by("episode_id", maintain_order=True).agg(
        pl.col("score").fill_null(0.0), pl.col("reward", "is_scored").first()
    )
    counts_reward = bool(episodes["is_scored"].all()) or calls["score"].count() == 0
    returns = [
        discounted_returns([*scores[:-1], scores[-1] + (reward if counts_reward else 0.0)], recipe.gamma)
        for scores, reward in episodes.select("score", "reward").iter_rows()
    ]
    advantages = _scaled(call_advantages(returns, over_others=recipe.leaves_one_out), recipe)
    values = [value for episode in advantages for value in episode]
    return pl.Series("step_advantages", values, dtype=pl.Float64)


def _scaled(advantages: list[list[float]], recipe: StoredAdvantages) -> list[list[float]]:
    """Divide by the deviation from the baselines, over all calls that are compared; zeros where nothing varies.

    One positive number divides them all: it changes no sign, and no ratio between the calls of a group. The mean of the
    advantages is not subtracted, because that would be a cost of each call.
    """
    flat = [value for episode in advantages for value in episode]
    if max(map(abs, flat), default=0.0) <= REWARD_TOLERANCE:
        return [[0.0] * len(episode) for episode in advantages]
    scale = recipe.deviation(fsum(value**2 for value in flat) / (len(flat) - 1))
    return [[value / scale for value in episode] for episode in advantages]
