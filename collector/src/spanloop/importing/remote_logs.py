"""Read new log records from the logs table of another ClickHouse: messages, exceptions and evaluations.

Some instrumentors send a call's messages as log events, and rewards arrive as ``gen_ai.evaluation.result``. Invariant:
the remote server is only read, and a record is inserted once. Records unrelated to model calls are not read.
"""

from datetime import datetime
from typing import Final

import polars as pl

from spanloop.collector.redaction.redactor import Redactor
from spanloop.foundation.errors import ConfigurationError
from spanloop.store import Store

from .deduplicated_inserts import store_log_rows
from .remote_clickhouse import HOUR_NS, RemoteTable, select_valid
from .report import LOG_RECORDS, ProgressCallback, Report
from .row_redaction import redact_log_rows

_QUERY_RECORDS: Final = 5_000
_REQUIRED_COLUMNS: Final = (
    "Timestamp", "TraceId", "SpanId", "TraceFlags", "SeverityText", "SeverityNumber", "ServiceName", "Body",
    "ResourceSchemaUrl", "ResourceAttributes", "ScopeSchemaUrl", "ScopeName", "ScopeVersion", "ScopeAttributes",
    "LogAttributes",
)  # fmt: skip


class ForeignLogs(RemoteTable):
    """A logs table of the OpenTelemetry ClickHouse exporter; see `RemoteTable`."""

    option = "--logs-table"

    def read_new(
        self,
        store: Store,
        *,
        since: datetime | None = None,
        progress: ProgressCallback | None = None,
        redactor: Redactor | None = None,
    ) -> Report:
        """Insert the records written since the last call; see `ForeignTable.read_new`.

        Raises:
            StoreError: A ClickHouse is unreachable or rejected a request. A retry misses and duplicates nothing.
        """
        hours = self.query("remote_log_hours", logs_table=self.table, since_ns=self.resume_ns(store, since))
        total, report, active_redactor = int(hours["records"].sum()), Report(), redactor or Redactor()
        for hour_s, records in hours.iter_rows():
            from_ns = int(hour_s) * 1_000_000_000
            parts = max(1, -(-int(records) // _QUERY_RECORDS))
            for part in range(parts):
                rows = self.query(
                    "remote_logs",
                    logs_table=self.table,
                    from_ns=from_ns,
                    until_ns=from_ns + HOUR_NS,
                    part=part,
                    parts=parts,
                )
                _insert(store, redact_log_rows(rows, active_redactor), report)
                if progress is not None:
                    progress(report.input, total)
            self.remember(store, from_ns)
        return report

    def check(self) -> None:
        """Raise a ConfigurationError if the table is not the exporter's Map variant."""
        columns = self.columns()
        missing = self.missing_columns(columns, _REQUIRED_COLUMNS)
        mistyped = [
            f"{name} {columns[name]}"
            for name in ("ResourceAttributes", "ScopeAttributes", "LogAttributes")
            if name in columns and "Map(" not in columns[name]
        ]
        if missing or mistyped:
            raise ConfigurationError(
                f"{self} is not a logs table of the OpenTelemetry ClickHouse exporter's Map variant: missing columns "
                f"{missing}, columns of another type {mistyped}.",
                next_step=f"Give the exporter's logs table with {self.option}.",
            )


def _insert(store: Store, rows: pl.DataFrame, report: Report) -> None:
    valid_rows = select_valid(rows, report, empty_ids=True)
    if not valid_rows.is_empty():
        new = store_log_rows(store, valid_rows)
        report.new[LOG_RECORDS] += sum(new)
        report.known[LOG_RECORDS] += len(new) - sum(new)
