"""Outcomes, rewards and tokens of the episodes that match, for each version, agent, model, service, task or session."""

from collections.abc import Mapping
from typing import Final

import polars as pl

from spanloop.dashboard.queries.conditions import AGENT, episode_conditions, parse_words
from spanloop.dashboard.queries.policy_versions import name_versions
from spanloop.dashboard.view_models.filters import Filters
from spanloop.store import Store

GROUPINGS: Final[Mapping[str, str]] = {
    "policy": "policy_version",
    "agent": AGENT,
    "service": "service_name",
    "model": "model",
    "task": "task_id",
    "session": "session_id",
    "class": "error_class",
    "owner": "fault_owner",
}
"""Field of the filters → the column that episodes are grouped by."""


def fetch_outcomes(store: Store, filters: Filters, by: str, *, max_rows: int) -> pl.DataFrame:
    """Return a row for each value of a field, the one with most episodes first.

    The first column has the field's name; versions without a name are ``NO_VERSION``. The others are ``episodes``,
    ``successes``, ``failures``, ``rewarded`` (episodes with a reward), ``mean_reward``, ``reward_stddev`` (both null
    without a reward), ``tool_errors``, ``tokens``, ``first_seen`` and ``last_seen``.
    """
    conditions = episode_conditions(filters, parse_words(filters))
    frame = store.connection.query(
        f"SELECT toString({GROUPINGS[by]}) AS value, count() AS episodes, countIf(outcome = 'success') AS successes, "
        "countIf(outcome = 'failure') AS failures, count(reward) AS rewarded, avg(reward) AS mean_reward, "
        "stddevSamp(reward) AS reward_stddev, sum(tool_error_count) AS tool_errors, "
        "sum(input_tokens + output_tokens) AS tokens, min(started_at) AS first_seen, max(started_at) AS last_seen "
        f"FROM episode_summaries FINAL WHERE {conditions.sql} GROUP BY value ORDER BY episodes DESC, value "
        f"LIMIT {conditions.bind(max_rows, 'UInt32')}",
        doing=f"reading outcomes by {by}",
        parameters=conditions.parameters,
    )
    frame = frame.with_columns(pl.col("mean_reward", "reward_stddev").fill_nan(None))
    if by != "policy":
        return frame.rename({"value": by})
    return name_versions(frame.rename({"value": "policy_version"})).rename({"policy_version": by})
