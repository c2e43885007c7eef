"""Tables with shared columns and formats, and the selection of a row."""
# pyright: reportUnknownMemberType=false

from collections.abc import Mapping
from typing import Final

import polars as pl
import streamlit as st
from streamlit.column_config import DatetimeColumn, NumberColumn, TextColumn
from streamlit.elements.lib.column_types import ColumnConfig

from spanloop.dashboard import resources
from spanloop.dashboard.view_models.formatting import DASH

Columns = dict[str, ColumnConfig]
"""Column name to Streamlit's column configuration."""

_ROW_PX: Final = 35
"""Height of a row and of the header."""

TIME_FORMAT: Final = "YYYY-MM-DD HH:mm:ss"

OUTCOME_MARKS: Final = {"success": "✓ success", "failure": "✕ failure"}


def pick_row(frame: pl.DataFrame, ids: list[str], *, key: str, columns: Columns, at_most: int = 14) -> str | None:
    """Draw ``frame`` and return the id of the clicked row, else None.

    ``ids`` are parallel to the rows of ``frame``; a table of more than ``at_most`` rows scrolls.
    """
    state = st.dataframe(
        frame,
        key=key,
        on_select="rerun",
        selection_mode="single-cell",
        hide_index=True,
        column_config=columns,
        height="content" if frame.height <= at_most else _ROW_PX * (at_most + 1),
        placeholder=DASH,
    )
    rows: list[int] = [row for row, _ in state.selection.get("cells", [])]
    return ids[rows[0]] if rows and rows[0] < len(ids) else None


def to_frame(rows: list[dict[str, object]]) -> pl.DataFrame:
    """Return rows as a frame; all rows must have the same keys."""
    return pl.DataFrame(rows, infer_schema_length=None)


def show(frame: pl.DataFrame, columns: Columns) -> None:
    """Draw ``frame`` without selection."""
    st.dataframe(frame, hide_index=True, column_config=columns, placeholder=DASH)


def show_facts(values: Mapping[str, str], *, heading: str = "what") -> None:
    """Draw a table of names and values, one pair a row."""
    facts = pl.DataFrame({heading: list(values), "value": list(values.values())}, schema=[heading, "value"])
    columns: Columns = {heading: TextColumn(width="small"), "value": TextColumn(width="large")}
    st.dataframe(facts.cast(pl.String), hide_index=True, column_config=columns, height="content", placeholder=DASH)


def time_column(label: str, help_text: str = "") -> ColumnConfig:
    """Return a column of moments, shown in the viewer's time zone."""
    return DatetimeColumn(label, format=TIME_FORMAT, timezone=resources.time_zone(), help=help_text or None)


def yes_no(column: str) -> pl.Expr:
    """Return a Boolean column as words, because a disabled checkbox looks clickable."""
    return pl.when(pl.col(column)).then(pl.lit("yes")).otherwise(pl.lit("no")).alias(column)


def failure_rows(frame: pl.DataFrame) -> pl.DataFrame:
    """Select the columns of a list of failures from ``dashboard_latest_failures``."""
    return frame.select(
        "occurred_at",
        "fault_owner",
        "error_class",
        pl.col("tool_name").cast(pl.String),
        "message",
        yes_no("is_recovered"),
        "task_id",
        "step",
        "policy_version",
    )


def failure_columns() -> Columns:
    """Return the columns of `failure_rows`."""
    return {
        "occurred_at": time_column("when"),
        "fault_owner": TextColumn(
            "owner", help="Who caused the failure; only the policy's own failures lower its reward", width=90
        ),
        "error_class": TextColumn("class", width=130),
        "tool_name": TextColumn("tool", width=110),
        "message": TextColumn("message", width=300),
        "is_recovered": TextColumn("recovered", help="The episode continued and did not fail because of it", width=80),
        "task_id": TextColumn("task", width=110),
        "step": NumberColumn("step", width=50),
        "policy_version": TextColumn("policy", width=110),
    }


def episode_rows(frame: pl.DataFrame) -> pl.DataFrame:
    """Select the columns of a list of episodes from ``dashboard_episodes``."""
    outcome = pl.col("outcome").cast(pl.String)
    return frame.select(
        "started_at",
        outcome.replace(OUTCOME_MARKS).alias("outcome"),
        "reward",
        "task_id",
        pl.col("agent_name").cast(pl.String),
        pl.col("policy_version").cast(pl.String),
        "step_count",
        pl.format("{} / {}", "tool_error_count", "tool_call_count").alias("tool_errors"),
        (pl.col("input_tokens") + pl.col("output_tokens")).alias("tokens"),
        (pl.col("duration_ns").cast(pl.Float64) / 1e9).alias("duration_s"),
        pl.when(pl.col("error_class") == "")
        .then(pl.lit(""))
        .otherwise(pl.format("{} · {}", "fault_owner", "error_class"))
        .alias("decided_by"),
        "episode_id",
    )


def episode_columns() -> Columns:
    """Return the columns of `episode_rows`."""
    return {
        "started_at": time_column("started"),
        "outcome": TextColumn("outcome", width=90),
        "reward": NumberColumn("reward", format="%+.2f", width=70),
        "task_id": TextColumn("task", width=120),
        "agent_name": TextColumn("agent", width=100),
        "policy_version": TextColumn("policy", width=110),
        "step_count": NumberColumn("steps", width=55),
        "tool_errors": TextColumn("tool errors", help="Failed tool calls / all tool calls", width=80),
        "tokens": NumberColumn("tokens", format="localized", width=75),
        "duration_s": NumberColumn("took (s)", format="%.2f", width=75),
        "decided_by": TextColumn(
            "decided by", help="Owner and class of the failure that decided the outcome", width=170
        ),
        "episode_id": TextColumn("episode", width=130),
    }
