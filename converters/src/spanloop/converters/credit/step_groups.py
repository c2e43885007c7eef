"""Baselines over steps that started from the same state, within the episodes of one task."""

from collections import defaultdict
from collections.abc import Hashable, Sequence

from .groups import group_advantages


def step_group_advantages(
    states: Sequence[Sequence[Hashable]],
    rewards: Sequence[Sequence[float]],
    *,
    gamma_returns: Sequence[Sequence[float]],
    weight: float = 1.0,
    by_deviation: bool = True,
) -> list[list[float]]:
    """Advantages ``A_{i,t} = A^E_i + ω·A^S_{i,t}``: the episode's in its group, plus the step's among equal states.

    ``A^E`` are the group advantages of the episodes' summed rewards; ``A^S`` those of the discounted returns of all
    steps of the group that share a state (their anchor state). A state that occurs once has ``A^S = 0``. GiGPO (Feng
    et al., 2025, equations 3 to 8, https://arxiv.org/abs/2505.10978).

    Args:
        states: For each episode, the state of each step; equal states are one.
        rewards: For each episode, the reward of each step.
        gamma_returns: For each episode, the discounted return of each step.
        weight: ω, at least 0.
        by_deviation: Whether both are divided by their group's standard deviation.
    """
    whole = group_advantages([sum(each) for each in rewards], by_deviation=by_deviation)
    places: dict[Hashable, list[tuple[int, int]]] = defaultdict(list)
    for episode, sequence in enumerate(states):
        for step, state in enumerate(sequence):
            places[state].append((episode, step))
    advantages = [[whole[episode]] * len(sequence) for episode, sequence in enumerate(states)]
    for shared in places.values():
        here = group_advantages([gamma_returns[i][t] for i, t in shared], by_deviation=by_deviation)
        for (episode, step), advantage in zip(shared, here, strict=True):
            advantages[episode][step] += weight * advantage
    return advantages
