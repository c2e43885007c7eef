"""Tables of data sets: their versions, and the episode revisions of each."""

from typing import Final

from .column import COUNT_MAP, LOW_CARDINALITY, TIME_US, Column, Table
from .episodes import EPISODES

DATA_SETS: Final = Table(
    "data_sets",
    (
        Column("data_set_id", "String", "the version, in `data_set_episodes`"),
        Column("name", "String", "name of the data set"),
        Column("version", "UInt32", "from 1"),
        Column("created_at", TIME_US, "when the version was made"),
        Column("created_by", LOW_CARDINALITY, "name of the person"),
        Column("source", "String", "the filters, or the selection, that the episodes were added by"),
        Column("comment", "String", "the reason; empty without one"),
        Column("episodes", "UInt64", "episodes of the version, when it was made"),
        Column("added", "UInt64", "episodes that the version before lacks, or has in another revision"),
        Column("rejected", COUNT_MAP, "reason to episodes that were chosen and not added"),
        Column("ingested_at", TIME_US, "when the row was inserted", "DEFAULT"),
    ),
)
"""Versions of data sets: one row each, inserted after the episodes of the version."""

DATA_SET_EPISODES: Final = Table(
    "data_set_episodes",
    (
        Column("data_set_id", "String", "the version of the data set"),
        *EPISODES.select(
            "episode_id",
            "revision",
            "converter_version",
            "task_id",
            "group_id",
            "session_id",
            "service_name",
            "agent_name",
            "model",
            "policy_version",
            "started_at",
            "duration_ns",
            "step_count",
            "input_tokens",
            "output_tokens",
            "outcome",
            "reward",
            "reward_breakdown",
            "error_class",
            "fault_owner",
            "marks",
            "trace_ids",
        ),
    ),
)
"""Episode revisions of each version, as they were when they were added; `episodes` keeps the newest revision alone."""
