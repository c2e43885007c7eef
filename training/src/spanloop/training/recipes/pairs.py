"""The base class of recipes that learn from pairs of attempts."""

from typing import Annotated, ClassVar, Final, Self

from pydantic import Field, model_validator

from .base import Default, LearnsFrom
from .choices import DpoLoss
from .setting import EPISODES, OPTIMISATION
from .text import RendersText

PAIRS_PER_GROUP: Final = 4
"""A group of eight attempts, half of them good, gives four pairs in which each attempt occurs once."""
DPO_BETA: Final = 0.1
"""Rafailov et al. 2023, appendix B."""


class Preference(RendersText):
    """Prefers the better of two attempts at one task."""

    learns_from: ClassVar[LearnsFrom] = LearnsFrom.PAIRS
    defaults: ClassVar = {
        "learning_rate": Default(
            5e-7,
            "Zephyr (Tunstall et al. 2023) and Tulu 3 (Lambert et al. 2024), both with AdamW; Rafailov et al. 2023 use "
            "RMSprop at 1e-6",
        ),
    }
    # the rows of pairs differ in number, and the passes of the ranks must not
    unused_settings: ClassVar[frozenset[str]] = frozenset({"nodes", "gpus_per_node"})

    repeats_per_task: Annotated[int, EPISODES] = Field(default=2, ge=2, le=100_000)
    """Only groups with at least so many episodes that can be trained on; the others wait for more attempts at their
    task. Two are needed for a comparison."""

    pair_margin: Annotated[float, EPISODES] = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Two attempts of a group are a pair when their rewards differ by more than this."""

    pairs_per_group: Annotated[int, EPISODES] = Field(default=PAIRS_PER_GROUP, ge=1, le=64)
    """At most this many pairs of a group; each attempt is used as seldom as possible, and pairs with the largest
    difference of reward come first."""

    dpo_beta: Annotated[float, OPTIMISATION] = Field(default=DPO_BETA, gt=0, le=100, allow_inf_nan=False)
    """How strongly the policy is held near the base: the implicit reward of an attempt is this times the log-ratio of
    its tokens to the base. A smaller number lets the policy move further (Rafailov et al. 2023, equation 7)."""

    dpo_nll_weight: Annotated[float, OPTIMISATION] = Field(default=0.0, ge=0, le=100, allow_inf_nan=False)
    """Weight of a loss term for the negative log-probability of a token of the better attempt, which keeps that attempt
    likely; Pang et al. 2024 ("Iterative Reasoning Preference Optimization") use 1, Rafailov et al. 2023 none."""

    dpo_loss: Annotated[DpoLoss, OPTIMISATION] = DpoLoss.SIGMOID
    """Loss of a pair, by its margin: ``sigmoid`` (Rafailov et al. 2023, equation 7), ``hinge`` (Zhao et al. 2023,
    "SLiC-HF") or ``ipo`` (Azar et al. 2023, equation 17), which pulls the difference of the log-ratios, before
    ``dpo_beta``, to ``1 / (2 dpo_beta)``."""

    dpo_label_smoothing: Annotated[float, OPTIMISATION] = Field(default=0.0, ge=0, le=0.5, allow_inf_nan=False)
    """Assumed share of pairs whose order is wrong (Mitchell 2023, "A note on DPO with noisy preferences and
    relationship to IPO"); of the loss ``sigmoid``."""

    dpo_reference_free: Annotated[bool, OPTIMISATION] = False
    """Prefer the better attempt by the policy's log-probabilities alone, as if the reference gave all attempts the same
    (``reference_free`` of the authors' code of DPO). Nothing holds the policy near the base, and no reference is
    computed."""

    @model_validator(mode="after")
    def _smooths_sigmoid(self) -> Self:
        if self.dpo_label_smoothing and self.dpo_loss is not DpoLoss.SIGMOID:
            raise ValueError(f"dpo_label_smoothing: a setting of the loss sigmoid; {self.dpo_loss} has none")
        return self
