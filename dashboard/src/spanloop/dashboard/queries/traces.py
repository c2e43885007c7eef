"""What the Traces page reads; one function for each named query.

Invariant: the list comes from summaries, which are there as soon as spans are; no pipeline needs to have run.
"""

from dataclasses import dataclass
from datetime import datetime

import polars as pl

from spanloop.dashboard.queries.episodes import MAX_SPANS
from spanloop.dashboard.view_models.span_tree import Span
from spanloop.store import Store


@dataclass(frozen=True, slots=True)
class TraceFilter:
    """Empty strings match everything."""

    text: str = ""
    """Part of a trace, task or session id, of the agent's or the root span's name, in any case."""
    service_name: str = ""
    only_failed: bool = False
    """Traces with a span that failed."""


@dataclass(frozen=True, slots=True)
class Trace:
    """One trace's summary."""

    started_at: datetime
    duration_ns: int
    root_name: str
    """Empty while no span without a parent is stored."""
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
    """Current episodes that hold it; empty before the pipeline has seen it."""


def traces(store: Store, since_s: int, chosen: TraceFilter, *, max_rows: int, skip_rows: int) -> pl.DataFrame:
    """The newest traces that match: columns of `Trace` less the episodes, with ``trace_id``."""
    return store.query(
        "dashboard_traces",
        since_s=since_s,
        text=chosen.text,
        service_name=chosen.service_name,
        only_failed=int(chosen.only_failed),
        max_rows=max_rows,
        skip_rows=skip_rows,
    )


def trace(store: Store, trace_id: str) -> Trace | None:
    """One trace; None when no span of it is stored."""
    frame = store.query("dashboard_trace", trace_id=trace_id)
    if frame.is_empty():
        return None
    row = frame.row(0, named=True)
    row["episode_ids"] = tuple(row["episode_ids"])
    return Trace(**row)


def spans(store: Store, trace_id: str, head: Trace) -> list[Span]:
    """Up to ``MAX_SPANS`` spans of one trace, in order of start."""
    start_s = int(head.started_at.timestamp())
    frame = store.query(
        "dashboard_spans",
        trace_ids=[trace_id],
        episode_key="",
        from_s=start_s,
        until_s=start_s + head.duration_ns // 1_000_000_000 + 2,
        max_rows=MAX_SPANS,
    )
    return [Span(**row) for row in frame.iter_rows(named=True)]
