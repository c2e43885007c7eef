"""What the store marks as a model call (``IsModelCall``) and what the converters take for one: they must agree."""

import json
import time
from collections.abc import Callable
from typing import Any, Final

import polars as pl
import pytest

from spanloop.converters.dialects import DIALECTS, Dialect, attr
from spanloop.converters.dialects.attribute_map import (
    ADK,
    CONFIDENT,
    GENKIT,
    HAYSTACK,
    JUDGMENT,
    LANGFUSE,
    LANGSMITH,
    LANGWATCH,
    MLFLOW,
    AttributeMap,
)
from spanloop.converters.reading.canonical_columns import canonical_columns
from spanloop.converters.spans import SpanKind
from spanloop.pipeline.model_call_condition import model_call_condition
from spanloop.store import Store
from spanloop.store.model_call_marks import mark_model_calls

from ..converters import converters_recordings as recordings
from ..converters.converters_world import stored_frame
from ..converters.pipeline_feed import Feed

KEY = ["TraceId", "SpanId"]
MODEL_CALLS = "SELECT TraceId, SpanId FROM otel_traces WHERE IsModelCall"


@pytest.fixture(autouse=True)
def _marked(store: Store) -> None:
    """As the pipeline starts."""
    assert mark_model_calls(store, model_call_condition(DIALECTS), max_s=60) == 0


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


def kinds(family: AttributeMap) -> list[dict[str, str]]:
    return [{family.kind: told} for told, kind in family.kinds.items() if kind is SpanKind.LLM]


ADK_CALL: dict[str, str] = {}
MARKS: list[tuple[AttributeMap, str, list[dict[str, str]]]] = [
    *(
        (family, "generate", kinds(family))
        for family in (LANGFUSE, LANGSMITH, LANGWATCH, MLFLOW, GENKIT, JUDGMENT, CONFIDENT)
    ),
    (HAYSTACK, "haystack.component.run", [{HAYSTACK.kind: "HuggingFaceLocalGenerator"}]),
    (ADK, "call_llm", [ADK_CALL]),
]


@pytest.mark.parametrize(("family", "name", "marks"), MARKS, ids=[family.name for family, _, _ in MARKS])
def test_every_mark_that_the_wrapping_tracers_have_is_known(
    feed: Feed, family: AttributeMap, name: str, marks: list[dict[str, str]]
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


MARKED_TOO: Final = {
    ("agno_openllmetry", "agent", "weather_agent.agent"): "names a model, as calls in the legacy form do",
    ("beeai_openinference", "other", "error"): "is of the call's kind, and only repeats its error",
    ("claude_code", "other", "claude_code.llm_request"): "asks for a session's title, beside the agent",
    ("claude_code_bodies", "other", "claude_code.llm_request"): "asks for a session's title, beside the agent",
    ("honeyhive", "other", "generate_error"): "is of the call's kind, and only repeats its error",
    (
        "llama_index_openinference",
        "other",
        "OpenAILike._prepare_chat_with_tools",
    ): "is of the call's kind, and asks no one",
    ("logfire_openai_stream", "other", "Chat Completion with {request_data[model]!r}"): "another span tells the stream",
    ("mastra_1_3", "other", "chat gpt-4o"): "stands for a run whose steps were exported; without them it is the call",
    ("promptlayer", "other", "openai.OpenAI"): "is the client's constructor, told from a call by its arguments",
    ("promptlayer_openai", "other", "openai.OpenAI"): "is the client's constructor, told from a call by its arguments",
}
"""Recording, kind and name of marked spans that are no calls → why only reading tells."""


def test_no_other_span_of_the_recordings_is_marked_but_a_few(feed: Feed) -> None:
    spans = pl.concat(
        recordings.span_frame(json.loads(path.read_text())["spans"]).with_columns(recording=pl.lit(path.stem))
        for path in sorted(recordings.OWN.glob("*.json"))
    )
    kinds = spans.with_columns(canonical_columns(spans)["kind"].fill_null("").alias("kind"))
    others = kinds.filter(pl.col("kind") != SpanKind.LLM)
    assert dict(others["kind"].value_counts().iter_rows()).keys() >= {"tool", "agent", "other"}
    feed.store.insert("otel_traces", stored_frame(others.drop("kind", "recording"), feed.store.schema("otel_traces")))
    marked = others.join(feed.sql(MODEL_CALLS), on=KEY, how="semi")
    told = set(marked.select("recording", "kind", "SpanName").iter_rows())
    assert told == MARKED_TOO.keys()


ACME = Dialect(
    name="acme",
    matches=attr("acme.kind").is_not_null(),
    calls=({"acme.kind": ("model",), "!acme.is'cached": "(?i)^yes$", "SpanName": r"^call\b"},),
)


def acme_span(feed: Feed, name: str, **attributes: str) -> str:
    own = {f"acme.{key}": text for key, text in attributes.items()}
    return feed.world.span(name, {**own, "gen_ai.usage.input_tokens": "7"}, trace=f"{len(feed.world.spans) + 1:032x}")


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def marks(feed: Feed) -> list[bool]:
    return feed.sql("SELECT IsModelCall FROM otel_traces ORDER BY TraceId")["IsModelCall"].to_list()


def test_spans_that_are_stored_are_marked_when_a_dialect_is_added(feed: Feed) -> None:
    acme_span(feed, "call model", kind="Model")
    acme_span(feed, "call model", kind="model", **{"is'cached": "YES"})
    acme_span(feed, "recall model", kind="model")
    feed.send()
    assert marks(feed) == [False] * 3
    condition = model_call_condition((ACME, *DIALECTS))
    assert mark_model_calls(feed.store, condition, max_s=60) == 0
    acme_span(feed, "call again", kind="model")
    feed.send()
    wait_for(lambda: marks(feed) == [True, False, False, True])
    summarised = feed.sql("SELECT trace_id FROM trace_summaries GROUP BY trace_id HAVING length(maxMap(calls)) > 0")
    assert summarised.height == 2


def test_marking_is_not_repeated_and_continues_after_an_interruption(feed: Feed) -> None:
    for day in range(3):
        feed.world.clock_s = day * 86_400.0
        acme_span(feed, "call model", kind="model")
    feed.send()
    condition = model_call_condition((ACME,))
    assert [mark_model_calls(feed.store, condition, max_s=0) for _ in range(4)] == [2, 1, 0, 0]
    wait_for(lambda: marks(feed) == [True] * 3)


def test_the_condition_is_stable_and_names_each_alternative_once() -> None:
    assert model_call_condition(DIALECTS) == model_call_condition((*DIALECTS, *DIALECTS))
    assert model_call_condition(()) == "false"
