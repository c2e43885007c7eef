"""What pages read about policy versions side by side; one function for each named query."""

from typing import Final

import polars as pl

from spanloop.store import Store

NO_VERSION: Final = "(no version)"
"""What stands for episodes whose spans name no policy version."""

MAX_TASKS: Final = 2_000
"""Tasks of one comparison that a page shows."""


def task_sets(store: Store) -> list[str]:
    """What task ids begin with (``test-``, ``train-``), the set with most episodes first."""
    prefixes: list[str] = store.query("dashboard_task_sets", max_rows=50)["prefix"].to_list()
    return prefixes


def policy_versions(store: Store, since_s: int, task_prefix: str = "") -> pl.DataFrame:
    """One row a version in order of appearance; spans without a version are named so."""
    return _named_versions(store.query("dashboard_policy_versions", since_s=since_s, task_prefix=task_prefix))


def failure_rates(
    store: Store, since_s: int, *, task_prefix: str = "", fault_owner: str = "", fingerprint: str = ""
) -> pl.DataFrame:
    """Failures, and episodes that did not recover from one, for each version, class and owner."""
    return _named_versions(
        store.query(
            "dashboard_failure_rates",
            since_s=since_s,
            task_prefix=task_prefix,
            fault_owner=fault_owner,
            fingerprint=fingerprint,
        )
    )


def failure_group_versions(
    store: Store, since_s: int, fingerprints: list[str], *, task_prefix: str = ""
) -> pl.DataFrame:
    """Columns ``fingerprint``, ``policy_version``, ``episodes``."""
    return _named_versions(
        store.query(
            "dashboard_failure_group_versions", since_s=since_s, fingerprints=fingerprints, task_prefix=task_prefix
        )
    )


def reward_components(store: Store, versions: list[str], task_prefix: str = "") -> pl.DataFrame:
    """Columns ``policy_version``, ``component``, ``episodes``, ``mean``, ``stddev`` of some versions, named as here."""
    stored = ["" if name == NO_VERSION else name for name in versions]
    return _named_versions(store.query("dashboard_reward_components", policy_versions=stored, task_prefix=task_prefix))


def task_pairs(store: Store, before: str, after: str, task_prefix: str = "") -> pl.DataFrame:
    """One row for each of up to ``MAX_TASKS`` tasks that both versions attempted, by task id."""
    frame = store.query("dashboard_task_pairs", before=before, after=after, task_prefix=task_prefix, max_rows=MAX_TASKS)
    return frame.with_columns(pl.col("before_reward", "after_reward").fill_nan(None))


def _named_versions(frame: pl.DataFrame) -> pl.DataFrame:
    name = pl.col("policy_version").cast(pl.String)
    return frame.with_columns(pl.when(name == "").then(pl.lit(NO_VERSION)).otherwise(name).alias("policy_version"))
