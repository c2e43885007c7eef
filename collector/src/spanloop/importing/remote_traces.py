"""Spans of somebody's running OpenTelemetry ClickHouse exporter, read from its table into our store.

Invariant: their server is only read. A span is taken once, however often the same stretch of time is looked at: of
each trace both servers give a fingerprint of the ids of its spans there, and only where these differ spans are read.
Traces without a model call stay where they are.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Final

import polars as pl

from spanloop.collector.redaction import LEAKING_KEYS, Redactor
from spanloop.semconv.errors import ConfigurationError
from spanloop.store import Store

from .deduplicated_inserts import store_span_rows
from .remote_clickhouse import HOUR_NS, Progress, RemoteTable, accepted
from .report import SPANS, Report
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
"""An attribute that says: this span is of an LLM application, so its trace is taken over."""

_REQUIRED_COLUMNS: Final = (
    "Timestamp", "TraceId", "SpanId", "ParentSpanId", "TraceState", "SpanName", "SpanKind", "ServiceName",
    "ResourceAttributes", "ScopeName", "ScopeVersion", "SpanAttributes", "Duration", "StatusCode", "StatusMessage",
    "Events.Timestamp", "Events.Name", "Events.Attributes",
    "Links.TraceId", "Links.SpanId", "Links.TraceState", "Links.Attributes",
)  # fmt: skip
_MAP_COLUMNS: Final = ("ResourceAttributes", "SpanAttributes", "Events.Attributes", "Links.Attributes")


class RemoteTraces(RemoteTable):
    """A span table that the OpenTelemetry ClickHouse exporter made; see `RemoteTable`."""

    def read_new(
        self,
        store: Store,
        *,
        since: datetime | None = None,
        progress: Progress | None = None,
        redactor: Redactor | None = None,
    ) -> Report:
        """Take over what has come since the last time.

        Args:
            store: Where to.
            since: Read from this span start on, whatever was read before; default: where the last call stopped, or from
                the beginning.
            progress: Told after each block.
            redactor: What nobody may store; default the known leaks.

        Returns:
            Input is every span that was looked at; spans that the store has already count as known.

        Raises:
            StoreError: Either ClickHouse refused or is out of reach. Call again: nothing is missed or doubled.
        """
        hours = self._busy_hours(self.resume_ns(store, since))
        total, report, hides = int(hours["spans"].sum()), Report(), redactor or Redactor()
        for hour_s, _ in hours.iter_rows():
            from_ns = int(hour_s) * 1_000_000_000
            for theirs, ours in self._fingerprints(store, from_ns):
                changed = theirs.join(ours, on=["trace_id", "fingerprint"], how="anti", maintain_order="left")
                same = int(theirs["spans"].sum()) - int(changed["spans"].sum())
                report.input += same
                report.known[SPANS] += same
                for trace_ids in _batches(changed):
                    _insert(store, redact_rows(self._spans(from_ns, trace_ids), hides), report)
                    if progress is not None:
                        progress(report.input, total)
            self.remember(store, from_ns)
            if progress is not None:
                progress(report.input, total)
        return report

    def check(self) -> None:
        """Refuse a table that is not the exporter's Map variant."""
        found = self.columns()
        missing = self.missing(found, _REQUIRED_COLUMNS)
        of_json = [name for name in (*_MAP_COLUMNS, "Events", "Links") if str(found.get(name, "")).find("JSON") >= 0]
        if of_json:
            raise ConfigurationError(
                f"{self} is of the exporter's JSON variant: {', '.join(of_json)} have the type JSON, "
                "expected Map(LowCardinality(String), String).",
                next_step="Let the OpenTelemetry Collector send a copy to spanloop (docs/how-to/import-data.md).",
            )
        no_maps = [f"{name} {found[name]}" for name in _MAP_COLUMNS if name in found and "Map(" not in str(found[name])]
        if missing or no_maps:
            raise ConfigurationError(
                f"{self} is no span table of the OpenTelemetry ClickHouse exporter: missing {missing}, "
                f"of another type {no_maps}.",
                next_step="Name the exporter's traces table with --table.",
            )

    def _busy_hours(self, since_ns: int) -> pl.DataFrame:
        return self.query(
            "attach_busy_hours",
            table=self.table,
            since_ns=since_ns,
            reach_ns=min(HOUR_NS, since_ns),
            model_call_keys=_MODEL_CALL_KEYS,
        )

    def _fingerprints(self, store: Store, from_ns: int) -> Iterator[tuple[pl.DataFrame, pl.DataFrame]]:
        """Traces of one hour as they have them and as the store has them, page by page."""
        after = ""
        while True:
            where = {"from_ns": from_ns, "until_ns": from_ns + HOUR_NS, "after": after}
            theirs = self.query(
                "attach_fingerprints",
                table=self.table,
                reach_ns=min(HOUR_NS, from_ns),
                model_call_keys=_MODEL_CALL_KEYS,
                max_traces=_PAGE_TRACES,
                **where,
            )
            if theirs.is_empty():
                return
            after = str(theirs["trace_id"][-1])
            yield theirs, store.query("attach_known_fingerprints", last=after, **where)
            if theirs.height < _PAGE_TRACES:
                return

    def _spans(self, from_ns: int, trace_ids: list[str]) -> pl.DataFrame:
        return self.query(
            "attach_spans",
            table=self.table,
            from_ns=from_ns,
            until_ns=from_ns + HOUR_NS,
            trace_ids=trace_ids,
            leaking_keys=sorted(LEAKING_KEYS),
        )


def _batches(traces: pl.DataFrame) -> Iterator[list[str]]:
    """Traces for one query each: so many spans and so many ids, at least one trace."""
    trace_ids: list[str] = []
    size = 0
    for trace_id, spans in traces.select("trace_id", "spans").iter_rows():
        if trace_ids and (size + spans > _QUERY_SPANS or len(trace_ids) >= _QUERY_TRACES):
            yield trace_ids
            trace_ids, size = [], 0
        trace_ids.append(str(trace_id))
        size += int(spans)
    if trace_ids:
        yield trace_ids


def _insert(store: Store, rows: pl.DataFrame, report: Report) -> None:
    good = accepted(rows, report, empty_ids=False)
    if not good.is_empty():
        new = store_span_rows(store, good)
        report.new[SPANS] += sum(new)
        report.known[SPANS] += len(new) - sum(new)
