"""Apply the data strategies of a job to the rows that it could train on.

Invariant: strategies keep or leave out whole units: the groups of kinds that compare attempts, the episodes of sft.
Advantages and pairs are made before, from all episodes that may be trained on, and what is kept has them unchanged. The
order is curriculum, coreset, replay; each sees what the one before it left.
"""

from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from spanloop.training.dataset.rejections import Rejection
from spanloop.training.recipes.base import Recipe
from spanloop.training.spec.row_source import RowSource

from ...spec.choices import Coreset, Curriculum
from . import curriculum
from .coreset import HYBRID_CANDIDATES, bigram_features, choose, requested
from .replay import UnitRows, kept_by_replay
from .report import StrategyReport
from .sample_metrics import distinct_2, trained_tokens
from .settings import DataStrategies


class Applied(NamedTuple):
    """The result of :func:`apply_strategies`."""

    checked: pl.DataFrame
    """The input with the reasons of rows that a strategy leaves out."""
    accepted: pl.DataFrame
    """The rows of ``usable`` that are trained on, with the columns of ``sample_metrics``."""
    reports: tuple[StrategyReport, ...]


def apply_strategies(
    checked: pl.DataFrame, usable: pl.DataFrame, recipe: Recipe, strategies: DataStrategies
) -> Applied:
    """Choose among the units with a row that can be trained on.

    Args:
        checked: Every input row with ``reason``, empty where it can be trained on.
        usable: The rows that are trained on where their ``reason`` is empty; ``checked`` itself, or the rows of pairs.
        recipe: Decides what a unit is.
        strategies: Of the job.
    """
    unit = curriculum.group_of() if recipe.has_groups else pl.col("episode_id")
    rates = curriculum.pass_rates(checked)
    rows = usable.filter(pl.col("reason") == "").with_columns(unit=unit, group=curriculum.group_of())
    rows = rows.join(rates, on="group", how="left", maintain_order="left").drop("group")
    choice = _Choice(rows, "groups" if recipe.has_groups else "episodes")
    _curriculum(choice, strategies)
    losses = _coreset(choice, strategies)
    _replay(choice, strategies)
    accepted = choice.rows.drop("unit", "reason")
    accepted = accepted.join(losses, on="trajectory_id", how="left", maintain_order="left")
    return Applied(
        checked=_with_reasons(checked.with_columns(unit=unit), choice.left_out).drop("unit"),
        accepted=accepted.with_columns(distinct_2(accepted)),
        reports=tuple(choice.reports),
    )


def order_of(strategies: DataStrategies) -> list[pl.Expr]:
    """Return what rows are sorted by before anything else; nothing without a curriculum."""
    easy_first = -pl.col("pass_rate")
    ranks = {Curriculum.NONE: [], Curriculum.EASY_TO_HARD: [easy_first], Curriculum.HARD_TO_EASY: [-easy_first]}
    behind_all = 2.0
    return [rank.fill_null(behind_all) for rank in ranks[strategies.curriculum]]


class _Choice:
    """The units that are left, and why the others are not."""

    def __init__(self, rows: pl.DataFrame, unit: str) -> None:
        self.rows = rows
        self.left_out: dict[str, str] = {}
        self.reports: list[StrategyReport] = []
        self._unit = unit

    @property
    def units(self) -> pl.DataFrame:
        """``unit``, ``rows`` and ``pass_rate`` of each unit that is left, by name."""
        return self.rows.group_by("unit").agg(rows=pl.len(), pass_rate=pl.col("pass_rate").first()).sort("unit")

    def keep(self, units: pl.DataFrame, is_kept: pl.Series, strategy: str, rejection: Rejection, why: str) -> None:
        """Leave out the units that are not kept, and report it."""
        kept_units = units.filter(is_kept)
        self.left_out |= dict.fromkeys(units.filter(~is_kept)["unit"], rejection.value)
        self.rows = self.rows.join(kept_units.select("unit"), on="unit", how="semi", maintain_order="left")
        self.reports.append(
            StrategyReport(strategy=strategy, unit=self._unit, kept=kept_units.height, available=units.height, why=why)
        )


def _curriculum(choice: _Choice, strategies: DataStrategies) -> None:
    order = "" if strategies.curriculum is Curriculum.NONE else strategies.curriculum.replace("_", " ")
    has_limits = strategies.min_pass_rate is not None or strategies.max_pass_rate is not None
    if not order and not has_limits:
        return
    units = choice.units
    is_kept = units.with_columns(kept=curriculum.is_within(strategies))["kept"]
    why = ", ".join(part for part in (curriculum.explain(strategies) if has_limits else "", order) if part)
    choice.keep(units, is_kept, "curriculum", Rejection.PASS_RATE_OUTSIDE, why)


