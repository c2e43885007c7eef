"""A credit for every row of ``transitions``, by one of the methods of this folder.

Invariant: the order and the number of rows stay; a step without a reward gets no credit. An episode's reward is that
of its last step that has one.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, cast

import polars as pl

from spanloop.converters.enums import FaultOwner

from .attributed import NOT_THE_POLICYS, StepFault, attributed_weights, is_not_the_policys
from .groups import group_advantages, leave_one_out
from .returns import broadcast, discounted_returns
from .step_groups import step_group_advantages

FAULT_COLUMNS: Final = ("decided_by", "fault_classes", "fault_owners", "fault_is_recovered")
"""Owner of the failure that decided a failed episode, and the failures of the step as parallel lists."""
COLUMNS: Final = ("episode_id", "step", "group_id", "state", "reward", *FAULT_COLUMNS)
"""Columns of a transition that credit depends on."""


class _Step(NamedTuple):
    row: int
    state: str
    reward: float | None
    faults: Sequence[StepFault]


class _Attempt(NamedTuple):
    steps: list[_Step]
    reward: float
    is_masked: bool
    """Whether somebody else than the policy decided the episode, or failed at each of its steps."""


_Group = Sequence[_Attempt]
CreditMethod = Callable[[_Group, float], list[list[float]]]
"""From the episodes of one group and gamma to a credit for each of their steps."""


def _broadcast(group: _Group, _: float) -> list[list[float]]:
    return [broadcast(attempt.reward, len(attempt.steps)) for attempt in group]


def _returns(group: _Group, gamma: float) -> list[list[float]]:
    return [discounted_returns(_at_the_end(attempt), gamma) for attempt in group]


def _attributed(group: _Group, gamma: float) -> list[list[float]]:
    """Weigh group advantages as a ``grpo`` job with ``credit = "attributed"`` does."""
    compared = [discounted_returns(_at_the_end(each), gamma)[0] for each in group if not each.is_masked]
    advantages = iter(group_advantages(compared))
    return [_weighted(attempt, 0.0 if attempt.is_masked else next(advantages)) for attempt in group]


def _weighted(attempt: _Attempt, advantage: float) -> list[float]:
    weights = attributed_weights(advantage, {index: step.faults for index, step in enumerate(attempt.steps)})
    return [advantage * weights.at(index) for index in range(len(attempt.steps))]


def _over_episodes(advantages: Callable[[Sequence[float]], list[float]]) -> CreditMethod:
    def credit(group: _Group, _: float) -> list[list[float]]:
        episode_credits = advantages([attempt.reward for attempt in group])
        return [broadcast(each, len(attempt.steps)) for each, attempt in zip(episode_credits, group, strict=True)]

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
        transitions: Rows of the query ``export_transitions``, whole episodes, at least its ``COLUMNS``.
        method: One of ``CREDIT_METHODS``.
        gamma: The discount, for the methods that discount.

    Raises:
        ValueError: When ``gamma`` lies outside 0 to 1.
    """
    credit: list[float | None] = [None] * transitions.height
    masked = [False] * transitions.height
    for group in _groups(transitions).values():
        for attempt, step_credits in zip(group, method(group, gamma), strict=True):
            for step, value in zip(attempt.steps, step_credits, strict=True):
                credit[step.row] = value
                masked[step.row] = attempt.is_masked or is_not_the_policys(step.faults)
    return transitions.with_columns(
        pl.Series("credit", credit, dtype=pl.Float64), pl.Series("is_credit_masked", masked, dtype=pl.Boolean)
    )


def _groups(transitions: pl.DataFrame) -> dict[str, list[_Attempt]]:
    ordered = transitions.select(COLUMNS).with_row_index("row").sort("group_id", "episode_id", "step")
    episodes: dict[tuple[str, str, str], list[_Step]] = defaultdict(list)
    for row in ordered.iter_rows(named=True):
        faults = [
            StepFault(error_class, FaultOwner(owner), bool(is_recovered))
            for error_class, owner, is_recovered in zip(*(row[name] for name in FAULT_COLUMNS[1:]), strict=True)
        ]
        step = _Step(row["row"], row["state"], cast("float | None", row["reward"]), faults)
        episodes[row["group_id"], row["episode_id"], row["decided_by"]].append(step)
    groups: dict[str, list[_Attempt]] = defaultdict(list)
    for (group_id, _, decided_by), steps in episodes.items():
        scored = [step.reward for step in steps if step.reward is not None]
        if scored:
            is_masked = decided_by in NOT_THE_POLICYS or all(is_not_the_policys(step.faults) for step in steps)
            groups[group_id].append(_Attempt(steps, scored[-1], is_masked))
    return groups
