"""Claude Code logs the bodies of its requests under the span around them; here they find the requests' own spans.

Invariant: a body goes to a request that was under way when it was logged, or nowhere. The last body of a request
counts, because each of its attempts logs one.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import polars as pl

REQUEST: Final = "api_request_body"
RESPONSE: Final = "api_response_body"
BODIES: Final = (REQUEST, RESPONSE)

_SPAN_NAME: Final = "claude_code.llm_request"
_SOURCE: Final = "query_source_safe"
_LOGGED_NS: Final = 2 * 10**6
"""The records' times are whole milliseconds, cut off."""

_MOST_CANDIDATES: Final = 16
"""So many requests of one turn are under way at a time."""

_Place = tuple[str, str]


class _Request(NamedTuple):
    span_id: str
    start_ns: int
    end_ns: int
    source: str


class _Body(NamedTuple):
    row: int
    name: str
    at_ns: int
    request_id: str
    source: str


def with_request_spans(spans: pl.DataFrame, logs: pl.DataFrame, name: str) -> pl.DataFrame:
    """``logs`` with the bodies of Claude Code's requests under the spans of the requests; the others name no span.

    Args:
        spans: The columns of ``frames.SPANS``.
        logs: The columns of ``frames.LOGS``.
        name: The column with the name of a record's event.
    """
    is_body = pl.col(name).is_in(BODIES) & pl.col("Timestamp").is_not_null()
    records = logs.with_row_index("_row").filter(is_body)
    if records.is_empty():
        return logs
    bodies: dict[_Place, list[_Body]] = defaultdict(list)
    columns = records.select("TraceId", "SpanId", "_row", name, pl.col("Timestamp").cast(pl.Int64), "LogAttributes")
    for trace_id, span_id, row, event, at_ns, items in columns.iter_rows():
        values = _values(items)
        body = _Body(row, event, at_ns, values.get("request_body_id", ""), values.get("query_source", ""))
        bodies[trace_id, span_id].append(body)
    requests = _requests(spans)
    owners = [""] * logs.height
    for place, logged in bodies.items():
        for row, span_id in _assign(logged, requests.get(place, ())).items():
            owners[row] = span_id
    span_ids = pl.Series(owners, dtype=pl.String)
    return logs.with_columns(pl.when(is_body).then(span_ids).otherwise("SpanId").alias("SpanId"))


def _values(items: Iterable[Mapping[str, str]] | None) -> dict[str, str]:
    return {item["key"]: item["value"] for item in items or ()}


def _requests(spans: pl.DataFrame) -> dict[_Place, list[_Request]]:
    """Trace and parent → its requests, by start."""
    requests: dict[_Place, list[_Request]] = defaultdict(list)
    rows = spans.filter(pl.col("SpanName") == _SPAN_NAME).select(
        "TraceId", "ParentSpanId", "SpanId", pl.col("Timestamp").cast(pl.Int64), "Duration", "SpanAttributes"
    )
    for trace_id, parent, span_id, start_ns, duration_ns, items in rows.sort("Timestamp", "SpanId").iter_rows():
        request = _Request(span_id, start_ns, start_ns + (duration_ns or 0), _values(items).get(_SOURCE, ""))
        requests[trace_id, parent].append(request)
    return requests


def _assign(bodies: Sequence[_Body], requests: Sequence[_Request]) -> dict[int, str]:
    """Row of a body → the span that it is of."""
    answers = {body.request_id: body for body in bodies if body.name == RESPONSE}
    starts = [request.start_ns for request in requests]
    span_of: dict[int, str] = {}
    taken: dict[str, _Body] = {}
    request_bodies = (body for body in bodies if body.name == REQUEST)
    for body in sorted(request_bodies, key=lambda body: (body.at_ns, body.request_id)):
        answer = answers.get(body.request_id)
        begun = bisect_right(starts, body.at_ns + _LOGGED_NS)
        newest = requests[max(0, begun - _MOST_CANDIDATES) : begun]
        fitting = [request for request in newest if _fits(request, body, answer)]
        request = next((each for each in fitting if each.span_id not in taken), fitting[-1] if fitting else None)
        if request is None:
            continue
        if earlier := taken.get(request.span_id):
            span_of.pop(earlier.row)  # an attempt that was made again
        taken[request.span_id] = body
        span_of[body.row] = request.span_id
        if answer is not None:
            span_of[answer.row] = request.span_id
    return span_of


def _fits(request: _Request, body: _Body, answer: _Body | None) -> bool:
    is_source = not request.source or body.source.replace(":", ".").startswith(request.source)
    is_within = request.start_ns - _LOGGED_NS <= body.at_ns <= request.end_ns
    return is_source and is_within and (answer is None or answer.at_ns <= request.end_ns + _LOGGED_NS)


__all__ = ["BODIES", "REQUEST", "RESPONSE", "with_request_spans"]
