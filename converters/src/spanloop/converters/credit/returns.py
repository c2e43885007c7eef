"""Credit within one episode that looks at nothing but rewards and time."""

from collections.abc import Sequence


def broadcast(reward: float, steps: int) -> list[float]:
    """Final-reward broadcast, ``r_t = R`` for every step ``t``.

    What outcome-supervised GRPO does (Shao et al., 2024, section 4.1.2, https://arxiv.org/abs/2402.03300).
    """
    return [reward] * steps


def discounted_returns(rewards: Sequence[float], gamma: float) -> list[float]:
    """Returns, ``G_t = r_t + gamma·G_{t+1}`` with ``G_T = 0``.

    Sutton and Barto, Reinforcement Learning, 2nd edition, equation 3.9.

    Args:
        rewards: ``r_t``, the reward that followed the action of step ``t``.
        gamma: The discount, from 0 to 1.

    Raises:
        ValueError: When ``gamma`` lies outside.
    """
    if not 0 <= gamma <= 1:
        raise ValueError(f"gamma is {gamma!r}, expected a number from 0 to 1")
    returns = [0.0] * len(rewards)
    following = 0.0
    for index in range(len(rewards) - 1, -1, -1):
        following = rewards[index] + gamma * following
        returns[index] = following
    return returns
