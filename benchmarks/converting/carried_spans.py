"""The traces of ``carried_traces`` as the store holds them, and what must come of them."""

import json

import polars as pl
from converting import carried_traces
from converting.carried_traces import TURNS
from converting.stored_frames import Given, frame, items

from spanloop.converters import Converted, frames
from spanloop.converters.tokens.message_numbers import with_state_texts


def carried(traces: int, profile: str) -> Given:
    """The spans of ``carried_traces``, as the collector stores them: lists as JSON, numbers as text."""
    spans = [
        {
            "Timestamp": round(row.start_s * 1e9),
            "TraceId": f"{number + 1:032x}",
            "SpanId": f"{(number << 8 | row.number) + 1:016x}",
            "ParentSpanId": "" if row.parent is None else f"{(number << 8 | row.parent) + 1:016x}",
            "SpanName": row.name,
            "ServiceName": "bench",
            "SpanAttributes": items(
                {
                    key: json.dumps(value) if isinstance(value, tuple) else str(value)
                    for key, value in row.attributes.items()
                }
            ),
            "Duration": round((row.end_s - row.start_s) * 1e9),
            "StatusCode": "Unset",
            "IngestedAt": round(row.end_s * 1e6),
        }
        for number in range(traces)
        for row in carried_traces.rows(number, profile)
    ]
    return Given(frame(spans, frames.SPANS), frames.empty(frames.GENERATIONS), frames.empty(frames.SCORES))


def check_carried(traces: int, profile: str, converted: Converted) -> None:
    """Insist on what must come out: all ids, messages and rewards, and why no step is trained on."""
    found = with_state_texts(converted.transitions, converted.messages)
    ids = found.select((pl.col("prompt_token_ids").list.len() + pl.col("response_token_ids").list.len()).sum()).item()
    # The messages of later calls hold answers of tools, and not the calls that asked for them.
    expected = "missing_logprobs" if profile == "messages" else "missing_content"
    reason = pl.when(pl.col("step") == 0).then(pl.lit(expected)).otherwise(pl.lit("missing_content"))
    is_right = (pl.col("reward") == 1) & (pl.col("untrainable_reason") == reason)
    says = pl.col("state").str.len_bytes() > (400 if profile == "messages" else 0)
    whole: int = found.select((is_right & says).sum()).item()
    if whole != TURNS * traces or ids != traces * sum(256 + 128 * turn + 64 for turn in range(TURNS)):
        raise SystemExit(f"expected {TURNS * traces} rewarded transitions with all their ids, got {whole} with {ids}")
