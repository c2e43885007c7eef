"""500 requests sent as exact ids and as chats: the engine receives the same fields, the client the same bytes."""
# A stand-in's documents are JSON.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import re
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spanloop.foundation.paths import DataDir
from spanloop.foundation.settings.roles import GatewaySettings
from spanloop.gateway.app import Gateway

from .rendering_engine import RenderingEngine, write_rendering_model
from .support import TIMEOUT_S, RunningGateway, serving, wait_until

USER = {"role": "user", "content": "find the weather"}
TOOL = {"type": "function", "function": {"name": "find", "parameters": {"type": "object", "properties": {}}}}
CALL = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"city": "Paris"}'}}
ANSWERS = (
    ("here and then", None),
    ('<tool_call>\n{"name":"find",  "arguments": {"city": "Paris"}}</tool_call>', CALL),
    ("<think>\nso\n</think>\n\nhere 🙂", None),
)
_IDS = re.compile(rb'"(id|created|prompt_token_ids|token_ids)":("[^"]*"|\d+|\[[\d,]*\]|null)')
_COUNTS = re.compile(rb'"(prompt_tokens|total_tokens)":\d+')
"""Of ids: the same text may have more tokens as it was sampled than as the tokenizer splits it."""
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "stream": st.booleans(),
        "temperature": st.floats(0, 2, allow_nan=False),
        "top_p": st.floats(0.1, 1),
        "max_tokens": st.integers(1, 64),
        "stop": st.sampled_from([["then"], "Paris"]),
        "seed": st.integers(0, 9),
        "logprobs": st.booleans(),
        "return_token_ids": st.booleans(),
        "stream_options": st.just({"include_usage": True}),
        "tools": st.just([TOOL]),
        "tool_choice": st.sampled_from(
            ["auto", "none", "required", {"type": "function", "function": {"name": "find"}}]
        ),
        "parallel_tool_calls": st.booleans(),
        "response_format": st.sampled_from(
            [{"type": "json_object"}, {"type": "json_schema", "json_schema": {"name": "a", "schema": {}}}]
        ),
        "structured_outputs": st.just({"choice": ["a", "b"]}),
        "chat_template_kwargs": st.just({"enable_thinking": False}),
        "reasoning_effort": st.sampled_from(["low", "high"]),
        "user": st.text("aé🙂", max_size=3),
        "unknown_field": st.none() | st.integers(),
    },
)


class _Both(NamedTuple):
    """One gateway that continues conversations exactly, and one that does not, before one engine."""

    engine: RenderingEngine
    exact: RunningGateway
    chat: RunningGateway


@pytest.fixture
def both(start_gateway: Callable[..., RunningGateway], tmp_path: Path) -> Generator[_Both]:
    engine = RenderingEngine(write_rendering_model(tmp_path / "models" / "v1"))
    data_dir = DataDir(tmp_path / "other").open()
    with serving(engine.app()) as url:
        exact = start_gateway(upstream=url)
        other = Gateway(GatewaySettings(upstream=url, conversation_bytes=0), data_dir)
        with serving(other.application()) as other_url:
            chat = RunningGateway(other_url, data_dir, other)
            for each in (exact, chat):
                wait_until(lambda each=each: each.health()["engine"] == "serving")  # type: ignore[misc]
            yield _Both(engine, exact, chat)


def send(gateway: RunningGateway, client: httpx.Client, body: dict[str, Any]) -> tuple[int, bytes]:
    response = client.post(f"{gateway.url}/v1/chat/completions", json=body)
    return response.status_code, _COUNTS.sub(rb'"\1":0', _IDS.sub(rb'"\1":0', response.content))


def test_ids_and_messages_give_equal_bytes(both: _Both) -> None:
    engine = both.engine
    continued = 0

    @given(OPTIONS, st.lists(st.sampled_from(ANSWERS), min_size=2, max_size=2), st.text("abé ", max_size=4))
    @settings(max_examples=250, suppress_health_check=[HealthCheck.function_scoped_fixture])
    def check(options: dict[str, Any], answers: list[tuple[str, Any]], question: str) -> None:
        nonlocal continued
        received: list[list[Any]] = []
        for gateway in (both.exact, both.chat):
            engine.requests.clear()
            engine.prompts.clear()
            engine.texts, engine.calls_of = [text for text, _ in answers], [call for _, call in answers]
            first = {"messages": [{"role": "user", "content": f"find {question}"}]}
            answer = client.post(f"{gateway.url}/v1/chat/completions", json=first)
            message = answer.json()["choices"][0]["message"]
            follows = {"role": "tool", "tool_call_id": "c1", "content": question} if message["tool_calls"] else USER
            body = {**options, "messages": [*first["messages"], message, follows]}
            status, content = send(gateway, client, body)
            sent = [dict(request) for request in engine.requests]
            continued += sent[-1].pop("kv_transfer_params", None) is not None
            received.append([message, status, content, sent])
        assert received[0] == received[1]

    with httpx.Client(timeout=TIMEOUT_S) as client:
        check()
    assert continued >= 200
