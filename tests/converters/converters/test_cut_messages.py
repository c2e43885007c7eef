"""A list of messages that was cut at an attribute limit is malformed, and never anybody's words."""

import json
from typing import Any

import pytest

from spanloop.messages.unfinished import is_unfinished, is_unfinished_content

from .converters_world import World, trace_id

LONG = "Answer in one sentence, and name the source. " * 20
REQUEST = [{"role": "system", "content": LONG}, {"role": "user", "content": "Where is the office?"}]
ANSWER = {"role": "assistant", "content": "In Graz."}
LIMIT = 512


def cut(value: object) -> str:
    return json.dumps(value)[:LIMIT]


CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "langwatch": (
        "langwatch.input",
        {
            "langwatch.span.type": "llm",
            "langwatch.input": cut({"type": "chat_messages", "value": REQUEST}),
            "langwatch.output": json.dumps({"type": "chat_messages", "value": [ANSWER]}),
        },
    ),
    "openinference": (
        "input.value",
        {
            "openinference.span.kind": "LLM",
            "input.value": cut({"messages": REQUEST, "model": "tiny"}),
            "output.value": json.dumps({"choices": [{"message": ANSWER, "finish_reason": "stop"}]}),
        },
    ),
    "litellm": (
        "llm.openai.messages",
        {
            "llm.openai.messages": cut(REQUEST),
            "llm.openai.choices": json.dumps([{"message": ANSWER, "finish_reason": "stop"}]),
        },
    ),
    "other_names": (
        "gen_ai.request.messages",
        {
            "gen_ai.request.model": "tiny",
            "gen_ai.request.messages": cut(REQUEST),
            "gen_ai.response.text": "In Graz.",
        },
    ),
    "repr": (
        "gen_ai.prompt",
        {"gen_ai.request.model": "tiny", "gen_ai.prompt": str(REQUEST)[:LIMIT], "gen_ai.completion": "In Graz."},
    ),
    "encoded_twice": (
        "gen_ai.input.messages",
        {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": "tiny",
            "gen_ai.input.messages": cut(json.dumps(REQUEST)),
            "gen_ai.output.messages": json.dumps([ANSWER]),
        },
    ),
}


@pytest.mark.parametrize("dialect", CALLS)
def test_a_cut_request_is_malformed_and_names_its_attribute(dialect: str) -> None:
    attribute, attributes = CALLS[dialect]
    world = World()
    world.span("raw_gen_ai_request" if dialect == "litellm" else "chat", attributes, trace=trace_id("t"))
    (step,) = world.convert().transitions.to_dicts()
    assert (step["is_trainable"], step["untrainable_reason"]) == (False, "malformed_messages")
    assert attribute in step["untrainable_detail"]
    assert "Answer in one sentence" not in step["state"]


def test_cut_system_instructions_are_malformed() -> None:
    world = World()
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "tiny",
        "gen_ai.system_instructions": cut([{"type": "text", "content": LONG}]),
        "gen_ai.input.messages": json.dumps(REQUEST[1:]),
        "gen_ai.output.messages": json.dumps([ANSWER]),
    }
    world.span("chat", attributes, trace=trace_id("t"))
    (step,) = world.convert().transitions.to_dicts()
    assert step["untrainable_reason"] == "malformed_messages"
    assert "gen_ai.system_instructions" in step["untrainable_detail"]


def test_cut_content_of_an_event_is_malformed() -> None:
    world = World()
    asked = {"key": "content", "value": cut([{"text": LONG}])}
    answered = {"key": "message", "value": json.dumps([{"text": "In Graz."}])}
    attributes = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "tiny"}
    world.span("chat", attributes, trace=trace_id("t"))
    world.spans[-1] |= {
        "Events.Name": ["gen_ai.user.message", "gen_ai.choice"],
        "Events.Attributes": [[asked], [answered, {"key": "finish_reason", "value": "end_turn"}]],
    }
    (step,) = world.convert().transitions.to_dicts()
    assert step["untrainable_reason"] == "malformed_messages"


@pytest.mark.parametrize("prefix", ["gen_ai.prompt", "llm.prompts"])
def test_cut_content_of_an_indexed_message_names_its_attribute(prefix: str) -> None:
    world = World()
    attributes = {
        "gen_ai.request.model": "tiny",
        "llm.request.type": "chat",
        f"{prefix}.0.role": "system",
        f"{prefix}.0.content": "Be brief.",
        f"{prefix}.1.role": "user",
        f"{prefix}.1.content": cut([{"type": "text", "text": LONG}]),
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.content": "Two.",
    }
    world.span("chat", attributes, trace=trace_id("t"))
    (step,) = world.convert().transitions.to_dicts()
    assert step["untrainable_reason"] == "malformed_messages"
    assert f"attribute {prefix}.1.content:" in step["untrainable_detail"]


@pytest.mark.parametrize("words", ['{"a": 1} is what I got', "[INST] Hi", '[{"id": 1}, {"id": 2', '{"name": "Ada'])
def test_words_that_resemble_json_stay_words_in_a_whole_list(words: str) -> None:
    world = World()
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "tiny",
        "gen_ai.input.messages": json.dumps([{"role": "user", "parts": [{"type": "text", "content": words}]}]),
        "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": words}]}]),
        "gen_ai.response.finish_reasons": '["length"]',
    }
    world.span("chat", attributes, trace=trace_id("t"))
    (step,) = world.convert().transitions.to_dicts()
    assert json.loads(step["action"])["parts"] == [{"type": "text", "content": words}]


@pytest.mark.parametrize("role", ["user", "assistant"])
def test_indexed_content_with_unfinished_data_stays_words(role: str) -> None:
    words = '[{"id": 1, "name": "Ada"}, {"id": 2, "na'
    world = World()
    attributes = {
        "gen_ai.request.model": "tiny",
        "llm.request.type": "chat",
        "gen_ai.prompt.0.role": "user",
        "gen_ai.prompt.0.content": words if role == "user" else "List them.",
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.content": words if role == "assistant" else "Two.",
        "gen_ai.completion.0.finish_reason": "length",
    }
    world.span("chat", attributes, trace=trace_id("t"))
    (step,) = world.convert().transitions.to_dicts()
    assert json.dumps(words) in step["state"] + step["action"]


def test_every_prefix_of_a_list_is_unfinished_and_the_list_is_not() -> None:
    text = json.dumps([{"role": "user", "content": [{"type": "text", "text": 'a "quoted" [word] \\ {'}]}])
    assert all(is_unfinished(text[:end]) for end in range(4, len(text)))
    assert not is_unfinished(text)
    assert not is_unfinished(text + " and more")
    assert all(is_unfinished(json.dumps(text)[:end]) for end in range(8, len(json.dumps(text))))


def test_content_is_unfinished_only_where_it_begins_as_parts() -> None:
    assert is_unfinished_content('[{"type": "text", "text": "Hi')
    assert is_unfinished_content('[{"toolUse": {"name": ')
    assert not is_unfinished_content('[{"type": "Person", "name": "A')
    assert not is_unfinished_content('[{"type": "text", "text": "Hi"}]')
