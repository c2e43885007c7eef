"""Failures of current episodes, single or grouped by fingerprint, and the tools that fail."""

from typing import Final

import polars as pl

from spanloop.dashboard.queries.conditions import (
    Conditions,
    episode_conditions,
    failure_conditions,
    parse_words,
    step_conditions,
)
from spanloop.dashboard.queries.policy_versions import name_versions
from spanloop.dashboard.view_models.filters import Filters
from spanloop.store import Store

MAX_GROUPS: Final = 200
MAX_TOOLS: Final = 100
MAX_TASKS: Final = 1_000
_EPISODE_FIELDS: Final = ("service", "agent", "model", "task", "mark", "session", "user")


def fetch_latest(store: Store, since_s: int, *, fingerprint: str = "", max_rows: int = 8) -> pl.DataFrame:
    """Return the newest failures, of all fingerprints or of one."""
    return store.query("dashboard_latest_failures", since_s=since_s, fingerprint=fingerprint, max_rows=max_rows)


def fetch_classes(store: Store, filters: Filters) -> list[str]:
    """Return the classes of current failures in the range of time, most frequent first."""
    conditions = failure_conditions(Filters(filters.time), None)
    frame = _query(
        store,
        f"SELECT error_class FROM failure_summaries FINAL WHERE {conditions.sql} "
        "GROUP BY error_class ORDER BY count() DESC, error_class",
        conditions,
    )
    return frame["error_class"].to_list()


def fetch_tasks_of_class(store: Store, filters: Filters, error_class: str) -> tuple[str, ...]:
    """Return the tasks of episodes with a failure of the class in the range of time, by name.

    They are at most `MAX_TASKS`, the newest ones. Tasks of evaluations are left out: a version that was trained on them
    cannot be evaluated on them.
    """
    conditions = failure_conditions(Filters(filters.time, values={"class": (error_class,)}), None)
    frame = _query(
        store,
        "SELECT task_id FROM episode_summaries FINAL WHERE is_deleted = 0 AND task_id != '' AND episode_id IN "
        f"(SELECT episode_id FROM failure_summaries FINAL WHERE {conditions.sql}) "
        "AND task_id NOT IN (SELECT task_id FROM evaluation_episodes) "
        f"GROUP BY task_id ORDER BY max(started_at) DESC, task_id LIMIT {MAX_TASKS}",
        conditions,
    )
    return tuple(sorted(frame["task_id"].to_list()))


def fetch_groups(store: Store, filters: Filters) -> pl.DataFrame:
    """Return the failures that match grouped by fingerprint, most frequent first; the message is the newest one's."""
    conditions = failure_conditions(filters, parse_words(filters))
    return _query(
        store,
        "SELECT toString(f.fingerprint) AS fingerprint, count() AS failures, uniqExact(f.episode_id) AS episodes, "
        "countIf(f.is_recovered) AS recovered, argMax(f.fault_owner, f.occurred_at) AS fault_owner, "
        "argMax(f.error_class, f.occurred_at) AS error_class, argMax(f.tool_name, f.occurred_at) AS tool_name, "
        "argMax(f.headline, f.occurred_at) AS message, max(f.occurred_at) AS last_seen "
        f"FROM (SELECT * FROM failure_summaries FINAL WHERE {conditions.sql}) AS f GROUP BY f.fingerprint "
        f"ORDER BY failures DESC, last_seen DESC, fingerprint LIMIT {MAX_GROUPS}",
        conditions,
    )


def fetch_rates(store: Store, filters: Filters, *, fingerprint: str = "") -> pl.DataFrame:
    """Return, for each version, class and owner, failures and episodes with a failure that was not recovered."""
    conditions = failure_conditions(filters, parse_words(filters))
    conditions.add_equal("fingerprint", [fingerprint] if fingerprint else ())
    frame = _query(
        store,
        "SELECT policy_version, toString(error_class) AS error_class, toString(fault_owner) AS fault_owner, "
        "count() AS failures, countIf(is_recovered) AS recovered, "
        "uniqExactIf(episode_id, NOT is_recovered) AS failed_episodes "
        f"FROM failure_summaries FINAL WHERE {conditions.sql} GROUP BY policy_version, error_class, fault_owner "
        "ORDER BY failures DESC, error_class, fault_owner, policy_version",
        conditions,
    )
    return name_versions(frame)


def fetch_group_versions(store: Store, filters: Filters, fingerprints: list[str]) -> pl.DataFrame:
    """Return columns ``fingerprint``, ``policy_version``, ``episodes``."""
    conditions = failure_conditions(filters, parse_words(filters))
    conditions.add_equal("fingerprint", fingerprints)
    frame = _query(
        store,
        "SELECT toString(fingerprint) AS fingerprint, policy_version, uniqExact(episode_id) AS episodes "
        f"FROM failure_summaries FINAL WHERE {conditions.sql} GROUP BY fingerprint, policy_version "
        "ORDER BY fingerprint, policy_version",
        conditions,
    )
    return name_versions(frame)


def fetch_versions(store: Store, filters: Filters) -> pl.DataFrame:
    """Return the episodes of each version in which a matching failure could be, in the order of appearance."""
    values = {name: each for name, each in filters.values.items() if name in _EPISODE_FIELDS}
    conditions = episode_conditions(Filters(filters.time, values=values), None)
    frame = _query(
        store,
        "SELECT policy_version, count() AS episodes, min(started_at) AS first_seen FROM episode_summaries FINAL "
        f"WHERE {conditions.sql} GROUP BY policy_version ORDER BY first_seen",
        conditions,
    )
    return name_versions(frame)


def fetch_tools(store: Store, filters: Filters) -> pl.DataFrame:
    """Return the tools that were called or failed, those with most failures first.

    Columns ``tool``, ``calls``, ``failures``, ``policy_failures``, ``tool_failures``, ``is_known``: whether the tool
    exists; a name that the policy made up has only failures that say so.
    """
    values = {name: each for name, each in filters.values.items() if name in (*_EPISODE_FIELDS, "policy", "tool")}
    shown = Filters(filters.time, values=values)
    steps, failures = step_conditions(shown, None), failure_conditions(shown, None)
    calls = _query(
        store,
        "SELECT toString(tool) AS tool, count() AS calls FROM (SELECT arrayJoin(called_tools) AS tool "
        f"FROM step_summaries FINAL WHERE {steps.sql}) GROUP BY tool ORDER BY calls DESC LIMIT {10 * MAX_TOOLS}",
        steps,
    )
    failed = _query(
        store,
        "SELECT toString(tool_name) AS tool, count() AS failures, countIf(fault_owner = 'policy') AS policy_failures, "
        "countIf(fault_owner = 'tool') AS tool_failures, countIf(error_class = 'unknown_tool') AS unknown "
        f"FROM failure_summaries FINAL WHERE tool_name != '' AND {failures.sql} GROUP BY tool",
        failures,
    )
    counts = pl.col("calls", "failures", "policy_failures", "tool_failures", "unknown")
    return (
        calls.join(failed, on="tool", how="full", coalesce=True)
        .with_columns(counts.fill_null(0).cast(pl.Int64))
        .with_columns((pl.col("unknown") == 0).alias("is_known"))
        .sort("is_known", "failures", "calls", "tool", descending=[True, True, True, False])
        .head(MAX_TOOLS)
    )


def _query(store: Store, sql: str, conditions: Conditions) -> pl.DataFrame:
    return store.connection.query(sql, doing="reading failures", parameters=conditions.parameters)
