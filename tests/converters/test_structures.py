"""The program of ``test_frameworks`` and more of it, through more tracers: two tools at once, streams, refusals.

Each run asks for the weather: in Paris and Rome (two calls in one action), in Nowhere (the tool raises), in Oslo (a
stream), in Lima (an agent that asks another one, or a request that names the response before), and once the model's
server answers 429. What a tracer lets through of it is written down here, by step: agent, roles of the state, tools
asked for, what came back (``span:`` where the tool's own span tells), and why the step may not be trained on.
"""

import json
from typing import Any, NamedTuple

import polars as pl
import pytest

from spanloop.converters import Converted

from .test_recordings import convert_recording

LOOP = (
    ("- su get_weather+get_weather ok+ok -", "- suatt - - -"),
    ("- su get_weather error -", "- suat - - -"),
    ("- su get_weather ok -", "- suat - - -"),
    ("- su - - request_failed",),
)
"""A loop of the program's own around a client, every call of which is recorded whole."""


def of_agent(episodes: tuple[tuple[str, ...], ...], name: str = "-") -> tuple[tuple[str, ...], ...]:
    """The same, where the tools' spans are recorded, below an agent's with the name, if any."""
    found: list[tuple[str, ...]] = []
    for steps in episodes:
        parts = [step.split(" ") for step in steps]
        spans = ["+".join(f"span:{one}" for one in part[3].split("+")) if part[3] != "-" else "-" for part in parts]
        found.append(
            tuple(" ".join([name, *part[1:3], span, part[4]]) for part, span in zip(parts, spans, strict=True))
        )
    return tuple(found)


TOOL_AND_LIMIT = ("tool_error get_weather", "rate_limit -")


class Seen(NamedTuple):
    """What a recording tells of the program."""

    name: str
    episodes: tuple[tuple[str, ...], ...]
    failures: tuple[str, ...] = TOOL_AND_LIMIT
    rejected: dict[str, int] = {}  # noqa: RUF012 - a NamedTuple's default, never changed
    """Beside the context."""


