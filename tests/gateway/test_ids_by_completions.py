"""An engine that takes token ids by ``/v1/completions`` only continues conversations whose answers need no parser."""
# A stand-in's documents are JSON.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import json
from collections.abc import Callable, Generator
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import OpenAI
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from .chat_templates import MARKS, make_tokenizer
from .rendering_engine import RenderingEngine, write_rendering_model
from .support import TIMEOUT_S, RunningGateway, _event, serving, wait_until  # pyright: ignore[reportPrivateUsage]

USER = {"role": "user", "content": "find the weather"}
TOOL = {"type": "function", "function": {"name": "find", "parameters": {"type": "object", "properties": {}}}}
TOKENIZER = make_tokenizer([mark for mark in MARKS if "think" not in mark and "channel" not in mark])
Start = Callable[..., RunningGateway]


class OlderEngine(RenderingEngine):
    """As vLLM before 0.32: it renders by ``/tokenize``, and its chats do not take ids."""

    parses_tools = True
    """Whether it was started with a parser of tool calls."""

    async def _render(self, request: Request) -> Response:  # noqa: ARG002
        return JSONResponse({"detail": "Not Found"}, status_code=404)

    async def _chat(self, request: Request) -> Response:
        body = await request.json()
        if body.get("tools") and not self.parses_tools:
            message = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
            return JSONResponse({"error": {"message": message, "code": 400}}, status_code=400)
        assert "kv_transfer_params" not in body or body["messages"] == [{"role": "user", "content": "Hello"}]
        request._json = {**body, "kv_transfer_params": None}  # pyright: ignore[reportPrivateUsage]
        return await super()._chat(request)

    async def _complete(self, request: Request) -> Response:
        body = await request.json()
        prompt: list[int] = body["prompt"]
        if body["max_tokens"] == 1:  # the gateway's probe
            return JSONResponse({"id": "cmpl-0", "choices": [{"index": 0, "text": "", "prompt_token_ids": prompt}]})
        self.requests.append(body)
        self.prompts.append(prompt)
        text = self.texts[len(self.prompts) - 1]
        ids = [*self.renderer.by_characters(text), *self.renderer.encode(self.renderer.end_of_turn)]
        head = {"id": f"cmpl-{next(self._ids)}", "object": "text_completion", "created": 1, "model": "stand-in"}
        logprobs = {"tokens": ["t"] * len(ids), "token_logprobs": [-0.5] * len(ids), "top_logprobs": None}
        choice = {"index": 0, "text": text, "logprobs": logprobs, "finish_reason": "stop", "token_ids": ids}
        usage = {"prompt_tokens": len(prompt), "completion_tokens": len(ids), "total_tokens": len(prompt) + len(ids)}
        if not body.get("stream"):
            whole = {**head, "choices": [{**choice, "prompt_token_ids": prompt}], "usage": usage}
            return JSONResponse(whole)
        half = {"text": text[:3], "token_ids": ids[:3], "finish_reason": None, "prompt_token_ids": prompt}
        parts = [{"tokens": ["t"] * n, "token_logprobs": [-0.5] * n} for n in (3, len(ids) - 3)]
        rest = {"text": text[3:], "token_ids": ids[3:], "logprobs": parts[1]}
        events = [{**choice, **half, "logprobs": parts[0]}, {**choice, **rest}]
        chunks = [_event({**head, "choices": [each]}) for each in events]
        if (body.get("stream_options") or {}).get("include_usage"):
            chunks.append(_event({**head, "choices": [], "usage": usage}))
        return StreamingResponse(iter([*chunks, "data: [DONE]\n\n"]), media_type="text/event-stream")


@pytest.fixture
def engine(tmp_path: Path) -> OlderEngine:
    folder = write_rendering_model(tmp_path / "models" / "v1", tokenizer=TOKENIZER)
    return OlderEngine(folder, tokenizer=TOKENIZER, texts=[f"here {n}" for n in range(99)], max_model_len=4096)


@pytest.fixture
def gateway(start_gateway: Start, engine: OlderEngine) -> Generator[RunningGateway]:
    with serving(engine.app()) as url:
        running = start_gateway(upstream=url)
        wait_until(lambda: running.health()["engine"] == "serving")
        yield running


