"""Traces and their spans, as they arrived.

Invariant: the list of traces reads summaries, which exist as soon as spans are stored; no pipeline needs to have run.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple, cast

import polars as pl

from spanloop.dashboard.view_models.span_tree import Span
from spanloop.store import Store

MAX_SPANS: Final = 20_000
"""Spans of one trace or episode that a page draws."""


@dataclass(frozen=True, slots=True)
class SpanDetail:
    """Attributes, events and resource of one span."""

    scope_name: str
    status: str
    status_message: str
    attributes: dict[str, str]
    resource: dict[str, str]
    events: tuple[tuple[str, dict[str, str]], ...]
    """Name and attributes of each event."""


class SpanStep(NamedTuple):
    """The step that a span is the model call of."""

    episode_id: str
    step: int


@dataclass(frozen=True, slots=True)
class Trace:
    """One trace's summary."""

    started_at: datetime
    duration_ns: int
    root_name: str
    """Empty while no root span is stored."""
    service_name: str
    agent_name: str
    model: str
    task_id: str
    session_id: str
    span_count: int
    failed_span_count: int
    model_calls: int
    input_tokens: int
    output_tokens: int
    episode_ids: tuple[str, ...]
    """Current episodes that contain the trace; empty before its conversion."""


def fetch_trace(store: Store, trace_id: str) -> Trace | None:
    """Return one trace, or None when none of its spans is stored."""
    frame = store.query("dashboard_trace", trace_id=trace_id)
    if frame.is_empty():
        return None
    row = frame.row(0, named=True)
    row["episode_ids"] = tuple(row["episode_ids"])
    return Trace(**row)


def fetch_trace_spans(store: Store, trace_id: str, trace: Trace) -> list[Span]:
    """Return up to ``MAX_SPANS`` spans of one trace, ordered by start."""
    start_s = int(trace.started_at.timestamp())
    frame = store.query(
        "dashboard_spans",
        trace_ids=[trace_id],
        episode_key="",
        from_s=start_s,
        until_s=start_s + trace.duration_ns // 1_000_000_000 + 2,
        max_rows=MAX_SPANS,
    )
    return [Span(**row) for row in frame.iter_rows(named=True)]


def fetch_span(store: Store, span: Span) -> SpanDetail | None:
    """Return the details of one span, or None when it is no longer stored."""
    frame = store.query("dashboard_span", trace_id=span.trace_id, span_id=span.span_id, start_ns=span.start_ns)
    if frame.is_empty():
        return None
    row = frame.row(0, named=True)
    events = cast("list[dict[str, str]]", json.loads(row.pop("events")))
    return SpanDetail(
        scope_name=row["scope_name"],
        status=row["status"],
        status_message=row["status_message"],
        attributes=parse_attributes(row["attributes"]),
        resource=parse_attributes(row["resource"]),
        events=tuple((event["event"], parse_attributes(event["attributes"])) for event in events),
    )


def fetch_spans_with_text(store: Store, spans: Sequence[Span], text: str) -> frozenset[str]:
    """Return the ids of those spans that have a text in an attribute, an event or their status."""
    frame = store.query(
        "dashboard_spans_with_text",
        trace_ids=sorted({span.trace_id for span in spans}),
        from_s=min(span.start_ns for span in spans) // 1_000_000_000,
        until_s=max(span.start_ns for span in spans) // 1_000_000_000 + 1,
        text=text,
        max_rows=MAX_SPANS,
    )
    return frozenset(frame["span_id"].to_list())


def fetch_span_step(store: Store, span: Span) -> SpanStep | None:
    """Return the step of a current episode whose model call a span is; None for other spans and before conversion."""
    frame = store.query("dashboard_span_step", trace_id=span.trace_id, span_id=span.span_id)
    return None if frame.is_empty() else SpanStep(*frame.row(0))


def fetch_span_scores(store: Store, span: Span) -> pl.DataFrame:
    """Return the scores of a span, and those of its trace that name no span."""
    return store.query("dashboard_span_scores", trace_id=span.trace_id, span_id=span.span_id)


def parse_attributes(text: str) -> dict[str, str]:
    """Parse a JSON object into attributes; every value becomes text."""
    loaded: Any = json.loads(text)
    return {str(key): str(value) for key, value in cast("dict[str, Any]", loaded).items()}
