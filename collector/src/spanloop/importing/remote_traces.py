"""Read new spans from the traces table of another ClickHouse, written by OpenTelemetry's ClickHouse exporter.

Invariant: the remote server is only read, and a span is inserted once, however often the same period is read. For each
trace, both servers compute a fingerprint of its span ids; only traces with different fingerprints are read. Traces
without a model call are not read.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Final

import polars as pl

from spanloop.collector.redaction.redactor import LEAKING_KEYS, Redactor
from spanloop.foundation.errors import ConfigurationError
from spanloop.store import Store

from .deduplicated_inserts import store_span_rows
from .remote_clickhouse import HOUR_NS, RemoteTable, select_valid
from .report import SPANS, ProgressCallback, Report
from .row_redaction import redact_rows

_QUERY_SPANS: Final = 5_000
_QUERY_TRACES: Final = 2_000
_PAGE_TRACES: Final = 100_000
_MODEL_CALL_KEYS: Final = (
    "gen_ai.operation.name",
    "gen_ai.request.model",
    "gen_ai.system",
    "gen_ai.provider.name",
    "llm.request.type",
    "openinference.span.kind",
    "ai.operationId",
    "langfuse.observation.type",
    "langsmith.span.kind",
    "mlflow.spanType",
    "genkit:metadata:subtype",
    "haystack.component.type",
    "gcp.vertex.agent.llm_request",
    "gen_ai.span.kind",
    "fi.span.kind",
    "lmnr.span.type",
    "langwatch.span.type",
    "monocle_apptrace.version",
)
"""Attributes that mark spans of LLM applications; a trace with one of them is imported."""

_REQUIRED_COLUMNS: Final = (
    "Timestamp", "TraceId", "SpanId", "ParentSpanId", "TraceState", "SpanName", "SpanKind", "ServiceName",
    "ResourceAttributes", "ScopeName", "ScopeVersion", "SpanAttributes", "Duration", "StatusCode", "StatusMessage",
    "Events.Timestamp", "Events.Name", "Events.Attributes",
    "Links.TraceId", "Links.SpanId", "Links.TraceState", "Links.Attributes",
)  # fmt: skip
_MAPS: Final = ("ResourceAttributes", "SpanAttributes", "Events.Attributes", "Links.Attributes")


class ForeignTable(RemoteTable):
    """A traces table of the OpenTelemetry ClickHouse exporter; see `RemoteTable`."""

    def read_new(
        self,
        store: Store,
        *,
        since: datetime | None = None,
        progress: ProgressCallback | None = None,
        redactor: Redactor | None = None,
    ) -> Report:
        """Insert the spans written since the last call.

        Args:
            store: The store to insert into.
            since: Read spans that start at or after this time, even if read before; default: where the last call
                stopped, or the beginning.
            progress: Called after each block with the rows read, and the rows to read.
            redactor: The redaction rules; default: the attributes known to leak secrets.

        Returns:
            The counts; the input is every span considered, and spans that the store holds count as known.

        Raises:
            StoreError: A ClickHouse is unreachable or rejected a request. A retry misses and duplicates nothing.
        """
        hours = self._busy_hours(self.resume_ns(store, since))
        total, report, active_redactor = int(hours["spans"].sum()), Report(), redactor or Redactor()
        for hour_s, _ in hours.iter_rows():
            from_ns = int(hour_s) * 1_000_000_000
            for remote, local in self._fingerprints(store, from_ns):
                changed = remote.join(local, on=["trace_id", "fingerprint"], how="anti", maintain_order="left")
                unchanged = int(remote["spans"].sum()) - int(changed["spans"].sum())
                report.input += unchanged
                report.known[SPANS] += unchanged
                for trace_ids in _batches(changed):
                    _insert(store, redact_rows(self._spans(from_ns, trace_ids), active_redactor), report)
                    if progress is not None:
                        progress(report.input, total)
            self.remember(store, from_ns)
            if progress is not None:
                progress(report.input, total)
        return report

    def check(self) -> None:
        """Raise a ConfigurationError if the table is not the exporter's Map variant."""
        columns = self.columns()
        missing = self.missing_columns(columns, _REQUIRED_COLUMNS)
        json_columns = [name for name in (*_MAPS, "Events", "Links") if str(columns.get(name, "")).find("JSON") >= 0]
        if json_columns:
            raise ConfigurationError(
                f"{self} is the exporter's JSON variant: {', '.join(json_columns)} have the type JSON, "
                "expected Map(LowCardinality(String), String).",
                next_step="Let the OpenTelemetry Collector send a copy to spanloop (docs/how-to/import-data.md).",
            )
        mistyped = [f"{name} {columns[name]}" for name in _MAPS if name in columns and "Map(" not in str(columns[name])]
        if missing or mistyped:
            raise ConfigurationError(
                f"{self} is not a traces table of the OpenTelemetry ClickHouse exporter: missing columns "
                f"{missing}, columns of another type {mistyped}.",
                next_step="Give the exporter's traces table with --table.",
            )

    def _busy_hours(self, since_ns: int) -> pl.DataFrame:
        return self.query(
            "remote_span_hours",
            table=self.table,
            since_ns=since_ns,
            reach_ns=min(HOUR_NS, since_ns),
            model_call_keys=_MODEL_CALL_KEYS,
        )

    def _fingerprints(self, store: Store, from_ns: int) -> Iterator[tuple[pl.DataFrame, pl.DataFrame]]:
        """Yield the fingerprints of one hour's traces in the remote table and in the store, page by page."""
        after = ""
        while True:
            bounds = {"from_ns": from_ns, "until_ns": from_ns + HOUR_NS, "after": after}
            remote = self.query(
                "remote_trace_fingerprints",
                table=self.table,
                reach_ns=min(HOUR_NS, from_ns),
                model_call_keys=_MODEL_CALL_KEYS,
                max_traces=_PAGE_TRACES,
                **bounds,
            )
            if remote.is_empty():
                return
            after = str(remote["trace_id"][-1])
            yield remote, store.query("import_known_fingerprints", last=after, **bounds)
            if remote.height < _PAGE_TRACES:
                return

    def _spans(self, from_ns: int, trace_ids: list[str]) -> pl.DataFrame:
        return self.query(
            "remote_spans",
            table=self.table,
            from_ns=from_ns,
            until_ns=from_ns + HOUR_NS,
            trace_ids=trace_ids,
            leaking_keys=sorted(LEAKING_KEYS),
        )


def _batches(traces: pl.DataFrame) -> Iterator[list[str]]:
    """Yield trace ids for one query each, limited by spans and by ids, at least one trace."""
    trace_ids: list[str] = []
    span_count = 0
    for trace_id, spans in traces.select("trace_id", "spans").iter_rows():
        if trace_ids and (span_count + spans > _QUERY_SPANS or len(trace_ids) >= _QUERY_TRACES):
            yield trace_ids
            trace_ids, span_count = [], 0
        trace_ids.append(str(trace_id))
        span_count += int(spans)
    if trace_ids:
        yield trace_ids


def _insert(store: Store, rows: pl.DataFrame, report: Report) -> None:
    valid_rows = select_valid(rows, report, empty_ids=False)
    if not valid_rows.is_empty():
        new = store_span_rows(store, valid_rows)
        report.new[SPANS] += sum(new)
        report.known[SPANS] += len(new) - sum(new)
