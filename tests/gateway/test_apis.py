"""Responses, Messages, text completions, models and tokens, by real clients where they are installed."""

import json
import subprocess
from collections.abc import Callable, Generator
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import BadRequestError, NotFoundError, OpenAI

from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.keys.api_keys import KeyRing, Scope
from spanloop.foundation.paths import DataDir
from spanloop.gateway.apis.blocks import Block, BlockKind, text_logprobs
from spanloop.gateway.apis.response_store import ResponseStore, erase_responses
from spanloop.gateway.engine.serving_environment import find_serving_environment

from .rendering_engine import RenderingEngine, write_rendering_model
from .support import TIMEOUT_S, RunningGateway, StandIn, data_of, serving, wait_until

TOOL: Any = {"type": "function", "name": "find", "parameters": {"type": "object"}, "strict": False}
CALL = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"city": "Paris"}'}}
WRITTEN = '<think>\nthen\n</think>\n\n<tool_call>{"name":"find","arguments":{"city":"Paris"}}</tool_call>'


@pytest.fixture
def engine(tmp_path: Path) -> RenderingEngine:
    return RenderingEngine(
        write_rendering_model(tmp_path / "models" / "v1"),
        family="qwen3",
        texts=[WRITTEN, *(f"<think>\nand\n</think>\n\nhere {n}" for n in range(99))],
        calls_of=[CALL, *[None] * 99],
    )


@pytest.fixture
def gateway(start_gateway: Callable[..., RunningGateway], engine: RenderingEngine) -> Generator[RunningGateway]:
    with serving(engine.app()) as url:
        running = start_gateway(upstream=url, cors_origins="https://page.example")
        wait_until(lambda: running.health()["engine"] == "serving")
        yield running


@pytest.fixture
def client(gateway: RunningGateway) -> Generator[OpenAI]:
    with OpenAI(base_url=f"{gateway.url}/v1", api_key="none", max_retries=0, timeout=TIMEOUT_S) as client:
        yield client


def post(gateway: RunningGateway, path: str, body: Any, **headers: str) -> httpx.Response:
    return httpx.post(gateway.url + path, json=body, headers=headers, timeout=TIMEOUT_S)


def assert_exact(gateway: RunningGateway) -> None:
    """Each prompt begins with the prompt and the tokens before."""
    captures = gateway.captures()
    assert len(captures) > 1
    for before, after in pairwise(captures):
        sampled = before.prompt_token_ids + before.response_token_ids
        assert after.prompt_token_ids[: len(sampled)] == sampled
        assert after.is_complete


def test_a_tool_round_trip_by_responses(client: OpenAI, gateway: RunningGateway, engine: RenderingEngine) -> None:
    first = client.responses.create(
        model="stand-in", input="find the weather", instructions="be brief", tools=[TOOL], max_output_tokens=9
    )
    assert [item.type for item in first.output] == ["reasoning", "function_call"]
    call: Any = first.output[1]
    assert (call.call_id, call.name, call.arguments) == ("c1", "find", '{"city": "Paris"}')
    sent = engine.requests[-1]
    assert sent["messages"][0] == {"role": "system", "content": "be brief"}
    assert (sent["max_completion_tokens"], sent["tools"][0]["function"]["name"]) == (9, "find")
    history: list[Any] = [{"role": "user", "content": "find the weather"}, *(item.to_dict() for item in first.output)]
    history.append({"type": "function_call_output", "call_id": "c1", "output": "found"})
    second = client.responses.create(model="stand-in", input=history, instructions="be brief", tools=[TOOL])
    assert second.output_text == "here 0"
    assert second.usage is not None
    assert second.usage.input_tokens == len(engine.prompts[-1])
    assert_exact(gateway)
    assert {capture.response_id for capture in gateway.captures()} == {first.id, second.id}


