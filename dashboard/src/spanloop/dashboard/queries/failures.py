"""Failures of current episodes, single or grouped by fingerprint."""

import polars as pl

from spanloop.dashboard.queries.policy_versions import name_versions
from spanloop.store import Store


def fetch_latest(store: Store, since_s: int, *, fingerprint: str = "", max_rows: int = 8) -> pl.DataFrame:
    """Return the newest failures, of all fingerprints or of one."""
    return store.query("dashboard_latest_failures", since_s=since_s, fingerprint=fingerprint, max_rows=max_rows)


def fetch_groups(
    store: Store, since_s: int, *, fault_owner: str = "", task_prefix: str = "", max_rows: int = 200
) -> pl.DataFrame:
    """Return failures grouped by fingerprint, most frequent first."""
    return store.query(
        "dashboard_failure_groups", since_s=since_s, fault_owner=fault_owner, task_prefix=task_prefix, max_rows=max_rows
    )


def fetch_rates(
    store: Store, since_s: int, *, task_prefix: str = "", fault_owner: str = "", fingerprint: str = ""
) -> pl.DataFrame:
    """Return, for each version, class and owner, failures and episodes with a failure that was not recovered."""
    return name_versions(
        store.query(
            "dashboard_failure_rates",
            since_s=since_s,
            task_prefix=task_prefix,
            fault_owner=fault_owner,
            fingerprint=fingerprint,
        )
    )


def fetch_group_versions(store: Store, since_s: int, fingerprints: list[str], *, task_prefix: str = "") -> pl.DataFrame:
    """Return columns ``fingerprint``, ``policy_version``, ``episodes``."""
    return name_versions(
        store.query(
            "dashboard_failure_group_versions", since_s=since_s, fingerprints=fingerprints, task_prefix=task_prefix
        )
    )
