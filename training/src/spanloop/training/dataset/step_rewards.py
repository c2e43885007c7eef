"""Process supervision as in DeepSeekMath (credit ``process_grpo``), and the token rewards of ppo.

Shao et al. 2024, section 4.1.3 (https://arxiv.org/abs/2402.03300): the scores of all steps of a group are normalised as
the recipe normalises rewards, and a token's advantage is the sum over its own step and the later ones of its episode.
The advantage of the episode's own reward is added. Each further scored step subtracts the group's mean score once more,
so where scores are positive on average the sum favours shorter episodes, and longer ones where they are negative;
:mod:`.call_returns` has no such bias. An episode that was not scored as a whole has the mean of its steps'
scores as its reward, which would count them twice: a group with such an episode has the sums alone.

Invariant: as in :mod:`.dataset_groups`, only episodes that can be trained on are compared, in an order of their own.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import polars as pl

from spanloop.training.recipes.base import Recipe
from spanloop.training.recipes.choices import Credit
from spanloop.training.recipes.policy_gradient import Comparison, PolicyGradient, StoredAdvantages

from .call_returns import ROW, STEPS, join_steps, with_call_advantages

NO_STEP_ADVANTAGES: Final = pl.lit(None, STEPS).alias("step_advantages")


def with_step_advantages(checked: pl.DataFrame, recipe: PolicyGradient) -> pl.DataFrame:
    """Add ``step_advantages``, parallel to ``sampled_steps``; null where the credit does not look at single calls.

    Without a comparison (ppo) the steps have the sums of the scores themselves.

    Args:
        checked: Rows with ``reason``, empty where the row can be trained on, and ``step_rewards``.
        recipe: The recipe.
    """
    if recipe.credit not in {Credit.PROCESS, Credit.PROCESS_GRPO}:
        return checked.with_columns(NO_STEP_ADVANTAGES)
    if recipe.credit is Credit.PROCESS and isinstance(recipe, StoredAdvantages):
        return with_call_advantages(checked, recipe)
    return _with_summed_scores(checked, recipe)


def _with_summed_scores(checked: pl.DataFrame, recipe: PolicyGradient) -> pl.DataFrame:
    """Add ``step_advantages``, null where no step of the row's comparison was scored."""
    steps = _scored_steps(checked, recipe.comparison)
    groups = steps.partition_by("group_id") if recipe.comparison is Comparison.GROUP else [steps]
    parts = [part.with_columns(_normalised(part["score"], recipe)) for part in groups if part["score"].count()]
    following = pl.col("score").fill_null(0.0).reverse().cum_sum().reverse().over("episode_id")
    return join_steps(checked, [part.with_columns(step_advantages=following) for part in parts])


def _scored_steps(checked: pl.DataFrame, comparison: Comparison) -> pl.DataFrame:
    """Return the steps of episodes that can be trained on, in order, with ``score``, null for one without.

    Without a comparison (ppo) the scores of rejected rows count too, because they follow the steps before them.
    """
    is_usable = pl.col("reason") == ""
    is_taken = is_usable.any().over("episode_id") if comparison is Comparison.NONE else is_usable
    rows = checked.filter(is_taken & (pl.col("sampled_steps").list.len() > 0))
    steps = rows.select("group_id", *ROW, step="sampled_steps", score="step_rewards").explode("step", "score")
    return steps.sort("group_id", "episode_id", "step")


def _normalised(scores: pl.Series, recipe: PolicyGradient) -> pl.Series:
    given: list[float] = scores.drop_nulls().to_list()
    is_compared = recipe.comparison is not Comparison.NONE
    values = iter(recipe.advantages(given, [1] * len(given)) if is_compared else given)
    return pl.Series("score", [None if score is None else next(values) for score in scores], dtype=pl.Float64)


def token_rewards(rows: pl.DataFrame, recipe: Recipe) -> pl.Series:
    """Return ``rewards`` for a critic, so that the undiscounted return of a token is the sum of what follows it.

    What follows a step are its own score, those of later steps, and the episode's own reward. The last trained token of
    a step has what follows it and not the next step of the row.

    Args:
        rows: With ``step_advantages`` of :func:`with_step_advantages`, ``is_scored`` and ``reward``.
        recipe: The recipe; one without a critic has nulls.
    """
    columns = ("loss_mask", "step_advantages", "sampled_starts", "sampled_ends", "reward", "is_scored")
    each = rows.select(columns).iter_rows(named=True)
    rewards = [_rewards_of_row(row) if recipe.needs_critic else None for row in each]
    return pl.Series("rewards", rewards, dtype=pl.List(pl.Float32))


def _rewards_of_row(row: Mapping[str, Any]) -> list[float]:
    mask: list[int] = row["loss_mask"]
    rewards = [0.0] * len(mask)
    if row["step_advantages"] is None:
        rewards[_last_trained(mask, 0, len(mask))] = row["reward"]
        return rewards
    steps = zip(row["step_advantages"], row["sampled_starts"], row["sampled_ends"], strict=True)
    ends = [(following, _last_trained(mask, start, end)) for following, start, end in steps if any(mask[start:end])]
    own = row["reward"] if row["is_scored"] else 0.0
    for (following, token), (after_next, _) in zip(ends, [*ends[1:], (-own, 0)], strict=True):
        rewards[token] = following - after_next
    return rewards


def _last_trained(mask: Sequence[int], start: int, end: int) -> int:
    return max(token for token in range(start, end) if mask[token])
