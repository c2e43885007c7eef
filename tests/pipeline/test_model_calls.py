"""What the store marks as a model call (``IsModelCall``) and what the converters take for one: they must agree."""

import json
from typing import Any

import polars as pl
import pytest

from spanloop.converters.canonical import canonical_columns
from spanloop.converters.dialects.wrapped import (
    ADK,
    CONFIDENT,
    GENKIT,
    HAYSTACK,
    JUDGMENT,
    LANGFUSE,
    LANGSMITH,
    LANGWATCH,
    MLFLOW,
    Family,
)
from spanloop.converters.spans import SpanKind

from ..converters import converters_recordings as recordings
from ..converters.converters_world import stored_frame
from ..converters.pipeline_feed import Feed

KEY = ["TraceId", "SpanId"]
MODEL_CALLS = "SELECT TraceId, SpanId FROM otel_traces WHERE IsModelCall"


def unmarked(feed: Feed, spans: pl.DataFrame) -> pl.DataFrame:
    """The model calls among ``spans``, as the dialects see them, that the store does not mark once it has them."""
    feed.store.insert("otel_traces", stored_frame(spans, feed.store.schema("otel_traces")))
    calls = spans.filter(canonical_columns(spans)["kind"] == SpanKind.LLM)
    assert calls.height, "a recording without a model call checks nothing"
    return calls.join(feed.sql(MODEL_CALLS), on=KEY, how="anti")


def test_every_model_call_of_the_recordings_is_marked(feed: Feed) -> None:
    recorded = {path.stem: json.loads(path.read_text())["spans"] for path in sorted(recordings.OWN.glob("*.json"))}
    assert {"langfuse", "mlflow", "google_adk", "haystack_native"} <= recorded.keys()
    spans = pl.concat(recordings.span_frame(each) for each in recorded.values())
    assert unmarked(feed, spans).select("SpanName", "ScopeName").unique().to_dicts() == []


def kinds(family: Family) -> list[dict[str, str]]:
    return [{family.kind: told} for told, kind in family.kinds.items() if kind is SpanKind.LLM]


ADK_CALL: dict[str, str] = {}
MARKS: list[tuple[Family, str, list[dict[str, str]]]] = [
    *(
        (family, "generate", kinds(family))
        for family in (LANGFUSE, LANGSMITH, LANGWATCH, MLFLOW, GENKIT, JUDGMENT, CONFIDENT)
    ),
    (HAYSTACK, "haystack.component.run", [{HAYSTACK.kind: "HuggingFaceLocalGenerator"}]),
    (ADK, "call_llm", [ADK_CALL]),
]


@pytest.mark.parametrize(("family", "name", "marks"), MARKS, ids=[family.name for family, _, _ in MARKS])
def test_every_mark_that_the_wrapping_tracers_have_is_known(
    feed: Feed, family: Family, name: str, marks: list[dict[str, str]]
) -> None:
    assert marks
    content = {family.input[0]: '{"messages": []}', family.output[0]: '{"choices": []}'}
    for number, mark in enumerate(marks):
        times = {"start_time": "2026-11-20T12:00:00Z", "end_time": "2026-11-20T12:00:01Z"}
        span: dict[str, Any] = {
            **times,
            "name": name,
            "parent_id": None,
            "context": {"trace_id": f"{number + 1:032x}", "span_id": f"{number + 1:016x}"},
            "attributes": {**mark, **content},
            "status": {"status_code": "UNSET"},
            "events": [],
            "resource": {"attributes": {}},
        }
        assert unmarked(feed, recordings.span_frame([span])).is_empty(), mark


def test_tools_agents_and_plain_spans_are_not_marked(feed: Feed) -> None:
    spans = pl.concat(
        recordings.span_frame(json.loads((recordings.OWN / f"{name}.json").read_text())["spans"])
        for name in ("langfuse", "mlflow", "haystack_native", "google_adk", "langsmith", "agentops", "autogen")
    )
    others = spans.filter(canonical_columns(spans)["kind"] != SpanKind.LLM)
    assert others.height > 10
    feed.store.insert("otel_traces", stored_frame(others, feed.store.schema("otel_traces")))
    assert feed.sql(MODEL_CALLS).is_empty()