def test_a_response_goes_on_from_a_stored_one(client: OpenAI, gateway: RunningGateway) -> None:
    first = client.responses.create(model="stand-in", input="find the weather", tools=[TOOL])
    output: Any = [{"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "1"}]}]
    second = client.responses.create(model="stand-in", input=output, previous_response_id=first.id, tools=[TOOL])
    third = client.responses.create(
        model="stand-in", input="and then", previous_response_id=second.id, store=False, tools=[TOOL]
    )
    captures = gateway.captures()
    sampled = captures[0].prompt_token_ids + captures[0].response_token_ids
    assert captures[1].prompt_token_ids[: len(sampled)] == sampled
    assert client.responses.retrieve(second.id).output_text == "here 0"
    assert len(client.responses.input_items.list(second.id).data) == 4
    for unknown in (third.id, "resp_none", "../keys"):
        with pytest.raises(NotFoundError):
            client.responses.retrieve(unknown)
    with pytest.raises(NotFoundError) as refused:
        client.responses.create(model="stand-in", input="x", previous_response_id=third.id)
    assert refused.value.code == "previous_response_not_found"
    client.responses.delete(first.id)
    with pytest.raises(NotFoundError):
        client.responses.retrieve(first.id)


def test_erasing_a_response_erases_those_that_continue_it(gateway: RunningGateway) -> None:
    folder = gateway.data_dir.gateway / "responses"

    def respond(previous: str | None = None, headers: dict[str, str] | None = None, **fields: str) -> str:
        body = {"model": "stand-in", "input": "hi", "previous_response_id": previous, **fields}
        identity: str = post(gateway, "/v1/responses", body, **(headers or {})).json()["id"]
        return identity

    def stored() -> set[str]:
        return {path.stem for path in folder.iterdir()}

    kept = respond()
    trace = "a" * 32
    erased: list[dict[str, Any]] = [
        {"user_id": "u-1"},
        {"session_id": "s-1"},
        {"trace_ids": {trace}},
        {"response_ids": {kept}},
    ]
    respond(respond(user="u-1"))
    respond(respond(headers={"x-session-id": "s-1"}))
    respond(respond(headers={"traceparent": f"00-{trace}-{'b' * 16}-01"}))
    assert len(stored()) == 7
    for left, target in zip((5, 3, 1, 0), erased, strict=True):
        assert erase_responses(folder, **target) == (2 if left else 1)
        assert len(stored()) == left
        assert (kept in stored()) == bool(left)
        assert erase_responses(folder, **target) == 0
    assert erase_responses(folder / "missing", user_id="u-1") == 0
    (folder / "resp_damaged.json").write_text("{")
    assert erase_responses(folder, user_id="u-1") == 0


def test_the_events_of_a_response(client: OpenAI) -> None:
    with client.responses.stream(model="stand-in", input="find the weather", tools=[TOOL]) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-1] == "response.completed"
    assert "response.function_call_arguments.delta" in kinds
    assert [item.type for item in final.output] == ["reasoning", "function_call"]
    stored, call = client.responses.retrieve(final.id).output[1].to_dict(), final.output[1].to_dict()
    assert stored == {name: value for name, value in call.items() if name != "parsed_arguments"}
    events = list(client.responses.create(model="stand-in", input="and then", stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == "here 0"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": "web_search"}]}, "tools[0].type: web_search"),
        (
            {"tools": [{"type": "namespace", "name": "n", "tools": [{"type": "custom", "name": "c"}]}]},
            "tools[0].tools[0].type: custom",
        ),
        ({"background": True}, "background"),
        ({"conversation": "c"}, "conversation"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"truncation": "auto"}, "truncation: auto"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type: item_reference"),
        ({"input": [{"role": "critic", "content": "x"}]}, "input[0].role"),
        ({"input": [{"role": "user", "content": [{"type": "input_file"}]}]}, "input[0].content[0].type: input_file"),
        ({"input": 3}, "input"),
        ({"text": {"format": {"type": "grammar"}}}, "text.format.type: grammar"),
    ],
)
def test_what_responses_do_not_have_is_refused_by_name(
    client: OpenAI, gateway: RunningGateway, engine: RenderingEngine, fields: dict[str, Any], param: str
) -> None:
    response = post(gateway, "/v1/responses", {"model": "stand-in", "input": "x", **fields})
    error = response.json()["error"]
    assert (response.status_code, error["param"], error["type"]) == (400, param, "invalid_request_error")
    assert engine.requests == []
    assert isinstance(client, OpenAI)


def test_structured_output_and_tool_choice_reach_the_engine(client: OpenAI, engine: RenderingEngine) -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {}}
    text: Any = {"format": {"type": "json_schema", "name": "n", "schema": schema, "strict": True}}
    choice: Any = {"type": "function", "name": "find"}
    client.responses.create(model="stand-in", input="x", text=text, tools=[TOOL], tool_choice=choice)
    sent = engine.requests[-1]
    assert sent["response_format"]["json_schema"] == {"name": "n", "schema": schema, "strict": True}
    assert sent["tool_choice"] == {"type": "function", "function": {"name": "find"}}


