"""A score as the converters see it."""

from typing import Final, NamedTuple

REWARD_NAME: Final = "reward"
"""The score that is the reward when there is one of this name."""

SUCCESS_THRESHOLD: Final = 0.5
"""From this reward on an episode or an answer is a success, unless a label or a setting says otherwise."""


class Score(NamedTuple):
    """One judgement of an episode or of a step."""

    score_id: str
    name: str
    value: float
    label: str
    trace_id: str
    span_id: str
    response_id: str
    session_id: str
    episode_key: str
    scored_ns: int
    ingested_us: int
    is_deleted: bool
    """A withdrawn score: it counts for the revision, not for the reward."""


class Rewards(NamedTuple):
    """The rewards and marks of one episode, from its scores."""

    value: float | None
    """The episode's reward; None when nothing was scored."""
    breakdown: dict[str, float]
    """Score name → value, of the scores of the whole episode."""
    label: str
    """Label of the score that is the reward."""
    steps: dict[int, dict[str, float]]
    """Step → score name → value, of the scores of single calls."""
    ingested_us: int
    """Newest of all its scores, withdrawn ones included; 0 without any."""
    marks: tuple[str, ...] = ()
    """Labels that mark the episode, sorted; they count for no reward."""


NO_REWARDS: Final = Rewards(None, {}, "", {}, 0)
