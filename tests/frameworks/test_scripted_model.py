"""The scripted model of the framework matrix, asked by real HTTP requests and the OpenAI SDK."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from framework_matrix.scripted_model import bedrock
from framework_matrix.scripted_model.script import COMMAND, SCHEMA_ANSWER, Conversation, decide
from framework_matrix.scripted_model.server import scripted_model
from openai import OpenAI

QUESTION = "Report the weather of Oslo and Paris for ticket-report-1."


@pytest.fixture(scope="module")
def model() -> Iterator[str]:
    with scripted_model() as url:
        yield url


def texts_of(turns: list[Conversation]) -> list[list[str]]:
    return [[f"{call.name}({call.arguments['city']})" for call in decide(turn).calls] for turn in turns]


def test_a_task_is_a_failing_call_then_one_that_works_then_two_at_once_then_an_answer() -> None:
    turns = [Conversation(texts=[QUESTION], results=results) for results in (0, 1, 2, 4)]
    assert texts_of(turns) == [
        ["get_weather(Atlantis)"],
        ["get_weather(Oslo)"],
        ["get_weather(Paris)", "get_population(Paris)"],
        [],
    ]
    assert "ticket-report-1" in decide(turns[-1]).text


def test_a_delegated_task_goes_to_the_second_agent_and_comes_back() -> None:
    offered = {"ask_researcher": {"required": ["request"]}}
    first = decide(Conversation(texts=["for ticket-delegate-1"], tools=offered)).calls[0]
    assert (first.name, "ticket-delegate-1" in first.arguments["request"]) == ("ask_researcher", True)
    answered = Conversation(texts=["for ticket-delegate-1"], tools=offered, called=["ask_researcher"], results=1)
    assert not decide(answered).calls


def test_an_answer_has_the_form_of_a_schema_that_reached_the_model() -> None:
    texts = ["for ticket-schema-1"]
    assert json.loads(decide(Conversation(texts=texts, has_schema=True)).text) == SCHEMA_ANSWER
    tool: dict[str, Any] = {"report": {"properties": {field: {} for field in SCHEMA_ANSWER}}}
    assert decide(Conversation(texts=texts, tools=tool)).calls[0].arguments == SCHEMA_ANSWER
    assert not decide(Conversation(texts=texts)).calls


def test_a_coding_agent_runs_a_command_and_answers() -> None:
    offered: dict[str, Any] = {"exec_command": {"properties": {"cmd": {}}}}
    first = decide(Conversation(texts=["for ticket-shell-1"], tools=offered))
    assert (first.calls[0].name, first.calls[0].arguments) == ("exec_command", {"cmd": COMMAND})
    assert "ticket-shell-1" in decide(Conversation(texts=["for ticket-shell-1"], tools=offered, results=1)).text


def test_a_crash_is_a_refused_request_after_the_first_tool_call() -> None:
    assert decide(Conversation(texts=["ticket-crash-1"])).calls
    assert decide(Conversation(texts=["ticket-crash-1"], results=1)).status == 400


def test_streamed_and_complete_chat_completions_say_the_same(model: str) -> None:
    client = OpenAI(base_url=f"{model}/v1", api_key="none")
    messages: Any = [{"role": "user", "content": QUESTION}]
    complete = client.chat.completions.create(model="m", messages=messages).choices[0].message
    with client.chat.completions.stream(model="m", messages=messages) as stream:
        streamed = stream.get_final_completion().choices[0].message
    assert complete.tool_calls
    assert streamed.tool_calls
    assert [call.id for call in complete.tool_calls] == [call.id for call in streamed.tool_calls]
    function: Any = streamed.tool_calls[0].function
    assert json.loads(function.arguments) == {"city": "Atlantis"}


def test_streamed_and_complete_responses_say_the_same(model: str) -> None:
    client = OpenAI(base_url=f"{model}/v1", api_key="none")
    complete = client.responses.create(model="m", input=QUESTION)
    with client.responses.stream(model="m", input=QUESTION) as stream:
        streamed = stream.get_final_response()
    outputs: list[list[Any]] = [list(complete.output), list(streamed.output)]
    assert [item.id for item in outputs[0]] == [item.id for item in outputs[1]]


@pytest.mark.parametrize(
    ("path", "body", "call"),
    [
        ("/v1/messages", {"messages": [{"role": "user", "content": QUESTION}]}, "tool_use"),
        ("/v1beta/models/m:generateContent", {"contents": [{"parts": [{"text": QUESTION}]}]}, "functionCall"),
        ("/v2/chat", {"messages": [{"role": "user", "content": QUESTION}]}, "TOOL_CALL"),
        ("/model/m/converse", {"messages": [{"role": "user", "content": [{"text": QUESTION}]}]}, "toolUse"),
    ],
)
def test_every_api_asks_for_the_same_tool(model: str, path: str, body: dict[str, Any], call: str) -> None:
    response = httpx.post(f"{model}{path}", json=body)
    assert response.status_code == 200
    assert call in response.text
    assert "Atlantis" in response.text


def test_an_event_stream_of_bedrock_names_its_lengths() -> None:
    frame = bedrock.event_stream([("messageStart", {"role": "assistant"})])
    assert int.from_bytes(frame[:4]) == len(frame)
    header_size = int.from_bytes(frame[4:8])
    assert json.loads(frame[12 + header_size : -4]) == {"role": "assistant"}