@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_of_a_namespace_is_called_by_its_namespace_and_name(
    client: OpenAI, engine: RenderingEngine, *, stream: bool
) -> None:
    name = {"name": "agents__spawn", "arguments": "{}"}
    engine.calls_of[0] = {**CALL, "function": name}
    member: Any = {"type": "function", "name": "spawn", "description": "d", "strict": False, "parameters": {}}
    space: Any = {"type": "namespace", "name": "agents", "description": "of agents", "tools": [member]}
    response: Any = client.responses.create(model="stand-in", input="find", tools=[TOOL, space], stream=stream)
    if stream:
        events = list(response)
        done = next(event for event in events if event.type == "response.function_call_arguments.done")
        assert done.name == "spawn"
        response = events[-1].response
    assert [tool["function"]["name"] for tool in engine.requests[-1]["tools"]] == ["find", "agents__spawn"]
    call = response.output[-1]
    assert (call.namespace, call.name) == ("agents", "spawn")
    history: list[Any] = [{"role": "user", "content": "find"}, *(item.to_dict() for item in response.output)]
    history.append({"type": "function_call_output", "call_id": "c1", "output": "done"})
    client.responses.create(model="stand-in", input=history, tools=[TOOL, space])
    assert engine.requests[-1]["messages"][-2]["tool_calls"][0]["function"]["name"] == "agents__spawn"


MESSAGE: dict[str, Any] = {
    "model": "stand-in",
    "max_tokens": 9,
    "messages": [{"role": "user", "content": "find the weather"}],
}
ANTHROPIC_TOOL = {"name": "find", "description": "d", "input_schema": {"type": "object"}}


def test_a_tool_round_trip_by_messages(gateway: RunningGateway, engine: RenderingEngine) -> None:
    first = post(gateway, "/v1/messages", {**MESSAGE, "system": "be brief", "tools": [ANTHROPIC_TOOL]}).json()
    assert (first["type"], first["role"], first["stop_reason"]) == ("message", "assistant", "tool_use")
    assert first["content"] == [
        {"type": "thinking", "thinking": "then", "signature": ""},
        {"type": "tool_use", "id": "c1", "name": "find", "input": {"city": "Paris"}},
    ]
    result = {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "found"}]}
    messages: list[Any] = [
        *MESSAGE["messages"],
        {"role": "assistant", "content": first["content"]},
        {"role": "user", "content": [result]},
    ]
    body = {**MESSAGE, "messages": messages, "system": [{"type": "text", "text": "be brief"}]}
    second = post(gateway, "/v1/messages", {**body, "tools": [ANTHROPIC_TOOL], "stop_sequences": ["x"]}).json()
    assert second["content"][1] == {"type": "text", "text": "here 0"}
    assert second["stop_reason"] == "end_turn"
    assert second["usage"]["input_tokens"] == len(engine.prompts[-1])
    assert engine.requests[-1]["stop"] == ["x"]
    assert_exact(gateway)
    assert {capture.response_id for capture in gateway.captures()} == {first["id"], second["id"]}


