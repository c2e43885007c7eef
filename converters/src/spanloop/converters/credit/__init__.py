"""Credit: from an episode's reward to a number for each step.

Pure functions over plain sequences, each with its formula and its source; ``assign`` applies one to a frame of
transitions.
"""

from .assign import CREDIT_METHODS, FAULT_COLUMNS, CreditMethod, assign
from .attributed import (
    NOT_THE_POLICYS,
    StepFault,
    StepWeights,
    attributed_weights,
    is_not_the_policys,
    is_policys_mistake,
)
from .call_numbers import call_advantages
from .groups import group_advantages, leave_one_out
from .returns import broadcast, discounted_returns
from .step_groups import step_group_advantages

__all__ = [
    "CREDIT_METHODS",
    "FAULT_COLUMNS",
    "NOT_THE_POLICYS",
    "CreditMethod",
    "StepFault",
    "StepWeights",
    "assign",
    "attributed_weights",
    "broadcast",
    "call_advantages",
    "discounted_returns",
    "group_advantages",
    "is_not_the_policys",
    "is_policys_mistake",
    "leave_one_out",
    "step_group_advantages",
]
