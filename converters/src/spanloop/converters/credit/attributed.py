"""Credit within one episode from what went wrong at which step, and whose fault it was.

Two forms of one scheme, which is ours: ``attributed_rewards`` for methods that sum rewards, ``attributed_weights`` for
advantages that compare the episodes of a group. Both mask the same steps (``is_not_the_policys``).
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from spanloop.converters.enums import FaultOwner

from ..attribution import ErrorClass

NOT_THE_POLICYS: Final = frozenset({FaultOwner.TOOL, FaultOwner.ENVIRONMENT, FaultOwner.HARNESS, FaultOwner.UNKNOWN})
"""Whose faults say nothing about the policy: a step that meets one is masked."""


class StepFault(NamedTuple):
    """What went wrong at one step."""

    error_class: str
    owner: FaultOwner
    is_recovered: bool = False
    """The episode went on and did not fail because of it."""


class AttributedReward(NamedTuple):
    """A step's reward."""

    reward: float
    is_masked: bool
    """Whether the step must not be trained on: what followed it was not its doing."""


def attributed_rewards(
    reward: float,
    faults: Sequence[Iterable[StepFault]],
    *,
    decided_by: FaultOwner | None = None,
    cost: float = 0.1,
    costs: Mapping[str, float] = MappingProxyType({}),
) -> list[AttributedReward]:
    """Step rewards, ``r_t = [t = T-1]·R - Σ_{f at t, owner(f) = policy} c(class(f))``, with a mask.

    Masked are the steps at which a tool, the environment, the harness or nobody known failed, and all steps of an
    episode that one of them decided. Only the policy's own mistakes cost; those of users cost nothing and mask nothing.
    The sum of rewards of an episode without mistakes is ``R``, as with a reward at the end.

    Args:
        reward: ``R``, the episode's reward.
        faults: What went wrong, a collection for each step.
        decided_by: The owner of the failure that decided the episode; None without one.
        cost: Of a mistake whose class is not in ``costs``; at least 0.
        costs: Error class → cost.

    Raises:
        ValueError: When a cost is negative.
    """
    if cost < 0 or any(each < 0 for each in costs.values()):
        raise ValueError(f"costs are {cost!r} and {dict(costs)!r}, expected numbers of at least 0")
    last = len(faults) - 1
    found: list[AttributedReward] = []
    for index, here in enumerate(faults):
        own = list(here)
        mistakes = sum(costs.get(fault.error_class, cost) for fault in own if fault.owner is FaultOwner.POLICY)
        is_masked = decided_by in NOT_THE_POLICYS or is_not_the_policys(own)
        found.append(AttributedReward((reward if index == last else 0.0) - mistakes, is_masked))
    return found


class StepWeights(NamedTuple):
    """Factors of an episode's advantage, a number from 0 to 1 for each step."""

    of_steps: Mapping[int, float]
    elsewhere: float
    """Of all other steps."""

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
