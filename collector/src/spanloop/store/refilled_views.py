"""Fill the targets of a table's materialized views again, for some traces.

Every aggregate of these targets gives the same when a row is counted twice, so what a target has already changes
nothing (see ``migrations/0001_initial.sql``).
"""

from collections.abc import Sequence
from typing import Final

from .store import Store

_TRACES_AT_ONCE: Final = 1_000


def refill_views(store: Store, table: str, trace_ids: Sequence[str], first_ns: int, last_ns: int) -> None:
    """Insert what the views of ``table`` select from the rows of some traces in a range of time.

    Args:
        store: The store.
        table: ``otel_traces`` or ``otel_logs``.
        trace_ids: Lower-case hex, or empty for rows without a trace.
        first_ns: Start of the range, in nanoseconds since the epoch.
        last_ns: End of the range; it is included.

    Raises:
        StoreError: ClickHouse is unreachable or rejected a statement; refill them again.
        ValueError: A trace id is not hex.
    """
    rows = f"{store.database}.{store.connection.rows_table(table)}"
    for view in store.query("store_views_of_table", table=table).iter_rows(named=True):
        statement = f"INSERT INTO {view['target']} ({', '.join(view['columns'])}) {view['as_select']}"
        for first in range(0, len(trace_ids), _TRACES_AT_ONCE):
            ids = ", ".join(map(_quoted, trace_ids[first : first + _TRACES_AT_ONCE]))
            begins, ends = f"fromUnixTimestamp64Nano({first_ns})", f"fromUnixTimestamp64Nano({last_ns})"
            condition = f"TraceId IN ({ids}) AND Timestamp >= {begins} AND Timestamp <= {ends}"
            filters = "{" + f"{_escaped(rows)}: {_escaped(condition)}" + "}"
            settings = {"additional_table_filters": filters, "async_insert": "0"}
            store.connection.command(statement, doing=f"filling {view['target']!r} again", settings=settings)


def _quoted(trace_id: str) -> str:
    bytes.fromhex(trace_id)
    return f"'{trace_id}'"


def _escaped(text: str) -> str:
    """Return a text as a string of ClickHouse's."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
