"""The program of ``test_frameworks`` and more of it, through more tracers: two tools at once, streams, refusals.

Each run asks for the weather: in Paris and Rome (two calls in one action), in Nowhere (the tool raises), in Oslo (a
stream), in Lima (an agent that asks another one, or a request that names the response before), and once the model's
server answers 429. What a tracer lets through of it is written down here, by step: agent, roles of the state, tools
asked for, what came back (``span:`` where the tool's own span tells), and why the step may not be trained on.
"""

import pytest

from .structures import LOOP, STREAM_UNREAD, Seen, insist_on_cities, insist_on_structure, of_agent

SEEN = [
    Seen("agenta", of_agent(STREAM_UNREAD)),
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
    Seen("basalt", of_agent(STREAM_UNREAD)),
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
    Seen("honeyhive", of_agent(STREAM_UNREAD), rejected={"no_model_call": 1}),
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
                "- su get_weather+get_weather span:ok+span:ok -",
                "- suatt - - -",
            ),
            (
                "- su get_weather span:error -",
                "- suat - - -",
            ),
            (
                "- su get_weather span:ok -",
                "- suat - - -",
            ),
            ("- su - - request_failed",),
        ),
    ),
    Seen(
        "mirascope",
        (
            ("- su get_weather+get_weather ok+ok -", "- suau - - -"),
            ("- su get_weather error -", "- suau - - -"),
            ("- su get_weather ok -", "- suau - - -"),
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
    Seen(
        "neatlogs",
        (
            (
                "weather_agent su get_weather+get_weather span:ok+span:ok -",
                "weather_agent suatt - - missing_content",
            ),
            ("weather_agent su get_weather span:error -", "weather_agent suat - - missing_content"),
            ("weather_agent su get_weather span:ok -", "weather_agent suat - - missing_content"),
            ("weather_agent su - - request_failed",),
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
    Seen("orq", of_agent(STREAM_UNREAD, "weather_agent")),
    Seen("promptlayer", of_agent(STREAM_UNREAD), rejected={"no_model_call": 1}),
    Seen("promptlayer_openai", of_agent(LOOP), rejected={"duplicate_model_call": 7, "no_model_call": 1}),
    Seen("respan", of_agent(LOOP, "weather_agent")),
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
        "scorecard",
        (
            ("- su get_weather+get_weather ok+ok missing_content", "- suatt - - -"),
            ("- su get_weather error missing_content", "- suat - - -"),
            ("- su get_weather ok missing_content", "- suat - - -"),
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
    Seen("trulens", of_agent(STREAM_UNREAD, "weather_agent")),
]


@pytest.mark.parametrize("seen", SEEN, ids=lambda seen: seen.name)
def test_the_structure_is_the_programs(seen: Seen) -> None:
    insist_on_structure(seen)


@pytest.mark.parametrize("seen", SEEN, ids=lambda seen: seen.name)
def test_what_was_asked_and_answered_is_what_the_program_did(seen: Seen) -> None:
    insist_on_cities(seen)
