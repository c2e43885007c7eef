"""A span that carries its call in two dialects is read in both, and each field comes from one of them."""

import json
from typing import Any

import pytest

from .converters_world import World, trace_id

QUESTION = "What is the weather in Paris?"
ANSWER = "It rains."
CALL = {"id": "c1", "name": "search", "arguments": {"query": "Paris"}}


def otel(*, answer: str = ANSWER, call: dict[str, Any] | None = None) -> dict[str, Any]:
    part = {"type": "tool_call", **call} if call else {"type": "text", "content": answer}
    seen = [{"role": "user", "parts": [{"type": "text", "content": QUESTION}]}]
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "tiny",
        "gen_ai.input.messages": json.dumps(seen),
        "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": [part], "finish_reason": "stop"}]),
    }


def openinference(*, answer: str = ANSWER, call: dict[str, Any] | None = None) -> dict[str, Any]:
    start = "llm.output_messages.0.message"
    called = f"{start}.tool_calls.0.tool_call"
    said = {f"{start}.content": answer}
    if call:
        said = {f"{called}.function.name": call["name"]}
        said[f"{called}.function.arguments"] = json.dumps(call["arguments"])
        said |= {f"{called}.id": call["id"]} if "id" in call else {}
    return {
        "openinference.span.kind": "LLM",
        "llm.model_name": "tiny",
        "llm.input_messages.0.message.role": "user",
        "llm.input_messages.0.message.content": QUESTION,
        f"{start}.role": "assistant",
        **said,
    }


def openllmetry(*, answer: str = ANSWER, call: dict[str, Any] | None = None) -> dict[str, Any]:
    called = "gen_ai.completion.0.tool_calls.0"
    said = {"gen_ai.completion.0.content": answer}
    if call:
        said = {f"{called}.name": call["name"], f"{called}.arguments": json.dumps(call["arguments"])}
        said |= {f"{called}.id": call["id"]} if "id" in call else {}
    return {
        "llm.request.type": "chat",
        "gen_ai.request.model": "tiny",
        "gen_ai.prompt.0.role": "user",
        "gen_ai.prompt.0.content": QUESTION,
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.finish_reason": "stop",
        **said,
    }


PAIRS = [(otel, openinference), (openinference, openllmetry), (openllmetry, otel)]
in_pairs = pytest.mark.parametrize(("one", "other"), [*PAIRS, *((other, one) for one, other in PAIRS)])


def step_of(*attributes: dict[str, Any]) -> dict[str, Any]:
    world = World()
    values = {key: value for each in attributes for key, value in each.items()}
    world.span("chat", values, trace=trace_id("t"))
    (step,) = world.convert().transitions.to_dicts()
    return step


def parts(step: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(step["action"])["parts"]
    return found


@in_pairs
def test_equal_content_in_two_dialects_is_one_call(one: Any, other: Any) -> None:
    step = step_of(one(), other())
    assert step["is_trainable"], step["untrainable_detail"]
    assert parts(step) == [{"type": "text", "content": ANSWER}]
    assert step["state"].count(QUESTION) == 1


@in_pairs
def test_the_calls_with_ids_win(one: Any, other: Any) -> None:
    bare = {key: value for key, value in CALL.items() if key != "id"}
    step = step_of(one(call=bare), other(call=CALL))
    assert [(part["id"], part["name"]) for part in parts(step)] == [("c1", "search")]


@in_pairs
def test_calls_win_against_words(one: Any, other: Any) -> None:
    step = step_of(one(answer=""), other(call=CALL))
    assert [part["name"] for part in parts(step)] == ["search"]


@in_pairs
def test_the_longer_text_wins(one: Any, other: Any) -> None:
    whole = f"{ANSWER} Take an umbrella."
    step = step_of(one(answer=ANSWER), other(answer=whole))
    assert parts(step) == [{"type": "text", "content": whole}]
    assert step["is_trainable"]


@in_pairs
def test_a_conflict_is_reported_and_not_concatenated(one: Any, other: Any) -> None:
    step = step_of(one(answer="It snows."), other(answer=ANSWER))
    assert (step["is_trainable"], step["untrainable_reason"]) == (False, "malformed_messages")
    assert "gen_ai.output.messages: two dialects of the span tell of different content" in step["untrainable_detail"]
    assert len(parts(step)) == 1
    assert parts(step)[0]["content"] in {"It snows.", ANSWER}


@in_pairs
def test_a_message_list_that_was_cut_is_read_in_the_other_dialect(one: Any, other: Any) -> None:
    del one
    cut = {"gen_ai.input.messages": otel()["gen_ai.input.messages"][:-20]}
    if other is otel:
        other = openinference
    step = step_of(otel(), other(), cut)
    assert QUESTION in step["state"]
    assert step["is_trainable"]
