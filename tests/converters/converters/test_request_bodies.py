"""Bodies that Claude Code logs under the span around its requests go to the requests that they are of, or nowhere."""

import itertools

import polars as pl
import pytest

from spanloop.converters import frames
from spanloop.converters.reading.request_bodies import with_request_spans

MS = 10**6
Call = tuple[str, int, int, str]
"""A request's span: id, start and end in milliseconds, source."""
Body = tuple[str, int, str, str]
"""A record: kind, time in milliseconds, the request's id, source."""


def items(**values: str) -> list[dict[str, str]]:
    return [{"key": key.replace("__", "."), "value": value} for key, value in values.items()]


def owners(calls: list[Call], bodies: list[Body]) -> list[str]:
    """The span of each body, in order; empty where it names none."""
    span_rows = [
        {
            "Timestamp": start * MS,
            "TraceId": "t",
            "SpanId": span_id,
            "ParentSpanId": "turn",
            "SpanName": "claude_code.llm_request",
            "Duration": (end - start) * MS,
            "SpanAttributes": items(query_source_safe=source),
        }
        for span_id, start, end, source in calls
    ]
    log_rows = [
        {
            "Timestamp": at * MS,
            "TraceId": "t",
            "SpanId": "turn",
            "LogAttributes": items(request_body_id=request_id, query_source=source),
            "name": f"api_{kind}_body",
        }
        for kind, at, request_id, source in bodies
    ]
    log_schema = {**frames.LOGS, "Timestamp": pl.Int64(), "name": pl.String()}
    spans = frames.conform(pl.DataFrame(span_rows, schema_overrides={"Timestamp": pl.Int64()}), frames.SPANS)
    logs = pl.DataFrame(log_rows, schema=log_schema).with_columns(pl.col("Timestamp").cast(frames.TIME_NS))
    return with_request_spans(spans, logs, "name")["SpanId"].to_list()


ONE_CALL: list[Call] = [("a", 100, 200, "sdk")]
ITS_BODIES: list[Body] = [("request", 105, "1", "sdk"), ("response", 199, "1", "sdk")]


def test_a_request_and_its_response_go_to_the_span_that_was_open() -> None:
    calls = [*ONE_CALL, ("b", 300, 400, "sdk")]
    bodies: list[Body] = [*ITS_BODIES, ("request", 301, "2", "sdk"), ("response", 400, "2", "sdk")]
    assert owners(calls, bodies) == ["a", "a", "b", "b"]


def test_of_a_request_that_was_tried_again_the_last_body_counts() -> None:
    again: list[Body] = [("request", 101, "0", "sdk"), *ITS_BODIES]
    assert owners(ONE_CALL, again) == ["", "a", "a"]


def test_calls_at_one_time_have_a_body_each() -> None:
    calls = [*ONE_CALL, ("b", 101, 210, "sdk")]
    bodies: list[Body] = [*ITS_BODIES, ("request", 106, "2", "sdk"), ("response", 209, "2", "sdk")]
    found = [sorted(zip(order, owners(calls, list(order)), strict=True)) for order in itertools.permutations(bodies)]
    assert owners(calls, bodies) == ["a", "a", "b", "b"]
    assert all(one == found[0] for one in found)


@pytest.mark.parametrize(
    "bodies",
    [
        [("request", 90, "1", "sdk")],
        [("request", 105, "1", "generate_session_title")],
        [("request", 105, "1", "sdk"), ("response", 250, "1", "sdk")],
        [("response", 150, "1", "sdk")],
    ],
    ids=["before the call", "of another source", "answered after the call", "without its request"],
)
def test_a_body_of_no_known_request_names_no_span(bodies: list[Body]) -> None:
    assert set(owners(ONE_CALL, bodies)) == {""}


def test_a_sub_agents_request_is_told_by_the_kind_of_its_source() -> None:
    assert owners([("a", 100, 200, "agent.custom")], [("request", 105, "1", "agent:custom:researcher")]) == ["a"]


def test_other_records_keep_their_span() -> None:
    assert owners(ONE_CALL, [("error", 105, "1", "sdk"), *ITS_BODIES]) == ["turn", "a", "a"]
