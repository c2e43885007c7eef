"""Process supervision: what the scores of single model calls add to the episode's reward.

Shao et al. 2024, section 4.1.3 (https://arxiv.org/abs/2402.03300): the scores of all steps of a group are normalised as
the recipe normalises rewards, and a token's advantage is the sum over its own step and the later ones of its episode.
The advantage of the episode's own reward is added. An episode that was not scored as a whole has the mean of its steps'
scores as its reward, which would count them twice: a group with such an episode has the sums alone.

Invariant: as in :mod:`.dataset_groups`, only episodes that can be trained on are compared, in an order of their own.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import polars as pl

from spanloop.semconv.enums import JobKind

from .dataset_groups import GROUP_ADVANTAGES, normalised_rewards

_ROW: Final = ("episode_id", "row_number")
_STEPS: Final = pl.List(pl.Float64)
NO_STEP_ADVANTAGES: Final = pl.lit(None, _STEPS).alias("step_advantages")


def with_step_advantages(checked: pl.DataFrame, kind: JobKind) -> pl.DataFrame:
    """Add ``step_advantages``, parallel to ``sampled_steps``; null where no step of the row's comparison was scored.

    Args:
        checked: Rows with ``reason``, empty where the row can be trained on, and ``step_rewards``.
        kind: The recipe. ppo compares nothing: its steps have the sums of the scores themselves.
    """
    steps = _scored_steps(checked)
    groups = [steps] if kind in {JobKind.REINFORCE_PLUS_PLUS, JobKind.PPO} else steps.partition_by("group_id")
    parts = [part.with_columns(_normalised(part["score"], kind)) for part in groups if part["score"].count()]
    schema = {**checked.select(_ROW).schema, "step_advantages": _STEPS}
    following = pl.col("score").fill_null(0.0).reverse().cum_sum().reverse().over("episode_id")
    sums = [
        part.with_columns(step_advantages=following).group_by(_ROW, maintain_order=True).agg("step_advantages")
        for part in parts
    ]
    return checked.join(pl.concat([pl.DataFrame(schema=schema), *sums]), on=_ROW, how="left", maintain_order="left")


def _scored_steps(checked: pl.DataFrame) -> pl.DataFrame:
    """Return the steps of the usable rows in the order of their episodes, with ``score``, null for one without."""
    usable = checked.filter((pl.col("reason") == "") & (pl.col("sampled_steps").list.len() > 0))
    steps = usable.select("group_id", *_ROW, step="sampled_steps", score="step_rewards").explode("step", "score")
    return steps.sort("group_id", "episode_id", "step")


def _normalised(scores: pl.Series, kind: JobKind) -> pl.Series:
    given: list[float] = scores.drop_nulls().to_list()
    if kind is JobKind.REINFORCE_PLUS_PLUS:
        values = iter(normalised_rewards(given, [1] * len(given)))
    else:
        values = iter(GROUP_ADVANTAGES[kind](given) if kind in GROUP_ADVANTAGES else given)
    return pl.Series("score", [None if score is None else next(values) for score in scores], dtype=pl.Float64)


def token_rewards(rows: pl.DataFrame, kind: JobKind) -> pl.Series:
    """Return ``rewards`` of ppo, so that the undiscounted return of a token is the sum of what follows it; else nulls.

    What follows a step are its own score, those of later steps, and the episode's own reward. The last trained token of
    a step has what follows it and not the next step of the row.

    Args:
        rows: With ``step_advantages`` of :func:`with_step_advantages`, ``is_scored`` and ``reward``.
        kind: The recipe.
    """
    columns = ("loss_mask", "step_advantages", "sampled_starts", "sampled_ends", "reward", "is_scored")
    is_ppo = kind is JobKind.PPO
    rewards = [_rewards_of_row(row) if is_ppo else None for row in rows.select(columns).iter_rows(named=True)]
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
