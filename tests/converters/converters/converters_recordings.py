"""Recordings as the SDK's JSON exporter prints them → otel_traces rows as the collector stores them."""

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from spanloop.converters import frames

OWN = Path(__file__).parent / "recordings"
RECORDINGS = Path(__file__).parents[3].parent / "shared" / "data" / "spans"
INGESTED_AT = datetime(2026, 11, 20, 12, tzinfo=UTC)


def load(name: str) -> dict[str, Any]:
    """The recording, or a skip where the data are absent."""
    path = OWN / f"{name}.json"
    path = path if path.exists() else RECORDINGS / f"{name}.json"
    if not path.exists():
        pytest.skip(f"no recording at {path}")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def span_frame(recorded: Iterable[Mapping[str, Any]], ingested_at: datetime = INGESTED_AT) -> pl.DataFrame:
    """Rows with the columns that the converters read."""
    rows = [_row(span) for span in recorded]
    frame = pl.DataFrame(rows, schema={**frames.SPANS, "Timestamp": pl.Int64, "IngestedAt": frames.TIME_US})
    return frame.with_columns(
        pl.col("Timestamp").cast(frames.TIME_NS), pl.lit(ingested_at).cast(frames.TIME_US).alias("IngestedAt")
    )


def log_frame(recorded: Iterable[Mapping[str, Any]], ingested_at: datetime = INGESTED_AT) -> pl.DataFrame:
    """Log events as rows of ``otel_logs``."""
    rows = [_log_row(record) for record in recorded]
    frame = pl.DataFrame(rows, schema={**frames.LOGS, "Timestamp": pl.Int64, "IngestedAt": frames.TIME_US})
    return frame.with_columns(
        pl.col("Timestamp").cast(frames.TIME_NS), pl.lit(ingested_at).cast(frames.TIME_US).alias("IngestedAt")
    )


def _log_row(record: Mapping[str, Any]) -> dict[str, Any]:
    body = record["body"]
    return {
        "Timestamp": _ns(record["timestamp"] or record["observed_timestamp"]),
        "TraceId": record["trace_id"].removeprefix("0x"),
        "SpanId": record["span_id"].removeprefix("0x"),
        "EventName": record.get("event_name") or "",
        "Body": "" if body is None else as_text(body),
        "LogAttributes": as_map(record["attributes"]),
        "IngestedAt": None,
    }


def _row(span: Mapping[str, Any]) -> dict[str, Any]:
    start, end = (_ns(span[key]) for key in ("start_time", "end_time"))
    resource = span["resource"]["attributes"]
    return {
        "Timestamp": start,
        "TraceId": span["context"]["trace_id"].removeprefix("0x"),
        "SpanId": span["context"]["span_id"].removeprefix("0x"),
        "ParentSpanId": (span["parent_id"] or "").removeprefix("0x"),
        "SpanName": span["name"],
        "ServiceName": resource.get("service.name", ""),
        "ScopeName": span.get("instrumentation_scope", {}).get("name", ""),
        "SpanAttributes": as_map(span["attributes"]),
        "Duration": end - start,
        "StatusCode": span["status"]["status_code"].title(),
        "StatusMessage": span["status"].get("description", ""),
        "Events.Name": [event["name"] for event in span["events"]],
        "Events.Attributes": [as_map(event["attributes"]) for event in span["events"]],
        "DroppedAttributesCount": 0,
        "IngestedAt": None,
    }


def _ns(text: str) -> int:
    moment = datetime.fromisoformat(text)
    return int(moment.timestamp()) * 1_000_000_000 + moment.microsecond * 1_000


def as_map(values: Mapping[str, Any]) -> list[dict[str, str]]:
    return [{"key": key, "value": as_text(value)} for key, value in values.items()]


def as_text(value: Any) -> str:
    """An attribute's value as the collector writes it: scalars as text, arrays and objects as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value)
