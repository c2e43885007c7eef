"""The program of ``test_structures`` through instrumentors that were recorded later, with what is peculiar to each.

Each run asks for the weather, as there; in some recordings two runs that ask the same ran at the same time.
"""

import json

import pytest

from spanloop.converters.reading.python_reprs import value_of_repr

from .converters_world import OPENING
from .structures import LOOP, Seen, insist_on_structure, of_agent
from .test_dialects import converted_spans, steps_of
from .test_recordings import convert_recording

PARIS, NOWHERE, BOTH, OSLO, REFUSED = LOOP[2], LOOP[1], LOOP[0], LOOP[2], LOOP[3]
FAILURES = ("tool_error get_weather", "invalid_request -")


def without_history(episodes: tuple[tuple[str, ...], ...]) -> tuple[tuple[str, ...], ...]:
    """The same where an instrumentor loses what a model asked for out of what it was sent later."""
    return tuple(
        tuple(
            step.replace("- suat - - -", "- sut - - missing_content").replace(
                "- suatt - - -", "- sutt - - missing_content"
            )
            for step in steps
        )
        for steps in episodes
    )


SEEN = [
    Seen(
        "langtrace_openai",
        (
            *without_history((PARIS, NOWHERE, BOTH)),
            ("- su - - missing_content",),
            ("- sut - - missing_content",),
            REFUSED,
            *without_history((PARIS, PARIS)),
        ),
        failures=FAILURES,
    ),
    Seen(
        "openai_agents_v2_chat",
        of_agent((PARIS, NOWHERE, BOTH, OSLO, PARIS, PARIS), "weather_agent"),
        failures=("tool_error get_weather",),
    ),
    Seen(
        "llama_index_native",
        (*of_agent((NOWHERE,)), ("- su get_weather span:ok missing_content", "- suat - - missing_content"), REFUSED),
        failures=FAILURES,
    ),
    Seen("langchain_responses_openllmetry", of_agent((BOTH,), "weather_agent"), failures=()),
    Seen("langchain_openinference_0_1_29", of_agent((BOTH,), "weather_agent"), failures=()),
    Seen(
        "langchain_anthropic_stream",
        of_agent((OSLO,), "weather_agent"),
        failures=(),
        rejected={"duplicate_model_call": 2},
    ),
    Seen("google_adk_openinference", (("weather_agent suatt - - -",),), failures=()),
    Seen(
        "openai_agents_v2_responses",
        (
            ("weather_agent u get_weather span:error -", "weather_agent u - - missing_content"),
            ("weather_agent u get_weather+get_weather span:ok+span:ok -", "weather_agent u - - missing_content"),
            ("weather_agent u get_weather span:ok -", "weather_agent u - - missing_content"),
        ),
        failures=("tool_error get_weather",),
    ),
    Seen(
        "beeai_openinference",
        (
            ("weather_agent su get_weather span:error -", "weather_agent suat final_answer span:ok -"),
            ("weather_agent su - - request_failed",),
        ),
        failures=("tool_error get_weather", "model_call_error -"),
    ),
    Seen(
        "google_adk_1_18",
        (
            ("weather_agent su get_weather+get_weather span:ok+span:ok -", "weather_agent suau - - -"),
            ("weather_agent - - - request_failed",),
        ),
        failures=("invalid_request -",),
    ),
    Seen(
        "google_adk_1_18_openinference",
        (("weather_agent su get_weather span:error -", "weather_agent suatu - - -"),),
        failures=("tool_error get_weather",),
    ),
    Seen(
        "mlflow_langchain",
        (("weather_agent su get_weather span:error -",), *of_agent((BOTH,), "weather_agent")),
        failures=("tool_error get_weather",),
    ),
    Seen(
        "weave_openai_agents",
        (
            ("weather_agent su - - missing_content", "weather_agent suat - - missing_content"),
            ("weather_agent su - - missing_content", "weather_agent suat - - missing_content"),
        ),
        failures=("tool_error get_weather",),
    ),
    Seen("agno_openllmetry", of_agent((NOWHERE, BOTH, REFUSED), "weather_agent"), failures=FAILURES),
    Seen("logfire_openai_stream", (OSLO, REFUSED), failures=("invalid_request -",), rejected={"no_model_call": 2}),
    Seen(
        "logfire_openai_agents_responses",
        of_agent((NOWHERE, BOTH), "weather_agent"),
        failures=("tool_error get_weather",),
    ),
    Seen(
        "judgeval",
        (
            *of_agent((NOWHERE,), "weather_agent"),
            ("weather_agent su get_weather span:ok missing_content", "weather_agent suat - - -"),
            *of_agent((REFUSED,), "weather_agent"),
        ),
        failures=FAILURES,
    ),
    Seen("netra", (BOTH, OSLO), failures=()),
    Seen("openllmetry_under_openinference", (NOWHERE, OSLO), failures=("tool_error get_weather",)),
    Seen(
        "pipecat_openinference",
        (("- su get_weather span:error missing_content", "- suat - - -"),),
        failures=("tool_error get_weather",),
    ),
    Seen(
        "pipecat",
        (
            ("- su get_weather ok missing_content", "- suat - - -"),
            ("- su get_weather error missing_content", "- suat - - -"),
            ("- su - - missing_content", "- suatat - - -"),
            REFUSED,
        ),
        failures=FAILURES,
    ),
]


@pytest.mark.parametrize("seen", SEEN, ids=lambda seen: seen.name)
def test_the_structure_is_the_programs(seen: Seen) -> None:
    insist_on_structure(seen)


