"""Policy versions and how they did, for comparison."""

from typing import Final

import polars as pl

from spanloop.store import Store

NO_VERSION: Final = "(no version)"
"""Name for episodes whose spans name no policy version."""

MAX_TASKS: Final = 2_000
"""Most tasks of one comparison."""


def fetch_task_prefixes(store: Store) -> list[str]:
    """Return prefixes of task ids (``test-``, ``train-``), the one with most episodes first."""
    prefixes: list[str] = store.query("dashboard_task_sets", max_rows=50)["prefix"].to_list()
    return prefixes


def fetch_versions(store: Store, since_s: int, task_prefix: str = "") -> pl.DataFrame:
    """Return one row for each version, ordered by first appearance."""
    return name_versions(store.query("dashboard_policy_versions", since_s=since_s, task_prefix=task_prefix))


def fetch_reward_components(store: Store, versions: list[str], task_prefix: str = "") -> pl.DataFrame:
    """Return columns ``policy_version``, ``component``, ``episodes``, ``mean``, ``stddev`` of some versions."""
    stored_names = ["" if name == NO_VERSION else name for name in versions]
    return name_versions(
        store.query("dashboard_reward_components", policy_versions=stored_names, task_prefix=task_prefix)
    )


def fetch_task_pairs(store: Store, before: str, after: str, task_prefix: str = "") -> pl.DataFrame:
    """Return up to ``MAX_TASKS`` tasks that both versions attempted, ordered by task id."""
    frame = store.query("dashboard_task_pairs", before=before, after=after, task_prefix=task_prefix, max_rows=MAX_TASKS)
    return frame.with_columns(pl.col("before_reward", "after_reward").fill_nan(None))


def name_versions(frame: pl.DataFrame) -> pl.DataFrame:
    """Replace an empty ``policy_version`` by ``NO_VERSION``."""
    name = pl.col("policy_version").cast(pl.String)
    return frame.with_columns(pl.when(name == "").then(pl.lit(NO_VERSION)).otherwise(name).alias("policy_version"))