def test_the_events_of_a_message(gateway: RunningGateway, engine: RenderingEngine) -> None:
    response = post(gateway, "/v1/messages", {**MESSAGE, "stream": True})
    events = [json.loads(event.partition("data: ")[2]) for event in response.text.split("\n\n") if event]
    assert [event["type"] for event in events] == [
        "message_start",
        *["content_block_start", "content_block_delta", "content_block_stop"] * 2,
        "message_delta",
        "message_stop",
    ]
    assert events[0]["message"]["usage"]["input_tokens"] == len(engine.prompts[-1])
    assert json.loads(events[5]["delta"]["partial_json"]) == {"city": "Paris"}
    assert events[-2]["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}


def test_the_effort_and_the_schema_of_a_message_reach_the_engine(
    gateway: RunningGateway, engine: RenderingEngine
) -> None:
    schema: Any = {"type": "object", "properties": {}}
    output: Any = {"effort": "high", "format": {"type": "json_schema", "schema": schema}}
    thinking = {"type": "adaptive", "display": "omitted"}
    edits = {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}
    body: Any = {**MESSAGE, "output_config": output, "thinking": thinking, "context_management": edits}
    assert post(gateway, "/v1/messages?beta=true", body).status_code == 200
    sent = engine.requests[-1]
    assert sent["reasoning_effort"] == "high"
    assert sent["response_format"]["json_schema"] == {"name": "output", "schema": schema, "strict": True}
    refusals: list[tuple[Any, str]] = [
        ({"task_budget": {}}, "task_budget"),
        ({"format": {"type": "text"}}, "format.type: text"),
    ]
    for refused, param in refusals:
        error = post(gateway, "/v1/messages", {**MESSAGE, "output_config": refused}).json()["error"]
        assert f"output_config.{param}" in error["message"]


def test_errors_of_messages_have_their_form(gateway: RunningGateway) -> None:
    missing = post(gateway, "/v1/messages", {**MESSAGE, "max_tokens": None})
    unknown = post(gateway, "/v1/messages", {**MESSAGE, "container": "x"})
    model = post(gateway, "/v1/messages", {**MESSAGE, "model": "other"})
    for response, status, kind, text in (
        (missing, 400, "invalid_request_error", "max_tokens"),
        (unknown, 400, "invalid_request_error", "container"),
        (model, 404, "not_found_error", "other"),
    ):
        document = response.json()
        assert (response.status_code, document["type"], document["error"]["type"]) == (status, "error", kind)
        assert text in document["error"]["message"]
    KeyRing(gateway.data_dir).create("a", [Scope.SERVE])
    refused = post(gateway, "/v1/messages", MESSAGE).json()
    assert (refused["type"], refused["error"]["type"]) == ("error", "authentication_error")


def test_an_engines_error_has_the_callers_name_of_the_model(
    start_gateway: Callable[..., RunningGateway], stand_in: StandIn
) -> None:
    stand_in.error_response = (
        400,
        {"error": {"message": "stand-in is no image model, not even stand-in-2", "code": 400}},
    )
    with serving(stand_in.app()) as url:
        running = start_gateway(upstream=url)
        wait_until(lambda: running.health()["engine"] == "serving")
        for path, body in (("/v1/messages", MESSAGE), ("/v1/responses", {"model": "stand-in", "input": "x"})):
            answer = post(running, path, body).json()["error"]
            assert answer["message"] == "stand-in@external is no image model, not even stand-in-2"


def test_tokens_of_a_message_are_counted(gateway: RunningGateway, engine: RenderingEngine) -> None:
    body = {"model": "stand-in", "messages": MESSAGE["messages"]}
    count = post(gateway, "/v1/messages/count_tokens", body).json()
    assert count == {"input_tokens": len(engine.renderer.ids(MESSAGE["messages"]))}


def test_a_key_is_taken_from_the_header_of_anthropics_clients(gateway: RunningGateway) -> None:
    secret = KeyRing(gateway.data_dir).create("a", [Scope.SERVE]).secret
    assert post(gateway, "/v1/messages", MESSAGE, **{"x-api-key": secret}).status_code == 200
    assert post(gateway, "/v1/messages", MESSAGE, **{"x-api-key": "other"}).status_code == 401


_SCRIPT = """
import sys, anthropic
client = anthropic.Anthropic(base_url=sys.argv[1], api_key="none", max_retries=0)
messages = [{"role": "user", "content": "find the weather"}]
tools = [{"name": "find", "input_schema": {"type": "object"}}]
first = client.messages.create(model="stand-in", max_tokens=9, messages=messages, tools=tools)
call = next(block for block in first.content if block.type == "tool_use")
result = {"type": "tool_result", "tool_use_id": call.id, "content": "found"}
messages += [{"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
with client.messages.stream(model="stand-in", max_tokens=9, messages=messages, tools=tools) as stream:
    print("".join(stream.text_stream), stream.get_final_message().stop_reason)
"""


def test_the_anthropic_sdk_is_served(gateway: RunningGateway) -> None:
    try:
        python = find_serving_environment().python
    except ConfigurationError:
        pytest.skip("no serving environment: make setup")
    if not list(python.parent.parent.glob("lib/python*/site-packages/anthropic")):
        pytest.skip("the serving environment has no anthropic")
    run = subprocess.run([python, "-c", _SCRIPT, gateway.url], capture_output=True, text=True, check=False, timeout=120)
    assert run.stdout == "here 0 end_turn\n", run.stderr
    assert_exact(gateway)


def test_text_completions_are_captured(client: OpenAI, gateway: RunningGateway, engine: RenderingEngine) -> None:
    whole = client.completions.create(model="stand-in", prompt="find", max_tokens=2)
    assert (whole.choices[0].text, whole.choices[0].logprobs) == ("found", None)
    assert "token_ids" not in whole.choices[0].to_dict()
    streamed = list(client.completions.create(model="stand-in", prompt=[1, 2, 3], max_tokens=2, stream=True))
    assert streamed[0].choices[0].text == "found"
    first, second = gateway.captures()
    assert (first.response_token_ids, first.logprobs, first.is_complete) == ([5, 6], [-0.5, -0.25], True)
    assert first.prompt_token_ids == engine.renderer.encode("find")
    assert second.prompt_token_ids == [1, 2, 3]
    for fields in ({"prompt": ["a", "b"]}, {"prompt": "a", "echo": True}, {"prompt": "a", "suffix": "b"}):
        assert post(gateway, "/v1/completions", {"model": "stand-in", **fields}).status_code == 400


def test_models_and_tokens(client: OpenAI, gateway: RunningGateway) -> None:
    card = client.models.retrieve("stand-in")
    assert card.id == "stand-in"
    with pytest.raises(NotFoundError):
        client.models.retrieve("other")
    tokens = post(gateway, "/tokenize", {"model": "stand-in", "prompt": "find"}).json()
    assert (tokens["count"], tokens["max_model_len"]) == (len(tokens["tokens"]), 64)
    assert post(gateway, "/tokenize", {"model": "other", "prompt": "find"}).status_code == 404


def test_request_ids_are_relayed_and_browsers_may_call(gateway: RunningGateway) -> None:
    chat = {"messages": [{"role": "user", "content": "hi"}]}
    response = post(gateway, "/v1/chat/completions", chat, **{"x-request-id": "mine"})
    assert response.headers["x-request-id"] == "mine"
    assert post(gateway, "/v1/chat/completions", chat).headers["x-request-id"].startswith("req_")
    preflight = {"origin": "https://page.example", "access-control-request-method": "POST"}
    allowed = httpx.options(f"{gateway.url}/v1/responses", headers=preflight, timeout=TIMEOUT_S)
    assert (allowed.status_code, allowed.headers["access-control-allow-origin"]) == (200, "https://page.example")
    answer = post(gateway, "/v1/chat/completions", {}, origin="https://page.example")
    assert "x-request-id" in answer.headers["access-control-expose-headers"]
    other = httpx.options(f"{gateway.url}/v1/responses", headers={**preflight, "origin": "x"}, timeout=TIMEOUT_S)
    assert other.status_code == 400


def test_a_stored_response_belongs_to_its_key(
    start_gateway: Callable[..., RunningGateway], engine: RenderingEngine, data_dir: DataDir
) -> None:
    keys = [KeyRing(data_dir).create(name, [Scope.SERVE]).secret for name in ("a", "b")]
    with serving(engine.app()) as url:
        running = start_gateway(upstream=url)
        wait_until(lambda: running.health()["engine"] == "serving")
        own, other = (
            OpenAI(base_url=f"{running.url}/v1", api_key=key, max_retries=0, timeout=TIMEOUT_S) for key in keys
        )
        with own, other:
            response = own.responses.create(model="stand-in", input="x")
            assert own.responses.retrieve(response.id).id == response.id
            for refused in (
                lambda: other.responses.retrieve(response.id),
                lambda: other.responses.delete(response.id),
                lambda: other.responses.create(model="stand-in", input="x", previous_response_id=response.id),
            ):
                with pytest.raises(NotFoundError):
                    refused()


def test_stored_responses_are_bounded_and_expire(tmp_path: Path) -> None:
    store = ResponseStore(tmp_path / "responses", 20_000, 3600)
    for number in range(100):
        store.write("key", {"id": f"resp_{number}", "output": ["x" * 900]}, [])
    assert sum(file.stat().st_size for file in (tmp_path / "responses").iterdir()) <= 20_000
    stored = store.read("key", "resp_99")
    assert stored is not None
    assert stored.response["output"] == ["x" * 900]
    assert store.read("other", "resp_99") is None
    assert store.read("key", "resp_0") is None
    assert ResponseStore(tmp_path / "responses", 20_000, 0).read("key", "resp_99") is None


def test_a_malformed_body_is_refused_in_each_api(gateway: RunningGateway, client: OpenAI) -> None:
    for path in ("/v1/responses", "/v1/messages", "/v1/completions", "/tokenize", "/v1/messages/count_tokens"):
        for body in (b"{", b"[]", b'{"a": "\\ud83d"}', b"{" * 100_000):
            response = httpx.post(gateway.url + path, content=body, timeout=TIMEOUT_S)
            assert response.status_code == 400, (path, body[:20])
            assert response.json()["error"]["message"]
    with pytest.raises(BadRequestError):
        client.responses.create(model="stand-in", input=[])
    chunks = data_of(post(gateway, "/v1/completions", {"model": "stand-in", "prompt": "a", "stream": True}))
    assert chunks[-1] == "[DONE]"


@pytest.mark.parametrize("asked", [{"top_logprobs": 2}, {"include": ["message.output_text.logprobs"]}, {}])
@pytest.mark.parametrize("stream", [False, True])
def test_responses_have_the_log_probabilities_of_their_text(
    start_gateway: Callable[..., RunningGateway], upstream: str, stand_in: StandIn, asked: Any, *, stream: bool
) -> None:
    gateway = start_gateway(upstream=upstream)
    wait_until(lambda: gateway.health()["engine"] == "serving")
    with OpenAI(base_url=f"{gateway.url}/v1", api_key="none", max_retries=0, timeout=TIMEOUT_S) as client:
        response: Any = client.responses.create(model="stand-in", input="hi", stream=stream, **asked)
        if stream:
            events = list(response)
            response = events[-1].response
            deltas = [event for event in events if event.type == "response.output_text.delta"]
            assert [[entry.token for entry in event.logprobs] for event in deltas] == [
                [event.delta] if asked else [] for event in deltas
            ]
    part = response.output[0].content[0]
    assert [entry.logprob for entry in part.logprobs] == (stand_in.logprobs()[:3] if asked else [])
    assert "".join(entry.token for entry in part.logprobs) == (part.text if asked else "")
    assert stand_in.requests[-1].get("top_logprobs") == asked.get("top_logprobs")


def test_the_log_probabilities_of_a_text_are_found_among_those_of_a_whole_answer() -> None:
    entries = [{"token": token} for token in ("<think>", "a", "</think>", "he", "re", "<call>", "")]
    assert text_logprobs(Block(BlockKind.TEXT, parts=["here"], logprobs=entries)) == entries[3:5]
    assert text_logprobs(Block(BlockKind.TEXT, parts=["elsewhere"], logprobs=entries)) == []
    assert text_logprobs(Block(BlockKind.TEXT)) == []
