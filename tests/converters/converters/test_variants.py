"""What instrumentors spell otherwise than any recording does: each variant is the usual form, or no step at all."""

import json
from typing import Any

import pytest

from spanloop.converters import Converted

from .converters_world import OPENING, World, answers, asks, text, trace_id

Json = dict[str, Any]
QUESTION = [{"role": "user", "parts": [{"type": "text", "content": "q"}]}]
ANSWER = [{"role": "assistant", "parts": [{"type": "text", "content": "a"}], "finish_reason": "stop"}]
CHAT = {"role": "user", "content": "q"}
CALL: Json = {
    "gen_ai.operation.name": "chat",
    "gen_ai.request.model": "m",
    "gen_ai.input.messages": json.dumps(QUESTION),
    "gen_ai.output.messages": json.dumps(ANSWER),
}


def converted(attributes: Json, name: str = "chat m") -> Converted:
    world = World()
    world.span(name, attributes, trace=trace_id("t"))
    return world.convert()


def spelled(seen: str, said: str) -> Json:
    return {**CALL, "gen_ai.input.messages": seen, "gen_ai.output.messages": said}


VARIANTS: dict[str, Json] = {
    "JSON within JSON": spelled(json.dumps(json.dumps(QUESTION)), json.dumps(json.dumps(ANSWER))),
    "Python's repr": spelled(repr(QUESTION), repr(ANSWER)),
    "one message": spelled(json.dumps(QUESTION[0]), json.dumps(ANSWER[0])),
    "texts of messages": spelled(json.dumps([json.dumps(QUESTION[0])]), json.dumps([json.dumps(ANSWER[0])])),
    "Sentry": {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "gen_ai.request.messages": json.dumps([CHAT]),
        "gen_ai.response.text": json.dumps(["a"]),
    },
    "Cloudflare": {
        "gen_ai.request.model": "m",
        "gen_ai.prompt_json": json.dumps({"messages": [CHAT]}),
        "gen_ai.completion_json": json.dumps({"choices": [{"message": {"role": "assistant", "content": "a"}}]}),
    },
    "Langtrace": {
        "langtrace.service.type": "llm",
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "llm.prompts": json.dumps([CHAT]),
        "llm.responses": json.dumps([{"role": "assistant", "content": "a"}]),
    },
    "Pipecat": {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "input": json.dumps([CHAT]),
        "output": "a",
    },
    "OpenRouter": {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "gen_ai.prompt": json.dumps({"messages": [CHAT]}),
        "gen_ai.completion": json.dumps({"completion": "a"}),
    },
    "Dify": {
        "gen_ai.span.kind": "LLM",
        "gen_ai.request.model": "m",
        "gen_ai.prompt": "q",
        "gen_ai.completion": "a",
    },
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_call_in_another_spelling_is_the_same_call(variant: str) -> None:
    (row,) = converted(VARIANTS[variant]).transitions.iter_rows(named=True)
    assert json.loads(row["state"]) == QUESTION
    assert json.loads(row["action"])["parts"] == ANSWER[0]["parts"]
    assert (row["model"], row["untrainable_reason"]) == ("m", "")


def test_tool_calls_in_an_attribute_of_their_own_belong_to_the_answer() -> None:
    call = {"id": "c", "type": "function", "name": "f", "arguments": '{"a": 1}'}
    attributes = {**VARIANTS["Sentry"], "gen_ai.response.tool_calls": json.dumps([call])}
    attributes["gen_ai.request.available_tools"] = json.dumps([{"type": "function", "name": "f"}])
    (row,) = converted(attributes).transitions.iter_rows(named=True)
    said, asked = json.loads(row["action"])["parts"]
    assert said == {"type": "text", "content": "a"}
    assert asked == {"type": "tool_call", "id": "c", "name": "f", "arguments": {"a": 1}}
    assert json.loads(row["tools"]) == [{"name": "f"}]


def test_calls_of_functions_from_before_there_were_tools() -> None:
    call = {"name": "f", "arguments": '{"a": 1}'}
    seen = [
        CHAT,
        {"role": "assistant", "content": None, "function_call": call},
        {"role": "function", "name": "f", "content": "r"},
    ]
    said = [{"role": "assistant", "function_call": call}]
    (row,) = converted(spelled(json.dumps(seen), json.dumps(said))).transitions.iter_rows(named=True)
    assert [message["role"] for message in json.loads(row["state"])] == ["user", "assistant", "tool"]
    (part,) = json.loads(row["action"])["parts"]
    assert part == {"type": "tool_call", "id": "", "name": "f", "arguments": {"a": 1}}


@pytest.mark.parametrize(
    "operation", ["embeddings", "rerank", "moderation", "guardrail", "text_to_speech", "count_tokens"]
)
def test_what_is_no_step_of_a_policy_is_none_even_with_messages(operation: str) -> None:
    found = converted({**CALL, "gen_ai.operation.name": operation})
    assert found.transitions.is_empty()
    assert found.rejected["reason"].to_list() == ["no_model_call"]


def test_a_servers_own_span_of_a_request_is_context_of_its_clients() -> None:
    world = World()
    above = world.span("chat m", CALL, trace=trace_id("t"))
    attributes = {"gen_ai.response.model": "m", "gen_ai.usage.prompt_tokens": 5, "gen_ai.latency.e2e": 0.5}
    world.span("llm_request", attributes, trace=trace_id("t"), parent=above, service="vllm", scope="vllm.llm_engine")
    found = world.convert()
    assert (found.transitions.height, found.rejected["reason"].to_list()) == (1, ["context"])


@pytest.mark.parametrize("count", ["21", "21.0", "21."])
def test_tokens_are_counted_in_every_spelling(count: str) -> None:
    names = {"gen_ai.usage.prompt_tokens": count, "gen_ai.usage.completion_tokens": count}
    (row,) = converted({**CALL, **names}).transitions.iter_rows(named=True)
    assert (row["input_tokens"], row["output_tokens"]) == (21, 21)


def test_parts_that_nobody_knows_survive() -> None:
    parts: list[Json] = [
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "x"}},
        {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
        {"type": "redacted_thinking", "data": "zz"},
        {"type": "text", "content": "a"},
    ]
    said = [{"role": "assistant", "content": parts}]
    (row,) = converted(spelled(json.dumps(QUESTION), json.dumps(said))).transitions.iter_rows(named=True)
    assert json.loads(row["action"])["parts"] == parts


