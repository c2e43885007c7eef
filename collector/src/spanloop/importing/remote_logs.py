"""Log records of somebody's running OpenTelemetry ClickHouse exporter: messages, exceptions and evaluations.

Some instrumentors send a call's messages as log events, and rewards come as ``gen_ai.evaluation.result``. Invariant: as
for spans, their server is only read, and a record is taken once. What tells of no model call stays where it is.
"""

from datetime import datetime
from typing import Final

import polars as pl

from spanloop.collector.redaction import Redactor
from spanloop.semconv.errors import ConfigurationError
from spanloop.store import Store

from .deduplicated_inserts import store_log_rows
from .remote_clickhouse import HOUR_NS, Progress, RemoteTable, accepted
from .report import LOG_RECORDS, Report
from .row_redaction import redact_log_rows

_QUERY_RECORDS: Final = 5_000
_REQUIRED_COLUMNS: Final = (
    "Timestamp", "TraceId", "SpanId", "TraceFlags", "SeverityText", "SeverityNumber", "ServiceName", "Body",
    "ResourceSchemaUrl", "ResourceAttributes", "ScopeSchemaUrl", "ScopeName", "ScopeVersion", "ScopeAttributes",
    "LogAttributes",
)  # fmt: skip


class RemoteLogs(RemoteTable):
    """A log table that the OpenTelemetry ClickHouse exporter made; see `RemoteTable`."""

    option = "--logs-table"

    def read_new(
        self,
        store: Store,
        *,
        since: datetime | None = None,
        progress: Progress | None = None,
        redactor: Redactor | None = None,
    ) -> Report:
        """Take over what has come since the last time; see `RemoteTraces.read_new`.

        Raises:
            StoreError: Either ClickHouse refused or is out of reach. Call again: nothing is missed or doubled.
        """
        hours = self.query("attach_log_hours", logs_table=self.table, since_ns=self.resume_ns(store, since))
        total, report, hides = int(hours["records"].sum()), Report(), redactor or Redactor()
        for hour_s, records in hours.iter_rows():
            from_ns = int(hour_s) * 1_000_000_000
            parts = max(1, -(-int(records) // _QUERY_RECORDS))
            for part in range(parts):
                rows = self.query(
                    "attach_logs",
                    logs_table=self.table,
                    from_ns=from_ns,
                    until_ns=from_ns + HOUR_NS,
                    part=part,
                    parts=parts,
                )
                _insert(store, redact_log_rows(rows, hides), report)
                if progress is not None:
                    progress(report.input, total)
            self.remember(store, from_ns)
        return report

    def check(self) -> None:
        """Refuse a table that is no log table with maps."""
        found = self.columns()
        missing = self.missing(found, _REQUIRED_COLUMNS)
        no_maps = [
            f"{name} {found[name]}"
            for name in ("ResourceAttributes", "ScopeAttributes", "LogAttributes")
            if name in found and "Map(" not in found[name]
        ]
        if missing or no_maps:
            raise ConfigurationError(
                f"{self} is no log table of the OpenTelemetry ClickHouse exporter's Map variant: missing {missing}, "
                f"of another type {no_maps}.",
                next_step=f"Name the exporter's log table with {self.option}.",
            )


def _insert(store: Store, rows: pl.DataFrame, report: Report) -> None:
    good = accepted(rows, report, empty_ids=True)
    if not good.is_empty():
        new = store_log_rows(store, good)
        report.new[LOG_RECORDS] += sum(new)
        report.known[LOG_RECORDS] += len(new) - sum(new)
