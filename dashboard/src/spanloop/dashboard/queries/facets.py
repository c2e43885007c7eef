"""Values that a filter can have, with how often they occur, for the filter bar."""

from typing import Final

import polars as pl

from spanloop.dashboard.queries.conditions import AGENT, Conditions
from spanloop.dashboard.view_models.filters import Filters
from spanloop.store import Store

_MAX_VALUES: Final = 200
_NEWEST: Final = 100_000
"""Episodes or steps that are read."""
_SPANS: Final = 20_000
"""Spans that are read; their attributes include whole messages."""
_EPISODE_COLUMNS: Final = {
    "agent": AGENT,
    "service": "service_name",
    "model": "model",
    "policy": "policy_version",
    "task": "task_id",
    "class": "error_class",
    "session": "session_id",
    "mark": "arrayJoin(marks)",
}
_USER: Final = (
    "arrayJoin(arrayFilter(v -> v != '', arrayMap(k -> SpanAttributes[k], "
    "['user.id', 'enduser.id', 'langfuse.user.id'])))"
)


def fetch_values(store: Store, filters: Filters, name: str, key: str = "") -> pl.DataFrame:
    """Return ``value`` and ``count`` of a field in the range of time, most frequent first.

    Args:
        store: The store.
        filters: Only the range of time counts.
        name: A field of the filters.
        key: The attribute whose values are asked for; empty asks for the names of attributes.
    """
    conditions = Conditions()
    if name in _EPISODE_COLUMNS:
        conditions.add("is_deleted = 0")
        conditions.add_time("started_at", filters)
        column, table, order = _EPISODE_COLUMNS[name], "episode_summaries", "started_at"
    elif name == "called":
        conditions.add_time("started_at", filters)
        column, table, order = "model", "step_summaries", "started_at"
    elif name == "fingerprint":
        conditions.add_time("occurred_at", filters)
        column, table, order = "fingerprint", "failure_summaries", "occurred_at"
    elif name == "tool":
        conditions.add_time("started_at", filters)
        column, table, order = "arrayJoin(called_tools)", "step_summaries", "started_at"
    else:
        conditions.add_time("Timestamp", filters)
        order = ""
        attributes = "SpanAttributes" if key or name == "user" else "SpanAttributes.keys AS names"
        table = f"(SELECT {attributes} FROM otel_traces WHERE {conditions.sql} LIMIT {_SPANS})"
        column = f"SpanAttributes[{conditions.bind(key, 'String')}]" if key else "arrayJoin(names)"
        column = _USER if name == "user" else column
    limited = f"WHERE {conditions.sql} ORDER BY {order} DESC LIMIT {_NEWEST}" if order else ""
    frame = store.connection.query(
        f"SELECT value, count() AS count FROM (SELECT toString({column}) AS value FROM {table} {limited}) "
        f"WHERE value != '' AND length(value) < 300 GROUP BY value ORDER BY count DESC, value LIMIT {_MAX_VALUES}",
        doing=f"reading the values of {name}",
        parameters=conditions.parameters,
    )
    return frame.with_columns(pl.col("value").cast(pl.String))
