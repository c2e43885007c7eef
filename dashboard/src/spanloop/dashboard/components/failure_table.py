"""Tables of failures: one row is one failure, and its link opens the episode at its failures."""

from collections.abc import Sequence

import polars as pl

from spanloop.dashboard.components import tables
from spanloop.dashboard.components.record_list import address
from spanloop.dashboard.components.tables import Column, ListState


def show(failures: pl.DataFrame) -> None:
    """Draw rows of ``dashboard_latest_failures``."""
    tables.show_rows(rows(failures), columns(), hrefs(failures), key="failures")


def show_list(failures: pl.DataFrame, state: ListState) -> None:
    """Draw a page of the list of failures."""
    tables.show_list(rows(failures), columns(), hrefs(failures), failures["failure_id"].to_list(), state)


def rows(failures: pl.DataFrame) -> list[dict[str, object]]:
    """Return the cells of each failure."""
    return [
        {
            "when": row["occurred_at"],
            "owner": tables.tag(row["fault_owner"]),
            "class": row["error_class"],
            "tool": row["tool_name"],
            "message": row["message"],
            "recovered": "yes" if row["is_recovered"] else "no",
            "task": row["task_id"],
            "step": row["step"],
            "policy": row["policy_version"],
            "episode": row["episode_id"],
        }
        for row in failures.iter_rows(named=True)
    ]


def hrefs(failures: pl.DataFrame) -> Sequence[str]:
    """Return the address of each failure's episode."""
    return [address("episodes", episode=each, view="Failures") for each in failures["episode_id"].to_list()]


def columns() -> dict[str, Column]:
    """Return the columns of `rows`."""
    return {
        "when": tables.time_column("when", sort="when"),
        "owner": Column(
            "owner", "tag", "Who caused the failure; only the policy's own lower its reward", 110, sort="owner"
        ),
        "class": Column("class", width=150, sort="class", filter="class"),
        "tool": Column("tool", width=110, sort="tool", filter="tool"),
        "message": Column("message", "preview"),
        "recovered": Column("recovered", help="The episode continued and did not fail because of it", width=84),
        "task": Column("task", width=120, sort="task", filter="task"),
        "step": Column("step", "number", width=50),
        "policy": Column("version", width=110, sort="policy", filter="policy"),
        "episode": Column("episode", "id", width=112),
    }