@pytest.mark.parametrize("seen", SEEN, ids=lambda seen: seen.name)
def test_calls_and_words_are_what_the_model_said(seen: Seen) -> None:
    _, converted = convert_recording(seen.name)
    for number in range(converted.episodes.height):
        steps = steps_of(converted, number)
        users = (message for message in steps[0]["state"] if message["role"] == "user")
        question = next((message["parts"][0]["content"] for message in users), "")
        cities = [city for city in ("Paris", "Rome", "Nowhere", "Oslo") if city in question]
        asked = [part for step in steps for part in step["action"]["parts"] if part["type"] == "tool_call"]
        weather = [call["arguments"] for call in asked if call["name"] == "get_weather"]
        assert weather in ([{"city": city} for city in cities], [])
        results = [result for step in steps for result in step["tool_results"]]
        assert [(one["name"], one["tool_call_id"]) for one in results] == [(c["name"], c["id"]) for c in asked]
        said = [part["content"] for part in steps[-1]["action"]["parts"] if part["type"] == "text"]
        rainy = f"It is rainy in {' and '.join(cities)}."
        assert "".join(said) in ("I could not find out." if "Nowhere" in cities else rainy, "")
        assert {step["model"].removeprefix("openai/")[:6] for step in steps} <= {"gpt-4o", "claude", "unknow", ""}


def test_a_stream_whose_tool_call_became_words_is_nothing_that_the_model_said() -> None:
    _, converted = convert_recording("langtrace_openai")
    (step,) = steps_of(converted, 3)
    assert (step["action"]["parts"], step["untrainable_reason"]) == ([], "missing_content")
    assert [tool["name"] for tool in step["tools"]] == ["get_weather"]


def test_what_only_the_sdk_knows_of_a_stream_is_taken_over() -> None:
    # LangChain's stream has no response id and no input tokens; the SDK of Anthropic traces itself, without a word.
    _, converted = convert_recording("langchain_anthropic_stream")
    steps = steps_of(converted, 0)
    assert [(step["input_tokens"], step["output_tokens"]) for step in steps] == [(21, 7), (21, 7)]
    assert [step["response_id"].startswith("msg_") for step in steps] == [True, True]
    assert [step["finish_reason"] for step in steps] == ["tool_call", "stop"]


def test_what_a_tracer_keeps_beside_the_messages_counts() -> None:
    # MLflow has LangChain's tools, settings and agent in attributes of their own.
    _, converted = convert_recording("mlflow_langchain")
    (step,) = steps_of(converted, 0)
    assert (step["agent_name"], step["sampling"]) == ("weather_agent", {"temperature": "0.2"})
    assert [tool["name"] for tool in step["tools"]] == ["get_weather"]


def test_a_response_tells_what_stands_beside_the_messages() -> None:
    _, converted = convert_recording("logfire_openai_agents_responses")
    first, second = steps_of(converted, 1)
    assert [step["response_id"].startswith("resp_") for step in (first, second)] == [True, True]
    assert [step["finish_reason"] for step in (first, second)] == ["tool_call", "stop"]
    assert (first["sampling"], [tool["name"] for tool in first["tools"]]) == ({"temperature": "0.2"}, ["get_weather"])


def test_calls_that_stand_in_messages_of_their_own_are_one_answer_with_the_reason_behind_it() -> None:
    _, converted = convert_recording("netra")
    first, second = steps_of(converted, 0)
    assert [part["id"] for part in first["action"]["parts"]] == [one["tool_call_id"] for one in first["tool_results"]]
    assert [step["finish_reason"] for step in (first, second)] == ["tool_call", "stop"]
    assert "_split" not in str((first, second))


def test_the_role_developer_is_the_systems() -> None:
    _, converted = convert_recording("agno_openllmetry")
    assert {step["state"][0]["role"] for number in range(3) for step in steps_of(converted, number)} == {"system"}


def test_the_answer_of_the_second_call_that_wrote_to_one_span_counts() -> None:
    _, converted = convert_recording("google_adk_openinference")
    (step,) = steps_of(converted, 0)
    assert (step["finish_reason"], [part["type"] for part in step["action"]["parts"]]) == ("stop", ["text"])


def test_an_answer_that_was_interrupted_is_no_answer_of_the_policy() -> None:
    # AgentScope 2.0 ends the span of a call that was cancelled with status OK.
    said = [{"role": "assistant", "parts": list[str](), "finish_reason": "interrupted"}]
    converted = converted_spans(
        {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": "gpt-4o",
            "gen_ai.response.finish_reasons": '["interrupted"]',
            "gen_ai.input.messages": json.dumps(OPENING),
            "gen_ai.output.messages": json.dumps(said),
        },
        scope="agentscope",
    )
    assert converted.transitions["untrainable_reason"].to_list() == ["request_failed"]
    assert set(converted.failures["fault_owner"]) != {"policy"}


REPRS = [
    ("Call(name='f', arguments='{\"a\": 1}', id=None)", {"name": "f", "arguments": '{"a": 1}', "id": None}),
    ("{'a': [Item(b=-1.5), (True, 'x')]}", {"a": [{"b": -1.5}, [True, "x"]]}),
    ("Call(1)", None),
    ("Call(**{'a': 1})", None),
    ("{1: 2}", None),
    ("{**{'a': 1}}", None),
    ("Call(a=b)", None),
    ("Call(a=b'x')", None),
    ("Call(a=<E.X: 1>)", None),
    ("Call(a=__import__('os'))", None),
    ("[" * 5_000, None),
    ("just words", None),
    ("Call()", None),
]


@pytest.mark.parametrize(("text", "value"), REPRS, ids=[str(number) for number in range(len(REPRS))])
def test_reprs_are_read_and_never_run(text: str, value: object) -> None:
    assert value_of_repr(text) == value