def test_an_input_that_answers_what_nobody_asked_in_it_is_not_whole() -> None:
    world = World()
    said = asks("c1")
    world.call(OPENING, said, trace=trace_id("a"), response_id="r1")
    world.call([*OPENING, answers("c1", "57F")], text("assistant", "done"), trace=trace_id("b"), response_id="r2")
    first, second = world.convert().transitions.sort("started_at").iter_rows(named=True)
    assert first["episode_id"] == second["episode_id"]
    assert (first["untrainable_reason"], second["untrainable_reason"]) == ("", "missing_content")
    assert second["span_id"] in second["untrainable_detail"]
    (result,) = json.loads(first["tool_results"])
    assert (result["content"], result["status"]) == ("57F", "ok")


def test_answers_under_other_ids_answer_in_order() -> None:
    world = World()
    said = asks("fc_1")
    said["parts"] += asks("fc_2")["parts"]
    world.call(OPENING, said, trace=trace_id("a"))
    seen = [*OPENING, said, answers("call_1", "one"), answers("call_2", "Error: two")]
    world.call(seen, text("assistant", "done"), trace=trace_id("b"))
    row = world.convert().transitions.sort("started_at").row(0, named=True)
    found = [(result["content"], result["status"]) for result in json.loads(row["tool_results"])]
    assert found == [("one", "ok"), ("Error: two", "error")]


@pytest.mark.parametrize("response_id", ["resp_1", "chatcmpl-1"])
def test_only_the_items_of_a_responses_api_are_one_action(response_id: str) -> None:
    said = [text("assistant", "Let me look."), asks("c1")]
    attributes = {
        **spelled(json.dumps(QUESTION), json.dumps(said)),
        "gen_ai.response.id": response_id,
        "gen_ai.response.finish_reasons": ["stop", "tool_call"],
    }
    (row,) = converted(attributes).transitions.iter_rows(named=True)
    kinds = [part["type"] for part in json.loads(row["action"])["parts"]]
    assert kinds == (["text", "tool_call"] if response_id == "resp_1" else ["text"])
    assert row["finish_reason"] == ("tool_call" if response_id == "resp_1" else "stop")


def test_a_generation_that_langfuse_marks_as_an_error_failed() -> None:
    attributes = {
        "langfuse.observation.type": "generation",
        "langfuse.observation.model.name": "m",
        "langfuse.observation.input": json.dumps([CHAT]),
        "langfuse.observation.level": "ERROR",
        "langfuse.observation.status_message": "429 Rate limit",
    }
    (row,) = converted(attributes).transitions.iter_rows(named=True)
    assert row["untrainable_reason"] == "request_failed"


@pytest.mark.parametrize(
    ("answer", "failures"), [("57F", ["unknown_tool"]), ("Error: unknown tool ask_agent", ["unknown_tool"])]
)
def test_a_tool_that_only_an_answer_shows_was_not_offered(answer: str, failures: list[str]) -> None:
    world = World()
    said = asks("c1", name="ask_agent")
    world.call(OPENING, said, trace=trace_id("t"))
    world.call([*OPENING, said, answers("c1", answer)], text("assistant", "done"), trace=trace_id("t"))
    assert world.convert().failures["error_class"].to_list() == failures