SEEN = [
    Seen("anthropic_loop_openinference", LOOP, rejected={"duplicate_model_call": 7}),
    Seen(
        "anthropic_loop_openllmetry",
        (
            (
                "- su get_weather+get_weather ok+ok -",
                "- suau - - -",
            ),
            (
                "- su get_weather error -",
                "- suau - - -",
            ),
            (
                "- su get_weather ok -",
                "- suau - - -",
            ),
            ("- su - - request_failed",),
        ),
        rejected={"duplicate_model_call": 7},
    ),
    Seen(
        "autogen_team",
        (
            (
                "weather_agent su get_weather span:ok -",
                "weather_agent suat - - -",
                "critic suu - - -",
                "weather_agent suatau get_weather span:ok -",
                "weather_agent suatauat - - -",
                "critic suuau - - -",
            ),
        ),
        failures=(),
        rejected={"no_model_call": 1},
    ),
    Seen(
        "bedrock_botocore",
        (
            (
                "- su get_weather+get_weather ok+ok -",
                "- suatt - - -",
            ),
            (
                "- su get_weather error -",
                "- suat - - -",
            ),
        ),
        failures=("tool_error get_weather",),
    ),
    Seen(
        "cohere_openllmetry",
        (
            (
                "- su get_weather+get_weather ok+ok -",
                "- sutt - - missing_content",
            ),
            (
                "- su get_weather error -",
                "- sut - - missing_content",
            ),
        ),
        failures=("tool_error get_weather",),
    ),
    Seen(
        "crewai_two_agents",
        (
            (
                "weather_agent su get_weather span:ok -",
                "weather_agent suat - - -",
                "writer su - - -",
            ),
        ),
        failures=(),
    ),
    Seen("elastic_openai", LOOP),
    Seen("laminar", of_agent(LOOP)),
    Seen(
        "langgraph_langfuse",
        (
            (
                "weather_agent su get_weather+get_weather span:ok+span:ok -",
                "weather_agent suatt - - -",
            ),
            ("weather_agent su get_weather span:error -",),
            ("weather_agent su - - request_failed",),
        ),
    ),
    Seen(
        "langgraph_langsmith",
        (
            (
                "weather_agent su get_weather+get_weather span:ok+span:ok -",
                "weather_agent suatt - - -",
            ),
            ("weather_agent su get_weather span:error -",),
            ("weather_agent su - - request_failed",),
        ),
    ),
    Seen(
        "langgraph_openllmetry",
        (
            ("weather_agent su get_weather+get_weather span:ok+span:ok -", "weather_agent suatt - - -"),
            ("weather_agent su get_weather span:error -",),
        ),
        failures=("tool_error get_weather",),
    ),
    Seen(
        "langgraph_otel_genai",
        (
            (
                "weather_agent su get_weather+get_weather span:ok+span:ok -",
                "weather_agent suatt - - -",
            ),
            ("weather_agent su get_weather span:error -",),
            (
                "weather_agent su get_weather span:ok -",
                "weather_agent suat - - -",
            ),
            ("weather_agent su - - request_failed",),
        ),
    ),
    Seen("langwatch", of_agent(LOOP)),
    Seen(
        "llama_index_agent_openllmetry",
        (
            (
                "- su get_weather+get_weather ok+ok -",
                "- suatt - - -",
            ),
            (
                "- su get_weather error -",
                "- suat - - -",
            ),
            (
                "- su get_weather ok -",
                "- suat - - -",
            ),
            ("- su - - request_failed",),
        ),
    ),
    Seen(
        "mistral_openinference",
        (
            (
                "- su get_weather+get_weather ok+ok -",
                "- suatt - - -",
            ),
            (
                "- su get_weather error -",
                "- suat - - -",
            ),
        ),
        failures=("tool_error get_weather",),
    ),
    Seen(
        "mistral_openllmetry",
        (
            ("- u - - missing_content",),
            ("- u - - missing_content",),
            ("- u - - missing_content",),
            ("- u - - missing_content",),
        ),
        failures=(),
        rejected={"duplicate_model_call": 4},
    ),
    Seen(
        "monocle_langgraph",
        (
            (
                "weather_agent su - - missing_content",
                "weather_agent suatt - - missing_content",
            ),
            ("weather_agent su - - missing_content",),
        ),
        failures=("tool_error get_weather",),
        rejected={"duplicate_model_call": 3},
    ),
    Seen(
        "monocle_openai",
        (
            (
                "- su get_weather+get_weather ok+ok -",
                "- suatt - - missing_content",
            ),
            (
                "- su get_weather error -",
                "- suat - - -",
            ),
            (
                "- su get_weather ok missing_content",
                "- suat - - -",
            ),
            ("- su - - request_failed",),
        ),
    ),
    Seen(
        "openai_agents_chat_openinference",
        (
            (
                "weather_agent su get_weather+get_weather span:ok+span:ok -",
                "weather_agent suatt - - -",
            ),
            (
                "weather_agent su get_weather span:error -",
                "weather_agent suat - - -",
            ),
            (
                "weather_agent su get_weather span:ok -",
                "weather_agent suat - - -",
            ),
            (
                "triage su transfer_to_weather_agent ok -",
                "weather_agent suat - - -",
            ),
            ("weather_agent su - - request_failed",),
        ),
    ),
    Seen(
        "openai_agents_responses_openinference",
        (
            (
                "weather_agent su get_weather+get_weather span:ok+span:ok -",
                "weather_agent suatt - - -",
            ),
            (
                "triage su transfer_to_weather_agent ok -",
                "weather_agent suat - - -",
            ),
            ("weather_agent - - - request_failed",),
        ),
        failures=("rate_limit -",),
    ),
    Seen(
        "openai_agents_responses_openllmetry",
        (
            (
                "weather_agent su get_weather+get_weather span:ok+span:ok -",
                "weather_agent suatt - - -",
            ),
            (
                "weather_agent su get_weather span:error -",
                "weather_agent suat - - -",
            ),
            (
                "weather_agent su get_weather span:ok -",
                "weather_agent suat - - -",
            ),
            (
                "triage su transfer_to_weather_agent ok -",
                "weather_agent suat - - -",
            ),
            ("weather_agent - - - request_failed",),
        ),
    ),
    Seen("openinference_decorators", of_agent(LOOP, "weather_agent")),
    Seen(
        "openlit_openai",
        (
            (
                "- su get_weather+get_weather ok+ok -",
                "- suatt - - missing_content",
            ),
            (
                "- su get_weather error -",
                "- sut - - missing_content",
            ),
            (
                "- su get_weather ok -",
                "- sut - - missing_content",
            ),
            ("- - - - request_failed",),
        ),
    ),
    Seen(
        "pydantic_ai_openinference",
        (
            (
                "weather_agent su get_weather+get_weather span:ok+span:ok -",
                "weather_agent suau - - -",
            ),
            (
                "boss su ask_weather_agent span:ok -",
                "weather_agent su get_weather span:ok -",
                "weather_agent suau - - -",
                "boss suau - - -",
            ),
            ("weather_agent - - - request_failed",),
        ),
        failures=("rate_limit -",),
    ),
    Seen(
        "responses_openinference",
        (
            (
                "- su get_weather+get_weather ok+ok -",
                "- suatt - - -",
            ),
            (
                "- su get_weather error -",
                "- suat - - -",
            ),
            (
                "- su get_weather ok -",
                "- suat - - -",
            ),
            (
                "- su get_weather ok -",
                "- st - - missing_content",
            ),
            ("- su - - request_failed",),
        ),
    ),
    Seen(
        "responses_openllmetry",
        (
            (
                "- su get_weather+get_weather ok+ok -",
                "- suatt - - -",
            ),
            (
                "- su get_weather error -",
                "- suat - - -",
            ),
            (
                "- su get_weather ok -",
                "- suat - - -",
            ),
            ("- su get_weather - -",),
            ("- st - - missing_content",),
            ("- su - - request_failed",),
        ),
    ),
    Seen(
        "responses_otel_genai",
        (
            (
                "- su get_weather+get_weather ok+ok -",
                "- suatt - - -",
            ),
            (
                "- su get_weather error -",
                "- suat - - -",
            ),
            (
                "- su get_weather ok -",
                "- suat - - -",
            ),
            (
                "- su get_weather ok -",
                "- st - - missing_content",
            ),
            ("- su - - request_failed",),
        ),
    ),
    Seen(
        "strands_sub_agent",
        (
            (
                "weather_agent u get_weather+get_weather span:ok+span:ok -",
                "weather_agent uat - - -",
            ),
            (
                "weather_agent u get_weather span:error -",
                "weather_agent uat - - -",
            ),
            (
                "boss u ask_weather_agent span:ok -",
                "weather_agent u get_weather span:ok -",
                "weather_agent uat - - -",
                "boss uat - - -",
            ),
        ),
        failures=("tool_error get_weather",),
    ),
    Seen(
        "together_openllmetry",
        (
            (
                "- su - - missing_content",
                "- suatt - - missing_content",
            ),
            (
                "- su - - missing_content",
                "- sut - - missing_content",
            ),
        ),
        failures=(),
    ),
    Seen(
        "traceai_openai",
        (
            (
                "- su get_weather+get_weather ok+ok -",
                "- suatt - - -",
            ),
            (
                "- su get_weather error -",
                "- suat - - -",
            ),
            (
                "- su get_weather ok missing_content",
                "- suat - - -",
            ),
            ("- su - - request_failed",),
        ),
    ),
    Seen("traceloop_sdk", of_agent(LOOP, "weather_agent")),
    Seen(
        "vercel_ai_5",
        (
            ("weather_agent su get_weather+get_weather span:ok+span:ok -", "weather_agent suat - - -"),
            ("weather_agent su get_weather span:error -", "weather_agent suat - - -"),
            ("weather_agent su get_weather span:ok -", "weather_agent suat - - -"),
            ("weather_agent su - - request_failed",),
        ),
    ),
    Seen("openai_js_openinference", LOOP[:3], failures=("tool_error get_weather",)),
    Seen("openai_js_traceloop", LOOP[:3], failures=("tool_error get_weather",)),
    Seen(
        "langfuse_js",
        tuple(tuple(f"weather_agent{step[1:]}" for step in steps) for steps in LOOP),
    ),
    Seen(
        "openai_agents_js_openinference",
        (*of_agent(LOOP[:3], "weather_agent"), ("weather_agent - - - request_failed",)),
    ),
    Seen(
        "genkit",
        (
            ("- su get_weather+get_weather span:ok+span:ok -", "- suat - - -"),
            ("- su get_weather span:error -",),
        ),
        failures=("tool_error get_weather",),
    ),
    Seen(
        "anthropic_js_openinference",
        (
            ("- su get_weather+get_weather ok+ok -", "- suat - - -"),
            ("- su get_weather error -", "- suat - - -"),
            ("- su get_weather ok -", "- suat - - -"),
            ("- su get_weather ok -", "- suat - - -"),
            ("- su get_weather ok -", "- suat - - -"),
            ("- su - - request_failed",),
        ),
        failures=("rate_limit -", "tool_error get_weather"),
        rejected={"duplicate_model_call": 11},
    ),
    Seen(
        "anthropic_js_traceloop",
        (
            ("weather_agent su get_weather+get_weather span:ok+span:ok -", "weather_agent suau - - -"),
            ("weather_agent su get_weather error -", "weather_agent suau - - -"),
            ("weather_agent su get_weather span:ok missing_content", "weather_agent suau - - -"),
            ("weather_agent su get_weather span:ok -", "weather_agent suau - - -"),
            ("weather_agent su get_weather span:ok -", "weather_agent suau - - -"),
            ("weather_agent su - - request_failed",),
        ),
        failures=("rate_limit -", "tool_error get_weather"),
    ),
    Seen(
        "bedrock_js_openinference",
        (
            ("- su get_weather+get_weather ok+ok -", "- suat - - -"),
            ("- su get_weather error -", "- suat - - -"),
            ("- su - - request_failed",),
            ("- su get_weather+get_weather ok+ok -", "- suat - - -"),
            ("- su get_weather error -", "- suat - - -"),
            ("- su - - request_failed",),
        ),
        failures=("rate_limit -", "rate_limit -", "tool_error get_weather", "tool_error get_weather"),
    ),
    Seen(
        "langchain_js_openinference",
        (
            ("weather_agent su get_weather span:error -", "weather_agent suat - - -"),
            ("weather_agent su get_weather span:ok -", "weather_agent suat - - -"),
            ("weather_agent su - - request_failed",),
        ),
        failures=("rate_limit -", "tool_error get_weather"),
    ),
    Seen(
        "langchain_js_traceloop",
        (
            ("- su - - missing_content", "- suatt - - missing_content"),
            ("- su - - missing_content", "- suat - - missing_content"),
        ),
        failures=(),
        rejected={"no_model_call": 19},
    ),
    Seen(
        "langfuse_js_agents",
        (
            ("weather_agent su get_weather+get_weather span:ok+span:ok -", "weather_agent suatt - - -"),
            ("weather_agent su get_weather span:error -", "weather_agent suat - - -"),
            ("weather_agent su get_weather span:ok -", "weather_agent suat - - -"),
            ("weather_agent su get_weather span:ok -", "weather_agent suat - - -"),
            ("weather_agent su get_weather span:ok -", "weather_agent suat - - -"),
            ("weather_agent su - - request_failed",),
        ),
        failures=("rate_limit -", "tool_error get_weather"),
    ),
    Seen(
        "langtrace_js",
        (
            ("- su - - missing_content", "- suatt - - -"),
            ("- su get_weather error -", "- suat - - -"),
            ("- su get_weather ok missing_content", "- suat - - -"),
            ("- su get_weather ok -", "- suat - - -"),
            ("- su get_weather ok -", "- suat - - -"),
            ("- - - - request_failed",),
        ),
        failures=("rate_limit -", "tool_error get_weather"),
    ),
    Seen(
        "llamaindex_js_traceloop",
        (
            ("- su - - missing_content", "- suauu - - missing_content"),
            ("- su - - missing_content", "- suau - - missing_content"),
            ("- su - - missing_content", "- suau - - missing_content"),
            ("- su - - missing_content",),
            ("- su - - -",),
        ),
        failures=(),
    ),
    Seen(
        "mastra",
        (
            ("weather_agent su get_weather+get_weather span:ok+span:ok -", "weather_agent sua - - missing_content"),
            ("weather_agent su get_weather span:error -", "weather_agent sua - - missing_content"),
            ("weather_agent su get_weather span:ok -", "weather_agent sua - - missing_content"),
            ("weather_agent su - - request_failed",),
        ),
        failures=("rate_limit -", "tool_error get_weather"),
        rejected={"duplicate_model_call": 7},
    ),
    Seen(
        "openai_js_otel",
        (
            ("- su get_weather+get_weather ok+ok -", "- suatt - - -"),
            ("- su get_weather error -", "- suat - - -"),
            ("- su get_weather ok -", "- suat - - -"),
            ("- su get_weather ok -", "- suat - - -"),
            ("- su get_weather ok -", "- suat - - -"),
            ("- su - - request_failed",),
        ),
        failures=("rate_limit -", "tool_error get_weather"),
    ),
    Seen(
        "vercel_ai_7",
        (
            ("weather_agent su get_weather+get_weather span:ok+span:ok -", "weather_agent suat - - -"),
            ("weather_agent su get_weather span:error -", "weather_agent suat - - -"),
            ("weather_agent su get_weather span:ok -", "weather_agent suat - - -"),
            ("weather_agent su get_weather span:ok -", "weather_agent suat - - -"),
            ("weather_agent su get_weather span:ok -", "weather_agent suat - - -"),
            ("weather_agent su - - request_failed",),
        ),
        failures=("rate_limit -", "tool_error get_weather"),
    ),
    Seen(
        "vercel_ai_openinference",
        (
            ("weather_agent su get_weather+get_weather span:ok+span:ok -", "weather_agent suat - - -"),
            ("weather_agent su get_weather span:error -", "weather_agent suat - - -"),
            ("weather_agent su get_weather span:ok -", "weather_agent suat - - -"),
            ("weather_agent su - - request_failed",),
        ),
        failures=("rate_limit -", "tool_error get_weather"),
    ),
    Seen(
        "mastra_1_3",
        (
            ("weather_agent su get_weather+get_weather span:ok+span:ok -", "weather_agent sua - - missing_content"),
            ("weather_agent su get_weather span:error -", "weather_agent sua - - missing_content"),
            ("weather_agent su get_weather span:ok -", "weather_agent sua - - missing_content"),
            ("weather_agent su - - missing_content",),
        ),
        failures=("rate_limit -", "tool_error get_weather"),
        rejected={"duplicate_model_call": 7},
    ),
]


