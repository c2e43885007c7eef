"""OTLP/JSON requests, one a line → rows of ``otel_traces`` and ``otel_logs`` as the collector stores them."""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from spanloop.converters import Converted, convert, frames
from spanloop.foundation.surrogates import replace_surrogates

from .converters_recordings import INGESTED_AT

PUBLIC_REPORTS = Path(__file__).parents[3].parent / "shared" / "data" / "public_reports" / "convert"

_EVALUATION = "gen_ai.evaluation.result"
_NO_IDS: dict[str, Any] = {
    **dict.fromkeys(("label", "trace_id", "span_id", "response_id", "session_id", "episode_key"), ""),
    **dict.fromkeys(("scored_at", "ingested_at", "is_deleted"), 0),
}
_STATUS = ("Unset", "Ok", "Error")


class Delivered(NamedTuple):
    """The rows of some requests."""

    spans: pl.DataFrame
    logs: pl.DataFrame

    def convert(self, *, reward: float | None = None) -> Converted:
        """Convert; ``reward`` scores each trace beside what the log records score."""
        scores = [_score_row(row) for row in self.logs.iter_rows(named=True) if row["EventName"] == _EVALUATION]
        if reward is not None:
            scores += [{**_NO_IDS, "name": "reward", "value": reward, "trace_id": trace} for trace in self._traces()]
        numbered = [{"score_id": str(number), **row} for number, row in enumerate(scores)]
        generations = frames.empty(frames.GENERATIONS)
        return convert(self.spans, scores=_frame(numbered, frames.SCORES), generations=generations, logs=self.logs)

    def _traces(self) -> list[str]:
        return sorted(set(self.spans["TraceId"]))


def read(path: Path) -> Delivered:
    """Read a file of requests."""
    return delivered(json.loads(line) for line in path.read_text().splitlines() if line.strip())


def delivered(requests: Iterable[Mapping[str, Any]]) -> Delivered:
    """Rows of the requests; each is ingested a second after the one before."""
    spans: list[dict[str, Any]] = []
    logs: list[dict[str, Any]] = []
    for number, request in enumerate(requests):
        ingested_us = int(INGESTED_AT.timestamp()) * 1_000_000 + number * 1_000_000
        spans += [{**row, "IngestedAt": ingested_us} for row in _span_rows(request)]
        logs += [{**row, "IngestedAt": ingested_us} for row in _log_rows(request)]
    return Delivered(_frame(spans, pl.Schema({**frames.SPANS, **frames.LINKS})), _frame(logs, frames.LOGS))


def _span_rows(request: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for resource_spans in request.get("resourceSpans", ()):
        resource = _values(resource_spans.get("resource", {}).get("attributes", ()))
        for scope_spans in resource_spans["scopeSpans"]:
            for span in scope_spans["spans"]:
                yield _span_row(span, resource, scope_spans.get("scope", {}))


def _span_row(span: Mapping[str, Any], resource: Mapping[str, str], scope: Mapping[str, Any]) -> dict[str, Any]:
    start_ns, end_ns = int(span["startTimeUnixNano"]), int(span.get("endTimeUnixNano", 0))
    events, links, status = span.get("events", ()), span.get("links", ()), span.get("status", {})
    return {
        "Timestamp": start_ns,
        "TraceId": span["traceId"],
        "SpanId": span["spanId"],
        "ParentSpanId": span.get("parentSpanId", ""),
        "SpanName": span["name"],
        "ServiceName": resource.get("service.name", ""),
        "ScopeName": scope.get("name", ""),
        "SpanAttributes": _items(span.get("attributes", ())),
        "Duration": (end_ns - start_ns) % 2**64,
        "StatusCode": _STATUS[int(status.get("code", 0))],
        "StatusMessage": status.get("message", ""),
        "Events.Name": [event["name"] for event in events],
        "Events.Attributes": [_items(event.get("attributes", ())) for event in events],
        "Links.TraceId": [link["traceId"] for link in links],
        "Links.SpanId": [link["spanId"] for link in links],
        "DroppedAttributesCount": int(span.get("droppedAttributesCount", 0)),
    }


def _log_rows(request: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for resource_logs in request.get("resourceLogs", ()):
        for scope_logs in resource_logs["scopeLogs"]:
            for record in scope_logs["logRecords"]:
                yield {
                    "Timestamp": int(record.get("timeUnixNano", 0) or record.get("observedTimeUnixNano", 0)),
                    "TraceId": record.get("traceId", ""),
                    "SpanId": record.get("spanId", ""),
                    "EventName": record.get("eventName", ""),
                    "Body": _text(record.get("body", {})),
                    "LogAttributes": _items(record.get("attributes", ())),
                }


def _score_row(record: Mapping[str, Any]) -> dict[str, Any]:
    """The row that the view ``scores_from_logs`` makes of a record."""
    attributes = {item["key"]: item["value"] for item in record["LogAttributes"]}
    return {
        **_NO_IDS,
        "name": attributes["gen_ai.evaluation.name"],
        "value": float(attributes["gen_ai.evaluation.score.value"]),
        "label": attributes.get("gen_ai.evaluation.score.label", ""),
        "trace_id": record["TraceId"],
        "span_id": record["SpanId"],
        "response_id": attributes.get("gen_ai.response.id", ""),
    }


def _items(attributes: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in _values(attributes).items()]


def _values(attributes: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    return {attribute["key"]: _text(attribute["value"]) for attribute in attributes}


def _text(value: Mapping[str, Any]) -> str:
    plain = _plain(value)
    if isinstance(plain, str):
        return replace_surrogates(plain)
    return json.dumps(plain) if plain is not None else ""


def _plain(value: Mapping[str, Any]) -> Any:
    """The value of OTLP's ``AnyValue``."""
    if "arrayValue" in value:
        return [_plain(item) for item in value["arrayValue"].get("values", ())]
    if "kvlistValue" in value:
        return {item["key"]: _plain(item["value"]) for item in value["kvlistValue"].get("values", ())}
    if "intValue" in value:
        return int(value["intValue"])
    return next(iter(value.values()), None)


def _frame(rows: list[dict[str, Any]], schema: pl.Schema) -> pl.DataFrame:
    times = {name: dtype for name, dtype in schema.items() if dtype in {frames.TIME_NS, frames.TIME_US}}
    raw = {name: pl.Int64() if name in times else dtype for name, dtype in schema.items()}
    known = [{name: value for name, value in row.items() if name in schema} for row in rows]
    return pl.DataFrame(known, schema=raw).with_columns(pl.col(name).cast(dtype) for name, dtype in times.items())
