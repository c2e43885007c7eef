"""Limits of drift on stored data: how often rows are trained on, and how far the policy moves from their sampler.

Invariant: a job that its KL budget ends has a checkpoint whose policy was measured to be within it, or it fails. The
divergence is measured before each update, so the last update of a job that runs to its end is not measured.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict

from .early_stopping import EarlyStopError

KL: Final = "rollout_corr/k3_kl"
"""Metric of verl: mean over the trained tokens of ``r - log r - 1``, ``r`` the ratio of the policy before the step's
update to the sampler. Schulman's k3 estimate of the KL divergence from the sampler to the policy, in nats."""
ENDED_NAME: Final = "ended_early.json"
"""File of a job's folder: why the job ended before its last step."""


class KlBudgetError(EarlyStopError):
    """The policy left its KL budget; the batch of ``step`` showed it."""

    def __init__(self, step: int, kl: float, budget: float) -> None:
        super().__init__(
            "kl_budget",
            f"before the update of step {step} the policy's KL to the rows' sampler is {kl:.3g} nats a token, over "
            f"the budget of {budget:g}.",
            next_step="Collect new episodes with the newest version, take fewer steps or a smaller learning_rate, or "
            "raise kl_budget.",
            last_step=last_step_within(step),
        )


class EndedEarly(BaseModel):
    """Why and where a job ended before its last step."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    step: int
    """The last step whose checkpoint may be used."""
    reason: str


def passes(steps: int, batch: int, units: int) -> float:
    """Return how often each of ``units`` groups or rows is trained on by ``steps`` batches, on average."""
    return steps * batch / units


def steps_within(steps: int, batch: int, units: int, max_passes: float) -> int:
    """Return the steps that stay within ``max_passes`` over the data; at least one."""
    return max(1, min(steps, math.floor(max_passes * units / batch + 1e-9)))


def require_within(budget: float | None, metrics: Mapping[str, float], step: int) -> None:
    """Check the KL that was measured before the update of ``step``.

    Raises:
        KlBudgetError: It is over the budget.
    """
    kl = metrics.get(KL)
    if budget is not None and kl is not None and kl > budget:
        raise KlBudgetError(step, kl, budget)


def last_step_within(step: int) -> int:
    """Return the last step whose weights were measured within the budget, when the batch of ``step`` showed too much.

    The batch of ``step`` measures the weights after ``step - 1``; the one before it measured those after ``step - 2``.
    """
    return step - 2


def read_ended(folder: Path) -> EndedEarly | None:
    """Return why an earlier attempt ended the training early; None when it did not."""
    path = folder / ENDED_NAME
    return EndedEarly.model_validate_json(path.read_bytes()) if path.exists() else None
