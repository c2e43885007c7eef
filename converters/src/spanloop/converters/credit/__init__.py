"""Credit: from an episode's reward to a number for each step.

Pure functions over plain sequences, each with its formula and its source; ``assign`` applies one to a frame of
transitions.
"""

from .assign import CREDIT_METHODS, CreditMethod, assign
from .attributed import AttributedReward, StepFault, attributed_rewards
from .groups import group_advantages, leave_one_out
from .returns import broadcast, discounted_returns
from .step_groups import step_group_advantages

__all__ = [
    "CREDIT_METHODS",
    "AttributedReward",
    "CreditMethod",
    "StepFault",
    "assign",
    "attributed_rewards",
    "broadcast",
    "discounted_returns",
    "group_advantages",
    "leave_one_out",
    "step_group_advantages",
]
