"""Options of a conversion."""

from dataclasses import dataclass
from typing import Final

from .attribution import RULES, Rules
from .rewards import SUCCESS_THRESHOLD, NamedReward

CONVERTER_VERSION: Final = "17"
"""Goes up whenever the same spans would give other rows; the pipeline then reconverts what it touches."""


@dataclass(frozen=True)
class Options:
    """Choices, with defaults that hold for most apps."""

    success_threshold: float = SUCCESS_THRESHOLD
    """An episode whose reward reaches this has succeeded, unless its score's label says otherwise."""

    session_is_episode: bool = False
    """Whether ``session.id`` joins traces as a conversation id does. Off: a session often holds many attempts."""

    reward_functions: tuple[NamedReward, ...] = ()
    """Reward functions of every episode, beside the scores; ``rewards.reward_functions`` finds them by name."""

    rules: Rules = RULES
    """Rules that attribute failures."""

    train_abandoned_attempts: bool = False
    """Whether an answer that the program threw away, to ask the same again, is trained with the episode's reward."""
