"""Rewards: where they come from (``scores``), and how they reach the steps (``credit``)."""

from .base import NO_REWARDS, REWARD_NAME, Rewards, Score
from .credit import broadcast
from .scores import Joined, join_scores, read_scores

__all__ = ["NO_REWARDS", "REWARD_NAME", "Joined", "Rewards", "Score", "broadcast", "join_scores", "read_scores"]
