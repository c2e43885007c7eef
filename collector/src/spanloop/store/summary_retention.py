"""Retention of summary tables, which equals the retention of their source tables.

A migration can add a summary table after a retention was set. `complete_retention` gives such a table the retention of
its source. `spanloop.administration.retention` sets a retention.
"""

from typing import Final

from .store import Store

RETENTION_STATEMENTS: Final = {
    "otel_traces": "store_retain_spans",
    "otel_logs": "store_retain_logs",
    "log_summaries": "store_retain_log_summaries",
    "trace_summaries": "store_retain_trace_summaries",
}
"""Table → the named statement that sets its retention."""
_SOURCES: Final = {"log_summaries": "otel_logs", "trace_summaries": "otel_traces"}


def complete_retention(store: Store) -> None:
    """Give each summary table the retention of its source table.

    Raises:
        StoreError: ClickHouse rejected the statement or is unreachable; call it again.
    """
    days = retention_days(store)
    for table, source in _SOURCES.items():
        if source in days and days.get(table) != days[source]:
            store.execute(RETENTION_STATEMENTS[table], days=days[source])


def retention_days(store: Store) -> dict[str, int]:
    """Return the retention in days by table, for tables that have one."""
    return {str(table): int(days) for table, days in store.query("store_retention").iter_rows()}
