"""A tool that refuses a quote as expired is a failure of the policy."""

import json
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from spanloop.converters import Options, convert
from spanloop.converters.attribution.loading import attribution_rules
from spanloop.converters.frames import GENERATIONS, SCORES, SPANS, empty

START = datetime(2026, 1, 1, tzinfo=UTC)
CALL = {"id": "c1", "type": "function", "function": {"name": "buy", "arguments": '{"quote": "q1"}'}}
MESSAGES = [
    {"role": "user", "content": "Buy it."},
    {"role": "assistant", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "Error: quote expired"},
    {"role": "assistant", "content": "I could not buy it."},
]


def model_call(number: int) -> dict[str, object]:
    """Return the span of the call whose output is ``MESSAGES[number]``."""
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "tiny",
        "gen_ai.input.messages": json.dumps(MESSAGES[:number]),
        "gen_ai.output.messages": json.dumps([MESSAGES[number]]),
    }
    items = [{"key": key, "value": value} for key, value in attributes.items()]
    times = {"Timestamp": START + timedelta(seconds=number), "IngestedAt": START}
    return {"TraceId": "1" * 32, "SpanId": f"{number:016x}", **times, "SpanAttributes": items}


def test_an_expired_quote_is_a_failure_of_the_policy() -> None:
    spans = pl.DataFrame([model_call(1), model_call(3)], schema=SPANS)
    options = Options(rules=attribution_rules(["stale_quote:confidence=0.75", "default"]))
    converted = convert(spans, scores=empty(SCORES), generations=empty(GENERATIONS), options=options)
    (failure,) = converted.failures.to_dicts()
    assert (failure["rule"], failure["error_class"], failure["fault_owner"]) == ("stale_quote", "stale_quote", "policy")
    assert (failure["step"], failure["confidence"]) == (0, pytest.approx(0.75))
