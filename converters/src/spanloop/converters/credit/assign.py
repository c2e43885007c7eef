"""A credit for every row of ``transitions``, by one of the methods of this folder.

Invariant: the order and the number of rows stay; a step without a reward gets no credit. An episode's reward is that
of its last step that has one.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, cast

import polars as pl

from spanloop.converters.enums import FaultOwner, UntrainableReason

from ..attribution import ErrorClass
from .attributed import NOT_THE_POLICYS, StepFault, attributed_rewards
from .groups import group_advantages, leave_one_out
from .returns import broadcast, discounted_returns
from .step_groups import step_group_advantages

COLUMNS: Final = (
    "episode_id", "step", "group_id", "state", "reward", "error_class", "fault_owner", "untrainable_reason",
)  # fmt: skip
"""What is read of ``transitions``."""

_MASKING: Final = frozenset({UntrainableReason.ENVIRONMENT_FAULT, UntrainableReason.UNATTRIBUTED_FAILURE})

_COSTS: Final[dict[str, float]] = {ErrorClass.WRONG_ANSWER: 0.0}
"""A wrong answer costs what the reward says and no more."""


class _Step(NamedTuple):
    row: int
    state: str
    reward: float | None
    fault: StepFault | None
    is_masked: bool


class _Attempt(NamedTuple):
    steps: list[_Step]
    reward: float


_Group = Sequence[_Attempt]
CreditMethod = Callable[[_Group, float], list[list[float]]]
"""From the episodes of one group and gamma to a credit for each of their steps."""


def _broadcast(group: _Group, _: float) -> list[list[float]]:
    return [broadcast(attempt.reward, len(attempt.steps)) for attempt in group]


def _returns(group: _Group, gamma: float) -> list[list[float]]:
    return [discounted_returns(_at_the_end(attempt), gamma) for attempt in group]


def _attributed(group: _Group, gamma: float) -> list[list[float]]:
    found: list[list[float]] = []
    for attempt in group:
        faults = [[step.fault] if step.fault else [] for step in attempt.steps]
        rewards = [each.reward for each in attributed_rewards(attempt.reward, faults, costs=_COSTS)]
        found.append(discounted_returns(rewards, gamma))
    return found


def _over_episodes(advantages: Callable[[Sequence[float]], list[float]]) -> CreditMethod:
    def credit(group: _Group, _: float) -> list[list[float]]:
        found = advantages([attempt.reward for attempt in group])
        return [broadcast(each, len(attempt.steps)) for each, attempt in zip(found, group, strict=True)]

    return credit


def _step_groups(group: _Group, gamma: float) -> list[list[float]]:
    rewards = [_at_the_end(attempt) for attempt in group]
    return step_group_advantages(
        [[step.state for step in attempt.steps] for attempt in group],
        rewards,
        gamma_returns=[discounted_returns(each, gamma) for each in rewards],
    )


def _at_the_end(attempt: _Attempt) -> list[float]:
    return [0.0] * (len(attempt.steps) - 1) + [attempt.reward]


CREDIT_METHODS: Final[Mapping[str, CreditMethod]] = {
    "broadcast": _broadcast,
    "returns": _returns,
    "attributed": _attributed,
    "group": _over_episodes(group_advantages),
    "leave-one-out": _over_episodes(leave_one_out),
    "step-groups": _step_groups,
}


def assign(transitions: pl.DataFrame, method: CreditMethod, *, gamma: float = 1.0) -> pl.DataFrame:
    """``transitions`` with the columns ``credit`` (null without a reward) and ``is_credit_masked``.

    Args:
        transitions: Rows of the table, whole episodes, at least ``COLUMNS`` of it.
        method: One of ``CREDIT_METHODS``.
        gamma: The discount, for the methods that discount.

    Raises:
        ValueError: When ``gamma`` lies outside 0 to 1.
    """
    credit: list[float | None] = [None] * transitions.height
    masked = [False] * transitions.height
    for group in _groups(transitions).values():
        for attempt, found in zip(group, method(group, gamma), strict=True):
            for step, value in zip(attempt.steps, found, strict=True):
                credit[step.row] = value
                masked[step.row] = step.is_masked
    return transitions.with_columns(
        pl.Series("credit", credit, dtype=pl.Float64), pl.Series("is_credit_masked", masked, dtype=pl.Boolean)
    )


def _groups(transitions: pl.DataFrame) -> dict[str, list[_Attempt]]:
    ordered = transitions.select(COLUMNS).with_row_index("row").sort("group_id", "episode_id", "step")
    episodes: dict[tuple[str, str], list[_Step]] = defaultdict(list)
    for row in ordered.iter_rows(named=True):
        owner = FaultOwner(row["fault_owner"]) if row["fault_owner"] else None
        step = _Step(
            row=row["row"],
            state=row["state"],
            reward=cast("float | None", row["reward"]),
            fault=StepFault(row["error_class"], owner) if owner else None,
            is_masked=row["untrainable_reason"] in _MASKING or owner in NOT_THE_POLICYS,
        )
        episodes[row["group_id"], row["episode_id"]].append(step)
    groups: dict[str, list[_Attempt]] = defaultdict(list)
    for (group_id, _), steps in episodes.items():
        scored = [step.reward for step in steps if step.reward is not None]
        if scored:
            groups[group_id].append(_Attempt(steps, scored[-1]))
    return groups
