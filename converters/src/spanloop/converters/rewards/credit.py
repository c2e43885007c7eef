"""How an episode's reward reaches its steps."""

from .base import Rewards
from .scores import main_reward


def broadcast(rewards: Rewards, step: int) -> tuple[float | None, dict[str, float]]:
    """Final-reward broadcast, r_t = R: every step gets the episode's reward, unless it was scored itself.

    Returns:
        The step's reward, and its breakdown: the episode's components, with the step's own over them.
    """
    reward = own_reward(rewards, step)
    return (rewards.value if reward is None else reward), {**rewards.breakdown, **rewards.steps.get(step, {})}


def own_reward(rewards: Rewards, step: int) -> float | None:
    """The reward of a step by its own scores; None when it was not scored itself."""
    return main_reward(rewards.steps.get(step, {}))
