"""The kinds of training jobs, stored as their string values."""

from enum import StrEnum
from typing import Final


class JobKind(StrEnum):
    """What a training job runs."""

    DR_GRPO = "dr_grpo"
    """GRPO without division by a group's standard deviation or a row's length (Liu et al. 2025)."""
    GRPO = "grpo"
    """Group-relative policy optimisation (Shao et al. 2024)."""
    RLOO = "rloo"
    """REINFORCE with a leave-one-out baseline (Ahmadian et al. 2024)."""
    GSPO = "gspo"
    """GRPO with one importance ratio for each row (Zheng et al. 2025)."""
    REINFORCE_PLUS_PLUS = "reinforce_plus_plus"
    """REINFORCE with rewards normalised over all groups (Hu et al. 2025)."""
    PPO = "ppo"
    """Proximal policy optimisation with a learned value function (Schulman et al. 2017)."""
    SFT = "sft"
    """Imitation of stored actions."""
    DPO = "dpo"
    """Direct preference optimisation on pairs of a better and a worse attempt (Rafailov et al. 2023)."""

    @property
    def display_name(self) -> str:
        """The name that papers use."""
        return _RECIPE_NAMES.get(self, self.value.upper())

    @property
    def batch_unit(self) -> str:
        """What its batches are made of."""
        return "groups" if self.is_policy_gradient else "pairs" if self is JobKind.DPO else "rows"

    @property
    def has_groups(self) -> bool:
        """Whether it compares the episodes of a group."""
        return self.is_policy_gradient or self is JobKind.DPO

    @property
    def is_policy_gradient(self) -> bool:
        """Whether it learns from advantages of sampled tokens, with the sampler's log-probabilities."""
        return self.is_group_relative or self in {JobKind.REINFORCE_PLUS_PLUS, JobKind.PPO}

    @property
    def is_group_relative(self) -> bool:
        """Whether an advantage compares an episode with the others of its group."""
        return self in {JobKind.DR_GRPO, JobKind.GRPO, JobKind.RLOO, JobKind.GSPO}


_RECIPE_NAMES: Final = {JobKind.DR_GRPO: "Dr. GRPO", JobKind.REINFORCE_PLUS_PLUS: "REINFORCE++"}


"""Names that are not the value in capitals."""
