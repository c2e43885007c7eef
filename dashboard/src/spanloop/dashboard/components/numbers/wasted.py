"""Time and cost of episodes that a failure group spoiled."""
# pyright: reportUnknownMemberType=false

from collections.abc import Mapping
from typing import Any

import streamlit as st

from spanloop.dashboard.components import tables
from spanloop.dashboard.components.numbers.cost import cost_cell
from spanloop.dashboard.components.numbers.links import episodes_href
from spanloop.dashboard.components.tables import Column
from spanloop.dashboard.queries import numbers
from spanloop.dashboard.view_models.filters import Filters
from spanloop.foundation.settings import Prices
from spanloop.store import Store


def show(store: Store, filters: Filters, prices: Prices) -> None:
    """Draw a row for each failure group, the longest time first; a row opens its episodes."""
    rows = numbers.fetch_wasted(store, filters, prices)
    if rows.is_empty():
        st.success("No episode that matches has a failure it did not recover from.", icon=":material/check:")
        return
    longest = int(rows["duration_ns"].max() or 0)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    tables.show_rows(
        [_row(row, longest, prices.currency) for row in rows.iter_rows(named=True)],
        {
            "owner": Column("owner", "tag", width=110),
            "class": Column("class", width=140),
            "tool": Column("tool", width=110),
            "message": Column("message", "preview"),
            "episodes": Column("episodes", "number", width=84),
            "time": Column(
                "time", "progress", "Sum of the episodes' durations, drawn in proportion to the longest", 160
            ),
            "cost": Column("cost", "number", "Of all calls of the episodes", 120),
            "tokens": Column("tokens", "number", width=92),
        },
        [episodes_href(filters, "fingerprint", value, sort="-duration") for value in rows["value"].to_list()],
        key="wasted",
    )
    st.caption(
        "Episodes with a failure of the group that they did not recover from, counted from begin to end. An episode "
        "with failures of two groups counts in both. A row opens its episodes."
    )
    if len(rows) == numbers.MAX_ROWS:
        st.caption(f"Only the {numbers.MAX_ROWS} groups with most time are shown.")


def _row(row: Mapping[str, Any], longest: int, currency: str) -> dict[str, object]:
    return {
        "owner": tables.tag(row["fault_owner"]),
        "class": row["error_class"],
        "tool": row["tool_name"],
        "message": row["message"],
        "episodes": row["episodes"],
        "time": {**tables.duration_cell(row["duration_ns"]), "share": row["duration_ns"] / longest if longest else 0.0},
        "cost": cost_cell(row, currency),
        "tokens": row["input"] + row["output"],
    }