def _coreset(choice: _Choice, strategies: DataStrategies) -> pl.DataFrame:
    """Return ``base_loss`` by ``trajectory_id``, as far as it was computed."""
    losses = pl.DataFrame(schema={"trajectory_id": pl.String, "base_loss": pl.Float64})
    method = strategies.coreset
    if method is Coreset.NONE:
        return losses
    units = choice.units
    rows = choice.rows.unique("trajectory_id", maintain_order=True)
    number = requested(units.height, strategies.coreset_share, strategies.coreset_size)
    if method.needs_losses and units.height:
        if strategies.row_losses is None:
            raise ValueError(f"coreset {method}: needs row_losses")
        losses = rows.select("trajectory_id").with_columns(strategies.row_losses(rows).alias("base_loss"))
    chosen = choose(
        method,
        units["unit"].to_list(),
        number,
        strategies.seed,
        losses=_unit_losses(units, rows.join(losses, on="trajectory_id", how="left", maintain_order="left")),
        features=None if method in {Coreset.RANDOM, Coreset.LOSS} else _unit_features(units, rows),
    )
    is_kept = pl.int_range(units.height, eager=True).is_in(pl.Series(chosen, dtype=pl.Int64).implode())
    choice.keep(units, is_kept, "coreset", Rejection.NOT_IN_CORESET, _coreset_reason(strategies, number))
    return losses


def _coreset_reason(strategies: DataStrategies, number: int) -> str:
    reasons = {
        Coreset.RANDOM: f"by seed {strategies.seed}",
        Coreset.LOSS: "largest mean loss of a trained token under the base",
        Coreset.DIVERSITY: "bigrams of the trained tokens farthest from each other",
        Coreset.HYBRID: f"farthest from each other among the {HYBRID_CANDIDATES * number} with the largest loss",
    }
    return f"{strategies.coreset}: {reasons[strategies.coreset]}"


def _unit_losses(units: pl.DataFrame, rows: pl.DataFrame) -> NDArray[np.float64]:
    """Return the mean over the trained tokens of each unit; NaN where no loss was computed."""
    tokens = pl.col("loss_mask").list.sum().cast(pl.Float64)
    means = rows.group_by("unit").agg(loss=(pl.col("base_loss") * tokens).sum() / tokens.sum())
    return units.join(means, on="unit", how="left", maintain_order="left")["loss"].to_numpy()


def _unit_features(units: pl.DataFrame, rows: pl.DataFrame) -> NDArray[np.float32]:
    """Return the bigrams of the trained tokens of each unit's rows."""
    by_unit: dict[str, list[NDArray[np.int64]]] = {}
    for unit, tokens in zip(rows["unit"], trained_tokens(rows), strict=True):
        by_unit.setdefault(unit, []).append(tokens)
    return bigram_features([np.concatenate(by_unit[unit]) for unit in units["unit"]])


def _replay(choice: _Choice, strategies: DataStrategies) -> None:
    if strategies.replay_ratio is None:
        return
    # the id of a dialog is its place in the job's own files
    is_episode = pl.col("source") != RowSource.DIALOG.value
    is_replayed = pl.col("episode_id").is_in(sorted(strategies.trained_episodes)) & is_episode
    units = choice.rows.group_by("unit").agg(rows=pl.len(), replayed=is_replayed.sum()).sort("unit")
    is_kept = pl.Series(
        kept_by_replay([UnitRows(*row) for row in units.iter_rows()], strategies.replay_ratio, strategies.seed),
        dtype=pl.Boolean,
    )
    rows, replayed = (int(units.filter(is_kept)[name].sum()) for name in ("rows", "replayed"))
    why = f"{replayed} of {rows} rows are of episodes that the base learned from, ratio {strategies.replay_ratio:g}"
    choice.keep(units, is_kept, "replay", Rejection.OVER_REPLAY_RATIO, why)


def _with_reasons(rows: pl.DataFrame, left_out: dict[str, str]) -> pl.DataFrame:
    reasons = pl.DataFrame(list(left_out.items()), schema={"unit": pl.String, "rejection": pl.String}, orient="row")
    joined = rows.join(reasons, on="unit", how="left", maintain_order="left")
    reason = pl.when(pl.col("reason") == "").then(pl.col("rejection").fill_null("")).otherwise(pl.col("reason"))
    return joined.with_columns(reason=reason).drop("rejection")
