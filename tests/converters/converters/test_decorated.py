"""Functions that a decorator wrote down: what of their arguments and returns is what a model saw and said."""

import json
from typing import Any

import pytest

from spanloop.converters import Converted

from .converters_world import World, trace_id

Json = dict[str, Any]
ASKED = json.dumps([{"role": "user", "content": "q"}])
COMPLETION = (
    "ChatCompletion(id='c1', choices=[Choice(finish_reason='stop', index=0, "
    "message=ChatCompletionMessage(content='a', role='assistant', tool_calls=None))], model='m', usage=None)"
)
MESSAGE = "ChatCompletionMessage(content='a', role='assistant', tool_calls=None)"


def trulens(returned: str, **given: str) -> Json:
    arguments = {f"ai.observability.call.kwargs.{name}": value for name, value in given.items()}
    return {"ai.observability.span_type": "generation", "ai.observability.call.return": returned, **arguments}


def honeyhive(returned: str, **given: str) -> Json:
    arguments = {f"honeyhive_inputs.{name}": value for name, value in given.items()}
    return {"honeyhive_event_type": "model", "honeyhive_outputs.result": returned, **arguments}


def promptlayer(returned: str, **given: str) -> Json:
    arguments = {name: json.loads(value) for name, value in given.items()}
    told = {"provider": "openai", "function_name": "openai.OpenAI.chat.completions.create"}
    return {**told, "function_input": str({"args": (), "kwargs": arguments}), "function_output": returned}


def agenta(returned: str, **given: str) -> Json:
    arguments = {f"ag.data.inputs.{name}": f"@ag.type=json:{value}" for name, value in given.items()}
    return {"ag.type.node": "CHAT", "ag.data.outputs.__default__": returned, **arguments}


def orq(returned: str, **given: str) -> Json:
    arguments = {name: json.loads(value) for name, value in given.items()}
    return {"type": "llm", "status": "success", "input": str(arguments), "output": returned}


LIBRARIES = [trulens, honeyhive, promptlayer, agenta, orq]


def converted(attributes: Json) -> Converted:
    world = World()
    world.span("generate", attributes, trace=trace_id("t"))
    return world.convert()


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("returned", [COMPLETION, MESSAGE, "a", json.dumps({"role": "assistant", "content": "a"})])
def test_a_response_a_message_and_its_words_are_the_answer(library: Any, returned: str) -> None:
    (row,) = converted(library(returned, messages=ASKED)).transitions.iter_rows(named=True)
    assert json.loads(row["state"]) == [{"role": "user", "parts": [{"type": "text", "content": "q"}]}]
    assert json.loads(row["action"])["parts"] == [{"type": "text", "content": "a"}]
    assert row["is_trainable"]


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(
    "returned",
    [
        "<openai.Stream object at 0x7f0000000000>",
        "<generator object generate at 0x7f0000000000>",
        "Message(id='m1', content=[TextBlock(text='a', kind=<Kind.TEXT: 1>)])",
        "ChatCompletion(id='c1', choices=[",
        json.dumps(["It is ", "rainy."]),
        "",
    ],
)
def test_what_cannot_be_read_again_is_no_answer(library: Any, returned: str) -> None:
    (row,) = converted(library(returned, messages=ASKED)).transitions.iter_rows(named=True)
    assert json.loads(row["action"])["parts"] == []
    assert row["untrainable_reason"] == "missing_content"


def test_a_prompt_out_of_which_the_function_made_messages_is_not_what_the_model_saw() -> None:
    (row,) = converted(trulens("a", prompt="q")).transitions.iter_rows(named=True)
    assert row["untrainable_reason"] == "missing_content"


def test_a_function_without_messages_around_a_client_is_no_call_of_its_own() -> None:
    found = converted(honeyhive("a", prompt="q"))
    assert found.transitions.is_empty()
    assert found.rejected["reason"].to_list() == ["no_model_call"]


@pytest.mark.parametrize("value", ["{", "[1, 2", "{'a': object()}", '{"messages": [1]}', "\x00"])
@pytest.mark.parametrize("library", [trulens, honeyhive, agenta])
def test_arguments_that_are_nothing_are_never_a_crash(library: Any, value: str) -> None:
    found = converted(library(value, messages=value, kw=value))
    assert found.transitions.height + found.rejected.height == 1
