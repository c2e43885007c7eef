"""Baselines over the episodes of one task."""

from collections.abc import Sequence
from math import fsum, sqrt


def group_advantages(rewards: Sequence[float], *, by_deviation: bool = True, epsilon: float = 1e-6) -> list[float]:
    """Advantages of a group, ``A_i = (R_i - mean(R)) / (std(R) + ε)``, with the sample's standard deviation.

    GRPO (Shao et al., 2024, section 4.1.2, https://arxiv.org/abs/2402.03300); without the division Dr. GRPO (Liu et
    al., 2025, section 3.2, https://arxiv.org/abs/2503.20783).

    Args:
        rewards: Of the episodes of one group. A group of one has no baseline: its advantage is 0.
        by_deviation: Whether to divide.
        epsilon: ε, above 0.
    """
    if len(rewards) < 2:
        return [0.0] * len(rewards)
    mean = fsum(rewards) / len(rewards)
    differences = [reward - mean for reward in rewards]
    if not by_deviation:
        return differences
    deviation = sqrt(fsum(difference**2 for difference in differences) / (len(rewards) - 1))
    return [difference / (deviation + epsilon) for difference in differences]


def leave_one_out(rewards: Sequence[float]) -> list[float]:
    """Advantages over the others of the group, ``A_i = R_i - 1/(n-1)·Σ_{j≠i} R_j``.

    RLOO (Ahmadian et al., 2024, equation 8, https://arxiv.org/abs/2402.14740; Kool et al., 2019). A group of one has
    no others: its advantage is 0.
    """
    count = len(rewards)
    if count < 2:
        return [0.0] * count
    total = fsum(rewards)
    return [reward - (total - reward) / (count - 1) for reward in rewards]
