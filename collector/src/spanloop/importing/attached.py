"""Spans of somebody's running OpenTelemetry ClickHouse exporter, read from its table into our store.

Invariant: their server is only read. A span is taken once, however often the same stretch of time is read; what has
been read is remembered per table, and read again for ``REREAD_NS`` back, because a span is written after it ended and
its row tells only when it started. Traces without a model call stay where they are.
"""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Final, NamedTuple, Self

import polars as pl

from spanloop.collector.admission import RejectReason
from spanloop.collector.redaction import LEAKING_KEYS, Redactor
from spanloop.semconv.errors import ConfigurationError
from spanloop.store import Store
from spanloop.store.catalogue import named_query
from spanloop.store.client import Address, Connection

from .arrivals import store_span_rows
from .redacted_rows import redact_rows
from .report import SPANS, Report

REREAD_NS: Final = 2 * 3_600 * 1_000_000_000
"""How late a span may come in without being missed."""

_HOUR_NS: Final = 3_600 * 1_000_000_000
_PART_SPANS: Final = 5_000
_TIME_LIMIT: Final = datetime(2106, 2, 7, tzinfo=UTC)
_MODEL_CALL_KEYS: Final = (
    "gen_ai.operation.name",
    "gen_ai.request.model",
    "gen_ai.system",
    "gen_ai.provider.name",
    "llm.request.type",
    "openinference.span.kind",
)
"""An attribute that says: this span is of an LLM application."""

_NEEDED: Final = (
    "Timestamp", "TraceId", "SpanId", "ParentSpanId", "TraceState", "SpanName", "SpanKind", "ServiceName",
    "ResourceAttributes", "ScopeName", "ScopeVersion", "SpanAttributes", "Duration", "StatusCode", "StatusMessage",
    "Events.Timestamp", "Events.Name", "Events.Attributes",
    "Links.TraceId", "Links.SpanId", "Links.TraceState", "Links.Attributes",
)  # fmt: skip
_MAPS: Final = ("ResourceAttributes", "SpanAttributes", "Events.Attributes", "Links.Attributes")

Progress = Callable[[int, int], None]
"""Called with the spans read so far, and those that there are to read."""


class _Part(NamedTuple):
    """What one query reads."""

    from_ns: int
    number: int
    parts: int


class ForeignTable:
    """A span table that the OpenTelemetry ClickHouse exporter made. A context manager.

    Args:
        url: ``http(s)://user:password@host:port/database``; without a database ``default``, as for the exporter.
        table: The table's name.

    Raises:
        ConfigurationError: The URL is not usable, or the table is not there or not the exporter's Map variant.
        StoreError: Out of reach, or the server refused the login.
    """

    def __init__(self, url: str, table: str) -> None:
        self._address = Address.parse(url, default_database="default")
        self._table = table
        self._connection = Connection(self._address)
        try:
            self._check()
        except BaseException:
            self.close()
            raise

    def __str__(self) -> str:
        return f"{self._address}, table {self._table}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

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
            Input is every span that was read; spans that were read before count as known.

        Raises:
            StoreError: Either ClickHouse refused or is out of reach. Call again: nothing is missed or doubled.
        """
        state = f"attached {self}"
        since_ns = _resume_ns(store, state) if since is None else int(since.timestamp()) * 1_000_000_000
        hours = self._busy_hours(since_ns)
        total, report, done = int(hours["spans"].sum()), Report(), 0
        for hour_s, spans in hours.iter_rows():
            for part in _parts(int(hour_s), int(spans)):
                rows = self._spans(part)
                _take(store, redact_rows(rows, redactor or Redactor()), report)
                done += rows.height
                if progress is not None:
                    progress(done, total)
            _remember(store, state, int(hour_s) * 1_000_000_000)
        return report

    def _check(self) -> None:
        found = dict(self._query("attach_columns", table=self._table).iter_rows())
        missing = [name for name in _NEEDED if name not in found]
        if not found:
            raise ConfigurationError(
                f"There is no table {self._table!r} in {self._address}.",
                next_step="Name it with --table, and its database at the end of the URL.",
            )
        of_json = [name for name in (*_MAPS, "Events", "Links") if str(found.get(name, "")).find("JSON") >= 0]
        if of_json:
            raise ConfigurationError(
                f"{self} is of the exporter's JSON variant: {', '.join(of_json)} have the type JSON, "
                "expected Map(LowCardinality(String), String).",
                next_step="Let the OpenTelemetry Collector send a copy to spanloop instead (docs/existing-data.md).",
            )
        no_maps = [f"{name} {found[name]}" for name in _MAPS if name in found and "Map(" not in str(found[name])]
        if missing or no_maps:
            raise ConfigurationError(
                f"{self} is no span table of the OpenTelemetry ClickHouse exporter: missing {missing}, "
                f"of another type {no_maps}.",
                next_step="Name the exporter's traces table with --table.",
            )

    def _busy_hours(self, since_ns: int) -> pl.DataFrame:
        return self._query(
            "attach_busy_hours",
            table=self._table,
            since_ns=since_ns,
            reach_ns=min(_HOUR_NS, since_ns),
            model_call_keys=_MODEL_CALL_KEYS,
        )

    def _spans(self, part: _Part) -> pl.DataFrame:
        return self._query(
            "attach_spans",
            table=self._table,
            from_ns=part.from_ns,
            until_ns=part.from_ns + _HOUR_NS,
            reach_ns=min(_HOUR_NS, part.from_ns),
            part=part.number,
            parts=part.parts,
            model_call_keys=_MODEL_CALL_KEYS,
            leaking_keys=sorted(LEAKING_KEYS),
        )

    def _query(self, query_name: str, **parameters: object) -> pl.DataFrame:
        query = named_query(query_name)
        return self._connection.query(query.sql, doing=f"reading {self}", parameters=query.bind(parameters))


def _parts(hour_s: int, spans: int) -> Iterator[_Part]:
    parts = max(1, -(-spans // _PART_SPANS))
    return (_Part(hour_s * 1_000_000_000, number, parts) for number in range(parts))


def _take(store: Store, rows: pl.DataFrame, report: Report) -> None:
    reason = (
        pl.when(~pl.col("TraceId").str.contains(r"^[0-9a-f]{32}$"))
        .then(pl.lit(RejectReason.BAD_TRACE_ID.value))
        .when(~pl.col("SpanId").str.contains(r"^[0-9a-f]{16}$"))
        .then(pl.lit(RejectReason.BAD_SPAN_ID.value))
        .when(pl.col("Timestamp") >= pl.lit(_TIME_LIMIT))
        .then(pl.lit(RejectReason.TIMESTAMP_OUT_OF_RANGE.value))
    )
    judged = rows.with_columns(reason.alias("_reason"))
    report.rejected.update(judged["_reason"].drop_nulls().to_list())
    report.input += rows.height
    good = judged.filter(pl.col("_reason").is_null()).drop("_reason")
    if not good.is_empty():
        new = store_span_rows(store, good)
        report.new[SPANS] += sum(new)
        report.known[SPANS] += len(new) - sum(new)


def _resume_ns(store: Store, state: str) -> int:
    found = store.query("pipeline_state", name=state)
    if found.is_empty():
        return 0
    return max(0, int(json.loads(str(found.item(0, "value")))["read_ns"]) - REREAD_NS)


def _remember(store: Store, state: str, read_ns: int) -> None:
    """Everything before that moment was read."""
    store.insert("pipeline_state", pl.DataFrame({"name": [state], "value": [json.dumps({"read_ns": read_ns})]}))
