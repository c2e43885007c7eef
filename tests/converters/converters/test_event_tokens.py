"""Token ids that only an event of a span carries count as the span's own."""

import json
from typing import Any

import polars as pl
import pytest

from spanloop.converters import Converted, frames

from .converters_world import OPENING, World, convert, text, trace_id

TOLD = {"gen_ai.prompt.token_ids": [1, 2, 3], "gen_ai.completion.token_ids": [[4, 5]], "gen_ai.logprobs": [-0.5, -1.0]}


def items(values: dict[str, Any]) -> list[dict[str, str]]:
    return [{"key": key, "value": json.dumps(value)} for key, value in values.items()]


def converted(told: dict[str, Any], carrier: str, attributes: dict[str, Any] | None = None) -> Converted:
    world = World()
    own = world.call(OPENING, text("assistant", "a"), trace=trace_id("t"), attributes=attributes)
    logs = None
    if carrier == "event":
        world.spans[0] |= {"Events.Name": ["gen_ai.choice.tokens"], "Events.Attributes": [items(told)]}
    else:
        start = int(world.spans[0]["Timestamp"])
        row = {
            **dict.fromkeys(frames.LOGS),
            "Timestamp": start,
            "TraceId": trace_id("t"),
            "SpanId": own,
            "EventName": "gen_ai.tokens",
            "LogAttributes": items(told),
            "IngestedAt": start // 1_000,
        }
        schema = pl.Schema({**frames.LOGS, "Timestamp": pl.Int64(), "IngestedAt": pl.Int64()})
        logs = pl.DataFrame([row, row], schema=schema).with_columns(
            pl.col("Timestamp").cast(frames.TIME_NS), pl.col("IngestedAt").cast(frames.TIME_US)
        )
    spans, scores, generations = world.span_frame(), world.score_frame(), world.generation_frame()
    return convert(spans, scores=scores, generations=generations, logs=logs)


@pytest.mark.parametrize("carrier", ["event", "log record"])
def test_tokens_of_an_event_are_the_calls(carrier: str) -> None:
    (row,) = converted(TOLD, carrier).transitions.iter_rows(named=True)
    assert (row["prompt_token_ids"], row["response_token_ids"], row["logprobs"]) == ([1, 2, 3], [4, 5], [-0.5, -1.0])
    assert (row["token_source"], row["untrainable_reason"]) == ("span", "")


@pytest.mark.parametrize("carrier", ["event", "log record"])
def test_ids_without_log_probabilities_are_said_to_lack_them(carrier: str) -> None:
    told = {key: value for key, value in TOLD.items() if "logprobs" not in key}
    (row,) = converted(told, carrier).transitions.iter_rows(named=True)
    assert (row["response_token_ids"], row["untrainable_reason"]) == ([4, 5], "missing_logprobs")


@pytest.mark.parametrize("carrier", ["event", "log record"])
def test_what_a_span_says_itself_counts(carrier: str) -> None:
    own = {"prompt_token_ids": [7], "response_token_ids": [8], "logprobs": [-0.25]}
    (row,) = converted(TOLD, carrier, own).transitions.iter_rows(named=True)
    assert (row["prompt_token_ids"], row["response_token_ids"]) == ([7], [8])


def test_events_without_token_ids_change_nothing() -> None:
    (row,) = converted({"gen_ai.logprobs": [-0.5]}, "event").transitions.iter_rows(named=True)
    assert (row["token_source"], row["untrainable_reason"]) == ("none", "")
