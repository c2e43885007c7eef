"""Rewards: scores from outside, reward functions, and how they reach the steps.

``scores`` and ``span_scores`` read what others judged, ``compute`` asks reward functions (``loading`` finds them by
name), ``credit`` gives the steps their share.
"""

from .agent import RATING_NAME, AgentReward, Expectation, Penalties, Weights
from .attempt import Attempt, Judgement, NamedReward, Reward, RewardFunction
from .base import NO_REWARDS, REWARD_NAME, SUCCESS_THRESHOLD, Rewards, Score
from .compute import add_computed
from .credit import broadcast, step_reward
from .judged_rewards import with_judgements
from .loading import REWARD_POINT, reward_functions
from .match import Exact, JsonSchema, Numeric
from .measures import Cost, Latency
from .rubric import Rubric
from .scores import Joined, join_scores, main_reward, read_scores
from .span_scores import scores_in_spans
from .tags import Tags, tags_in_spans
from .tool_use import ReferenceCall

__all__ = [
    "NO_REWARDS",
    "RATING_NAME",
    "REWARD_NAME",
    "REWARD_POINT",
    "SUCCESS_THRESHOLD",
    "AgentReward",
    "Attempt",
    "Cost",
    "Exact",
    "Expectation",
    "Joined",
    "JsonSchema",
    "Judgement",
    "Latency",
    "NamedReward",
    "Numeric",
    "Penalties",
    "ReferenceCall",
    "Reward",
    "RewardFunction",
    "Rewards",
    "Rubric",
    "Score",
    "Tags",
    "Weights",
    "add_computed",
    "broadcast",
    "join_scores",
    "main_reward",
    "read_scores",
    "reward_functions",
    "scores_in_spans",
    "step_reward",
    "tags_in_spans",
    "with_judgements",
]
