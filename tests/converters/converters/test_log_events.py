"""Log records that name a span are its events; others, and those that tell of nothing, change no row."""

import json
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from spanloop.converters import Converted, frames

from .converters_world import World, convert, trace_id

TRACE, SPAN = trace_id("t"), "a" * 16
Record = dict[str, Any]
CHOICE = {"index": 0, "finish_reason": "stop", "message": {"content": "a"}}


def record(
    name: str, body: Any, *, span: str = SPAN, after_ns: int = 0, attributes: dict[str, str] | None = None
) -> Record:
    items = [{"key": key, "value": value} for key, value in (attributes or {}).items()]
    return {
        "Timestamp": after_ns,
        "TraceId": TRACE,
        "SpanId": span,
        "EventName": name,
        "Body": json.dumps(body),
        "LogAttributes": items,
        "IngestedAt": 0,
    }


def converted(*records: Record, error: str = "") -> Converted:
    world = World()
    world.span(
        "chat", {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}, trace=TRACE, span_id=SPAN, error=error
    )
    start = int(world.spans[0]["Timestamp"])
    schema = pl.Schema({**frames.LOGS, "Timestamp": pl.Int64(), "IngestedAt": pl.Int64()})
    rows = [{**one, "Timestamp": start + one["Timestamp"], "IngestedAt": start // 1_000} for one in records]
    logs = pl.DataFrame(rows, schema=schema).with_columns(
        pl.col("Timestamp").cast(frames.TIME_NS), pl.col("IngestedAt").cast(frames.TIME_US)
    )
    return convert(world.span_frame(), scores=world.score_frame(), generations=world.generation_frame(), logs=logs)


CALLED = {"tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}]}
CONVERSATION = (
    record("gen_ai.choice", CHOICE),
    record("gen_ai.tool.message", {"id": "c", "content": "42"}),
    record("gen_ai.assistant.message", CALLED),
    record("gen_ai.user.message", {"content": "q"}),
    record("gen_ai.system.message", {"content": "Be brief."}),
)


def test_records_of_one_moment_are_read_in_the_order_of_a_conversation() -> None:
    (row,) = converted(*CONVERSATION).transitions.iter_rows(named=True)
    assert [message["role"] for message in json.loads(row["state"])] == ["system", "user", "assistant", "tool"]
    assert (json.loads(row["action"])["parts"], row["is_trainable"]) == ([{"type": "text", "content": "a"}], True)


def test_time_goes_before_the_order_of_a_conversation() -> None:
    later = record("gen_ai.system.message", {"content": "Be brief."}, after_ns=9)
    (row,) = converted(*CONVERSATION[:-1], later).transitions.iter_rows(named=True)
    assert [message["role"] for message in json.loads(row["state"])] == ["user", "assistant", "tool", "system"]


@pytest.mark.parametrize(
    "other",
    [
        record("gen_ai.user.message", {"content": "q"}),
        record("gen_ai.user.message", {"content": "another's"}, span="b" * 16),
    ],
    ids=["told twice", "of an unknown span"],
)
def test_a_record_that_tells_nothing_new_of_a_call_changes_no_row(other: Record) -> None:
    found, expected = converted(*CONVERSATION, other), converted(*CONVERSATION)
    for table in ("episodes", "transitions", "failures"):
        assert_frame_equal(getattr(found, table), getattr(expected, table))


def test_an_exception_in_a_record_says_why_the_span_failed() -> None:
    raised = {"exception.type": "httpx.ReadTimeout", "exception.message": "The read operation timed out"}
    found = converted(CONVERSATION[3], record("exception", "", attributes=raised), error="failed")
    assert found.failures.select("error_class", "fault_owner").rows() == [("timeout", "environment")]
    without = converted(CONVERSATION[3], error="failed").failures.select("error_class", "fault_owner").rows()
    assert without == [("model_call_error", "unknown")]
