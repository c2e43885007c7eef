"""The spans of Acme's tracer become transitions."""

import json
from datetime import UTC, datetime

import polars as pl

from spanloop.converters import convert
from spanloop.converters.frames import GENERATIONS, SCORES, SPANS, empty

ATTRIBUTES = {
    "acme.kind": "model",
    "acme.model": "tiny",
    "acme.messages": json.dumps([{"role": "user", "content": "Hi"}]),
    "acme.answer": "Hello.",
    "acme.stop": "stop",
}
START = datetime(2026, 1, 1, tzinfo=UTC)
SPAN = {
    "Timestamp": START,
    "IngestedAt": START,
    "TraceId": "1" * 32,
    "SpanId": "2" * 16,
    "SpanAttributes": [{"key": key, "value": value} for key, value in ATTRIBUTES.items()],
}


def test_a_model_call_becomes_a_transition() -> None:
    spans = pl.DataFrame([SPAN], schema=SPANS)
    converted = convert(spans, scores=empty(SCORES), generations=empty(GENERATIONS))
    assert converted.rejected.is_empty()
    (step,) = converted.transitions.to_dicts()
    assert (step["model"], step["finish_reason"]) == ("tiny", "stop")
    assert json.loads(step["action"])["parts"] == [{"type": "text", "content": "Hello."}]
