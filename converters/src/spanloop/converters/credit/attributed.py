"""Credit within one episode from what went wrong at which step, and whose fault it was."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from spanloop.semconv.enums import FaultOwner

NOT_THE_POLICYS: Final = frozenset({FaultOwner.ENVIRONMENT, FaultOwner.HARNESS, FaultOwner.UNKNOWN})
"""Whose faults say nothing about the policy: a step that meets one is masked."""


class StepFault(NamedTuple):
    """What went wrong at one step."""

    error_class: str
    owner: FaultOwner


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

    Masked are the steps at which the environment, the harness or nobody known failed, and all steps of an episode that
    one of them decided. Only the policy's own mistakes cost; those of tools and users cost nothing and mask nothing.
    The scheme is ours; the sum of rewards of an episode without mistakes is ``R``, as with a reward at the end.

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
        is_masked = decided_by in NOT_THE_POLICYS or any(fault.owner in NOT_THE_POLICYS for fault in own)
        found.append(AttributedReward((reward if index == last else 0.0) - mistakes, is_masked))
    return found
