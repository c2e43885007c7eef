"""Credit within one episode from what went wrong at which step, and whose fault it was.

Invariant: jobs and exports mean the same by ``attributed``: the weights of `attributed_weights` on advantages that
compare the episodes of a group. The scheme is ours.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from spanloop.converters.enums import FaultOwner

from ..attribution import ErrorClass

NOT_THE_POLICYS: Final = frozenset({FaultOwner.TOOL, FaultOwner.ENVIRONMENT, FaultOwner.HARNESS, FaultOwner.UNKNOWN})
"""Whose faults say nothing about the policy: a step that meets one is masked."""


class StepFault(NamedTuple):
    """A failure at one step."""

    error_class: str
    owner: FaultOwner
    is_recovered: bool = False
    """The episode went on and did not fail because of it."""


class StepWeights(NamedTuple):
    """Factors of an episode's advantage, a number from 0 to 1 for each step."""

    of_steps: Mapping[int, float]
    elsewhere: float
    """Factor of all other steps."""

    def at(self, step: int) -> float:
        """Return the weight of one step."""
        return self.of_steps.get(step, self.elsewhere)


def attributed_weights(advantage: float, faults: Mapping[int, Sequence[StepFault]]) -> StepWeights:
    """Step weights for a group-relative advantage, ``A_t = w_t·A``.

    A better episode (``A > 0``) does not reinforce the policy's mistakes: their steps weigh 0, all others 1. A worse
    episode (``A < 0``) that failed by mistakes of the policy is paid for at their steps: they weigh 1, all others 0.
    Without such a mistake nothing says which step was wrong, and all weigh 1. ``w_t`` is 0 or 1, so that no weight
    changes the advantage's sign, or its scale by the number of steps. Masked steps weigh 0.

    Args:
        advantage: ``A``, of the episode in its group.
        faults: What went wrong, by step.
    """
    masked = {step for step, here in faults.items() if is_not_the_policys(here)}
    mistakes = {step: here for step, here in faults.items() if step not in masked and is_policys_mistake(here)}
    is_paid_there = advantage < 0 and any(
        _is_located_mistake(fault) and not fault.is_recovered for here in mistakes.values() for fault in here
    )
    if is_paid_there:
        return StepWeights(dict.fromkeys(mistakes, 1.0), elsewhere=0.0)
    without_credit = masked | mistakes.keys() if advantage > 0 else masked
    return StepWeights(dict.fromkeys(without_credit, 0.0), elsewhere=1.0)


def is_not_the_policys(faults: Iterable[StepFault]) -> bool:
    """Whether a step must not be trained on: what followed it was not its doing."""
    return any(fault.owner in NOT_THE_POLICYS for fault in faults)


def is_policys_mistake(faults: Iterable[StepFault]) -> bool:
    """Whether the policy did something wrong at this very step; a wrong answer says nothing about the step."""
    return any(_is_located_mistake(fault) for fault in faults)


def _is_located_mistake(fault: StepFault) -> bool:
    return fault.owner is FaultOwner.POLICY and fault.error_class != ErrorClass.WRONG_ANSWER
