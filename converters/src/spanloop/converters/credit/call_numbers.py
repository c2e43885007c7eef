"""Baselines over the calls that have the same number, within the episodes of one task."""

from collections.abc import Sequence
from math import fsum


def call_advantages(returns: Sequence[Sequence[float]], *, over_others: bool = False) -> list[list[float]]:
    """Advantages of calls, ``A_{i,t} = G_{i,t} - 1/n·Σ_j G_{j,t}``; ``G_{j,t}`` is 0 when episode ``j`` ended before.

    ``over_others`` leaves the episode itself out of its baseline, ``A_{i,t} = G_{i,t} - 1/(n-1)·Σ_{j≠i} G_{j,t}``. Then
    the baseline is independent of the call and of all that follows it, and the expected policy gradient is the true
    one. With the mean of all it is ``1 - 1/n`` times the true one, because ``A_{i,t}`` is that multiple of the other.
    The length of an episode does not matter: the same number of terms is subtracted from each call's return to go.
    A baseline with one term for each remaining call instead depends on when the policy stops, and is biased
    (https://github.com/verl-project/verl/issues/7244).

    Args:
        returns: For each episode of one group, the return to go of each call, in order. A group of one has no
            baseline: its advantages are 0.
        over_others: Whether the baseline is the mean of the other episodes.
    """
    count = len(returns)
    if count < 2:
        return [[0.0] * len(episode) for episode in returns]
    by_number: list[list[float]] = [[] for _ in range(max(map(len, returns)))]
    for episode in returns:
        for number, value in enumerate(episode):
            by_number[number].append(value)
    totals = [fsum(values) for values in by_number]

    def baseline(value: float, total: float) -> float:
        return (total - value) / (count - 1) if over_others else total / count

    return [
        [value - baseline(value, total) for value, total in zip(episode, totals, strict=False)] for episode in returns
    ]
