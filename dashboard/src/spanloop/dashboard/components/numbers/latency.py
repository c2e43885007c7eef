"""Latency and time to first token of agents, models and tools."""
# pyright: reportUnknownMemberType=false

from collections.abc import Mapping
from typing import Any, Final

import streamlit as st

from spanloop.dashboard.components import tables
from spanloop.dashboard.components.numbers.links import FILTERS, episodes_href
from spanloop.dashboard.components.tables import Column
from spanloop.dashboard.queries import numbers
from spanloop.dashboard.view_models.filters import Filters
from spanloop.dashboard.view_models.formatting import duration
from spanloop.store import Store

_COUNTED: Final = {"agent": "episodes", "model": "calls", "tool": "calls"}
_HELP: Final = {
    "agent": "Durations of an agent's episodes, from the first span to the last.",
    "model": "Durations of a model's calls.",
    "tool": "Durations of a tool's calls, as their spans measured them; a call without a span of its own has none. "
    "A tool that no message of the model names has the calls that spans recorded.",
}
_MEASURED: Final = {"measured": Column("measured", "number", "Calls that have a duration: that of their span", 92)}
_NOT_RECORDED: Final[dict[str, object]] = {"text": "not recorded", "key": -1.0}


def show(store: Store, filters: Filters, by: str) -> None:
    """Draw a row for each agent, model or tool, the slowest first; a row opens its episodes."""
    rows = numbers.fetch_latency(store, filters, by)
    if rows.is_empty():
        st.caption("No tool was called." if by == "tool" else "No call of a model matches.")
        return
    slowest = max((row["p95"] or 0.0 for row in rows.iter_rows(named=True)), default=0.0)
    has_tokens = by != "tool"
    tables.show_rows(
        [_row(row, slowest, has_tokens=has_tokens) for row in rows.iter_rows(named=True)],
        {
            "value": Column(by),
            "calls": Column(_COUNTED[by], "number", width=84),
            "p50": Column("p50", "number", "Half took at most this long", 92),
            "p95": Column(
                "p95", "progress", "95 of 100 took at most this long; drawn in proportion to the slowest", 160
            ),
            "p99": Column("p99", "number", "99 of 100 took at most this long", 92),
            **(_first_token_columns() if has_tokens else _MEASURED),
        },
        [episodes_href(filters, FILTERS[by], row, sort="-duration") for row in rows["value"].to_list()],
        key=f"latency_{by}",
    )
    st.caption(f"{_HELP[by]} A row opens its episodes, the longest first.")
    if has_tokens and not int(rows["first_tokens"].sum()):
        st.caption(
            "No span recorded the time to its first token. Instrumentors record it for streamed calls only, as "
            "`gen_ai.response.time_to_first_chunk`."
        )


def _first_token_columns() -> Mapping[str, Column]:
    return {
        "first_p50": Column("first token p50", "number", "Time from the request to the first token", 120),
        "first_p95": Column("first token p95", "number", "Time from the request to the first token", 120),
        "first_tokens": Column("recorded by", "number", "Calls that recorded the time to their first token", 92),
    }


def _row(row: Mapping[str, Any], slowest: float, *, has_tokens: bool) -> dict[str, object]:
    cells: dict[str, object] = {
        "value": row["value"] or "(without a name)",
        "calls": row["calls"],
        "measured": row["measured"],
        **{name: _time(row[name]) for name in ("p50", "p99")},
        "p95": {**_time(row["p95"]), "share": (row["p95"] or 0.0) / slowest if slowest else 0.0},
    }
    if has_tokens:
        cells |= {name: _time(row[name]) for name in ("first_p50", "first_p95")}
        cells["first_tokens"] = row["first_tokens"]
    return cells


def _time(nanoseconds: float | None) -> dict[str, object]:
    return _NOT_RECORDED if nanoseconds is None else {"text": duration(round(nanoseconds)), "key": nanoseconds}
