"""Frames of the tables, out of judged episodes.

Invariant: the columns of one table at a time are lists; the next ones are made when its frame is.
"""

from collections.abc import Sequence

import polars as pl

from spanloop.foundation.tables.build_frame import build_frame
from spanloop.foundation.tables.episodes import EPISODE_MESSAGES, EPISODES, FAILURES, TRAJECTORIES

from . import frames
from .rows import (
    Judged,
    episode_columns,
    failure_columns,
    message_columns,
    numbered_states,
    trajectory_columns,
    transition_columns,
)


def tables(judged: Sequence[Judged], tokens: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Return the frame of each table, by name.

    Args:
        judged: The episodes.
        tokens: The tokens of all captures.
    """
    numbered = [numbered_states(each.episode) for each in judged]
    return {
        "episodes": EPISODES.frame(episode_columns(judged)),
        "transitions": build_frame(transition_columns(judged, numbered, tokens), frames.TRANSITIONS),
        "trajectories": TRAJECTORIES.frame(trajectory_columns(judged, tokens)),
        "failures": FAILURES.frame(failure_columns(judged)),
        "messages": EPISODE_MESSAGES.frame(message_columns(judged, numbered)),
    }