def shape(converted: Converted) -> tuple[tuple[str, ...], ...]:
    """The episodes by their start, a line a step."""
    found: list[tuple[str, ...]] = []
    for episode in converted.episodes.sort("started_at")["episode_id"].to_list():
        rows = converted.transitions.filter(pl.col("episode_id") == episode).sort("step").iter_rows(named=True)
        found.append(tuple(_line(row) for row in rows))
    return tuple(found)


def _line(row: dict[str, Any]) -> str:
    roles = "".join(message["role"][0] for message in json.loads(row["state"]))
    asked = [part["name"] for part in json.loads(row["action"])["parts"] if part.get("type") == "tool_call"]
    results = [("span:" if one["span_id"] else "") + one["status"] for one in json.loads(row["tool_results"])]
    told = (row["agent_name"], roles, "+".join(asked), "+".join(results), row["untrainable_reason"])
    return " ".join(one or "-" for one in told)


@pytest.mark.parametrize("seen", SEEN, ids=lambda seen: seen.name)
def test_the_structure_is_the_programs(seen: Seen) -> None:
    recorded, converted = convert_recording(seen.name)
    assert shape(converted) == seen.episodes
    failures = converted.failures.sort("occurred_at", "failure_id").select("error_class", "tool_name").iter_rows()
    assert {f"{kind} {tool or '-'}" for kind, tool in failures} == set(seen.failures)
    reasons = dict(converted.rejected["reason"].value_counts().iter_rows())
    assert {reason: count for reason, count in reasons.items() if reason != "context"} == seen.rejected
    assert converted.transitions.height + sum(reasons.values()) == len(recorded["spans"])


@pytest.mark.parametrize("seen", SEEN, ids=lambda seen: seen.name)
def test_what_was_asked_and_answered_is_what_the_program_did(seen: Seen) -> None:
    _, converted = convert_recording(seen.name)
    for row in converted.transitions.iter_rows(named=True):
        calls = [part for part in json.loads(row["action"])["parts"] if part.get("type") == "tool_call"]
        if row["untrainable_reason"] == "missing_content":
            continue
        cities = [call["arguments"]["city"] for call in calls if call["name"] == "get_weather"]
        assert cities in ([], ["Paris", "Rome"], ["Nowhere"], ["Oslo"], ["Lima"])
        for result, city in zip(json.loads(row["tool_results"]), cities, strict=False):
            expected = f"57F in {city}" if city != "Nowhere" else ""
            assert expected in result["content"]
            assert result["content"]
