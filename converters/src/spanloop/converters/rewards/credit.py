"""Rewards of steps: their own scores, else the episode's reward."""

from .base import Rewards
from .scores import main_reward


def broadcast(rewards: Rewards, step: int) -> tuple[float | None, dict[str, float]]:
    """Final-reward broadcast, r_t = R: every step gets the episode's reward, unless it was scored itself.

    Returns:
        The step's reward, and its breakdown: the episode's components, with the step's own over them.
    """
    reward = step_reward(rewards, step)
    return (rewards.value if reward is None else reward), {**rewards.breakdown, **rewards.steps.get(step, {})}


def step_reward(rewards: Rewards, step: int) -> float | None:
    """Return the reward of a step by its own scores; None without any."""
    return main_reward(rewards.steps.get(step, {}))
