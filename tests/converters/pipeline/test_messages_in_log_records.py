"""Log records that hold the messages of their span are loaded, whatever they are called."""

import json
from typing import Any

import pytest

from spanloop.pipeline import run
from spanloop.store import Store

from ..converters.converters_recordings import log_frame
from ..converters.converters_world import trace_id
from ..converters.pipeline_feed import Feed

TRACE = trace_id("t")


def record(span_id: str, body: object, name: str) -> dict[str, Any]:
    return {
        "timestamp": "2026-11-20T12:00:00Z",
        "observed_timestamp": "2026-11-20T12:00:00Z",
        "trace_id": TRACE,
        "span_id": span_id,
        "event_name": name,
        "body": body,
        "attributes": {"event.name": name} if name else {},
    }


def messages(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


@pytest.mark.parametrize("name", ["strands.telemetry.tracer", ""])
@pytest.mark.parametrize("is_late", [False, True])
def test_the_content_of_a_call_is_loaded_from_its_record(store: Store, feed: Feed, name: str, *, is_late: bool) -> None:
    span_id = feed.world.span("chat", {"gen_ai.operation.name": "chat", "gen_ai.request.model": "tiny"}, trace=TRACE)
    feed.send()
    if is_late:
        run(store)
    body = {"input": messages("Hello?"), "output": {"messages": [{"role": "assistant", "content": "Hi."}]}}
    feed.send_logs(log_frame([record(span_id, body, name)]))
    run(store)
    (step,) = feed.current("transitions").to_dicts()
    assert step["untrainable_reason"] == ""
    assert json.loads(step["action"])["parts"] == [{"type": "text", "content": "Hi."}]


@pytest.mark.parametrize("body", ["input messages", {"input": "messages"}, {"message": {"messages": []}}])
def test_other_records_of_a_span_are_not_loaded(feed: Feed, body: object) -> None:
    span_id = feed.world.span("chat", {"gen_ai.operation.name": "chat"}, trace=TRACE)
    feed.send_logs(log_frame([record(span_id, body, "some.scope")]))
    assert feed.sql("SELECT SpanEventName FROM otel_logs")["SpanEventName"].to_list() == [""]
