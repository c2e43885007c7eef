"""The program of ``test_structures`` in JavaScript, through its tracers."""

import pytest

from .structures import LOOP, Seen, insist_on_cities, insist_on_structure, of_agent

SEEN = [
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


@pytest.mark.parametrize("seen", SEEN, ids=lambda seen: seen.name)
def test_the_structure_is_the_programs(seen: Seen) -> None:
    insist_on_structure(seen)


@pytest.mark.parametrize("seen", SEEN, ids=lambda seen: seen.name)
def test_what_was_asked_and_answered_is_what_the_program_did(seen: Seen) -> None:
    insist_on_cities(seen)