def test_an_engine_without_a_parser_of_tool_calls_takes_ids(start_gateway: Start, engine: OlderEngine) -> None:
    engine.parses_tools = False
    with serving(engine.app()) as url:
        running = start_gateway(upstream=url)
        wait_until(lambda: running.health()["engine"] == "serving")
        assert "by /v1/completions only" in running.health()["continuation"]


@pytest.mark.parametrize("stream", [False, True])
def test_each_prompt_begins_with_the_prompt_and_the_answer_before(
    gateway: RunningGateway, engine: OlderEngine, caplog: pytest.LogCaptureFixture, *, stream: bool
) -> None:
    client = OpenAI(base_url=f"{gateway.url}/v1", api_key="none", max_retries=0, timeout=TIMEOUT_S)
    messages: list[Any] = [USER]
    ids: list[str] = []
    for turn in range(5):
        options: Any = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
        answer: Any = client.chat.completions.create(model="stand-in", messages=messages, temperature=0.5, **options)
        chunks = list(answer) if stream else [answer]
        text = "".join(
            (choice.delta if stream else choice.message).content or "" for chunk in chunks for choice in chunk.choices
        )
        assert text == f"here {turn}"
        assert chunks[-1].usage.prompt_tokens == len(engine.prompts[-1])
        ids.append(chunks[0].id)
        messages += [{"role": "assistant", "content": text}, {"role": "user", "content": f"and {turn}"}]
    assert all(each.startswith("chatcmpl-") for each in ids)
    captures = gateway.captures()
    assert [capture.response_id for capture in captures] == ids
    assert all(capture.is_complete for capture in captures)
    for before, after in pairwise(captures):
        sampled = before.prompt_token_ids + before.response_token_ids
        assert after.prompt_token_ids[: len(sampled)] == sampled
    assert engine.text_of(engine.prompts[-1]) == engine.renderer.text(messages[:-2])
    last = engine.requests[-1]
    assert (last["temperature"], last["max_tokens"]) == (0.5, 4096 - len(engine.prompts[-1]))
    assert "messages" not in last
    assert "by /v1/completions only" in gateway.health()["continuation"]
    assert any("by /v1/completions only" in record.message for record in caplog.get_records("setup"))
    client.close()


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": [TOOL]},
        {"response_format": {"type": "json_object"}},
        {"logprobs": True},
        {"structured_outputs": {"choice": ["a"]}},
        {"reasoning_effort": "low"},
        {"vllm_xargs": {"a": 1}},
    ],
)
def test_what_chats_alone_have_is_answered_by_a_chat(
    gateway: RunningGateway, engine: OlderEngine, fields: dict[str, Any]
) -> None:
    first = gateway.chat(messages=[USER]).json()["choices"][0]["message"]
    messages = [USER, first, USER]
    response = gateway.chat(messages=messages, **fields)
    assert response.status_code == 200
    assert engine.prompts[-1] == engine.renderer.ids(messages)
    assert fields.keys() <= engine.requests[-1].keys()


def test_a_prompt_without_room_for_an_answer_is_refused_by_the_engine_as_a_chat(
    gateway: RunningGateway, engine: OlderEngine
) -> None:
    first = gateway.chat(messages=[USER]).json()["choices"][0]["message"]
    messages = [USER, first, {"role": "user", "content": "Paris " * 4096}]
    gateway.chat(messages=messages, max_tokens=5)
    assert engine.requests[-1]["messages"] == json.loads(json.dumps(messages))


def test_an_engine_whose_thinking_a_parser_reads_is_named(start_gateway: Start, tmp_path: Path) -> None:
    engine = OlderEngine(write_rendering_model(tmp_path / "v1"))
    with serving(engine.app()) as url:
        running = start_gateway(upstream=url)
        wait_until(lambda: running.health()["engine"] == "serving")
        assert "which parses no thinking" in running.health()["continuation"]
        assert httpx.get(f"{running.url}/healthz", timeout=TIMEOUT_S).status_code == 200
