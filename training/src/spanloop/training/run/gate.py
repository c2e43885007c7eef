"""The gate between two stages of a job: what a stage did to rows that it was not trained on.

Invariant: it needs no serving and no new episodes; the version before and the one after the stage score the same
held-out rows. A number that is not finite never passes.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import polars as pl

from spanloop.foundation.errors import JobError
from spanloop.foundation.paths import write_atomically
from spanloop.training.recipes.base import LearnsFrom, Recipe
from spanloop.training.recipes.policy_gradient import Comparison, PolicyGradient

from ..dataset.held_out import HELD_OUT_NAME
from ..dataset.pairs import Side
from ..jobs.training_ids import job_of
from ..spec.choices import Device
from .gate_result import ACCURACY, GATE_NAME, NLL, GateResult, read_gate

SCORES_NAME: Final = "held_out_logprobs.parquet"
CHANCE: Final = 0.5


def judge(recipe: Recipe, scored: pl.DataFrame) -> GateResult:
    """Return the result of the gate after a stage.

    sft: the held-out rows, which are good episodes, are at least as likely as before. Policy gradients: the rows with
    a reward above the mean are; of their group, where the recipe compares a group's episodes. dpo: at least half of
    the held-out pairs are ordered as their rewards.

    Args:
        recipe: Of the stage.
        scored: A row each with ``before`` and ``after`` (sums of the trained tokens' log-probabilities, in nats),
            ``tokens``, ``reward``, ``group_id``, ``pair_id`` and ``side``.

    Raises:
        JobError: No held-out row is better than another.
    """
    if recipe.learns_from is LearnsFrom.PAIRS:
        return _accuracy(scored)
    if isinstance(recipe, PolicyGradient):
        is_grouped = recipe.comparison is Comparison.GROUP
        mean = pl.col("reward").mean()
        scored = scored.filter(pl.col("reward") > (mean.over("group_id") if is_grouped else mean))
        if scored.is_empty():
            raise JobError(
                "No held-out row has a reward above the mean, so the gate has nothing to measure.",
                next_step="Hold out more groups (--held-out-share), or train without a gate: --held-out-share 0.",
            )
    tokens = float(scored["tokens"].sum())
    before, after = (-float(scored[name].sum()) / tokens for name in ("before", "after"))
    return GateResult(measure=NLL, got=after, expected=before, passed=after <= before, rows=scored.height)


def _accuracy(scored: pl.DataFrame) -> GateResult:
    sign = pl.when(pl.col("side") == Side.CHOSEN.value).then(1.0).otherwise(-1.0)
    margins = scored.group_by("pair_id").agg(margin=(sign * (pl.col("after") - pl.col("before"))).sum())["margin"]
    accuracy = float((margins > 0).sum()) / len(margins) if margins.is_finite().all() else float("nan")
    return GateResult(measure=ACCURACY, got=accuracy, expected=CHANCE, passed=accuracy >= CHANCE, rows=scored.height)


def run_gate(folder: Path, recipe: Recipe, *, before: Path, after: Path, device: Device) -> GateResult:
    """Score the held-out rows of a stage's folder under both models, and keep the result in the folder.

    Args:
        folder: Of the stage.
        recipe: Of the stage.
        before: Hugging Face folder that the stage started from.
        after: The one that it made.
        device: That the stage computes on.

    Raises:
        JobError: The models cannot be evaluated.
    """
    path = folder / GATE_NAME
    stored = read_gate(folder)
    if stored is not None:
        return stored
    command = [sys.executable, "-m", "spanloop.training.run.held_out_logprobs", str(folder / HELD_OUT_NAME)]
    command += [str(folder / SCORES_NAME), str(before), str(after), device.value]
    # the job's mark is in the environment, so whoever ends the job ends this process too
    status = subprocess.run(command, env=os.environ | {"PYTHONWARNINGS": "ignore"}, check=False).returncode
    if status != 0:
        raise JobError(
            f"The held-out rows of {folder.name} could not be scored: exit status {status}.",
            next_step=f"spanloop jobs log {job_of(folder.name)} says why; spanloop jobs retry goes on here.",
        )
    result = judge(recipe, pl.read_parquet(folder / SCORES_NAME))
    write_atomically(path, result.model_dump_json(indent=1))
    return result
