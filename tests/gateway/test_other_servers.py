"""Servers of OpenAI's API that are not vLLM: without a health route, token ids and unknown fields."""

import asyncio
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from spanloop.foundation.keys.api_keys import KeyRing, Scope
from spanloop.foundation.settings import Limits

from .support import RunningGateway, StandIn, serving, wait_until

Start = Callable[..., RunningGateway]
KEY = "sk-of-the-server"


class OtherServer:
    """Refuses fields and keys that it does not know."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.is_up = True
        self.refused = {"return_token_ids"}

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/api/v1/models", self._models),
                Route("/api/v1/chat/completions", self._chat, methods=["POST"]),
            ]
        )

    async def _models(self, request: Request) -> Response:
        if request.headers.get("authorization") != f"Bearer {KEY}" or not self.is_up:
            return JSONResponse({"error": {"message": "no"}}, status_code=401 if self.is_up else 500)
        return JSONResponse({"object": "list", "data": [{"id": "small"}, {"id": "large"}]})

    async def _chat(self, request: Request) -> Response:
        body: dict[str, Any] = await request.json()
        if request.headers.get("authorization") != f"Bearer {KEY}":
            return JSONResponse({"error": {"message": "no"}}, status_code=401)
        if refused := self.refused & set(body):
            return JSONResponse({"error": {"message": f"unknown: {refused}"}}, status_code=400)
        self.requests.append(body)
        await asyncio.sleep(0)
        message = {"role": "assistant", "content": f"from {body['model']}"}
        return JSONResponse(
            {
                "id": f"chatcmpl-{len(self.requests)}",
                "object": "chat.completion",
                "model": body["model"],
                "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 30, "completion_tokens": 20, "total_tokens": 50},
            }
        )


@pytest.fixture
def other() -> OtherServer:
    return OtherServer()


@pytest.fixture
def url(other: OtherServer) -> Generator[str]:
    with serving(other.app()) as url:
        yield f"{url}/api/v1"


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    path.write_text(f"{KEY}\n")
    return path


def test_a_server_that_is_not_vllm_answers_with_its_key(
    start_gateway: Start, other: OtherServer, url: str, key_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gateway = start_gateway(upstream=f"{url}#large", upstream_key_file=key_file)
    wait_until(lambda: gateway.health()["engine"] == "serving")
    answer = gateway.chat(headers={"authorization": "Bearer none"}, temperature=0.5).json()
    assert (answer["model"], answer["choices"][0]["message"]["content"]) == ("large@external", "from large")
    sent = other.requests[-1]
    assert (sent["model"], sent["temperature"], sent["logprobs"]) == ("large", 0.5, True)
    assert "return_token_ids" not in sent
    assert "does not accept return_token_ids" in caplog.text
    assert "tokenised again" in gateway.health()["continuation"]
    assert [capture.is_complete for capture in gateway.captures()] == [False]


def test_a_server_that_refuses_the_key_is_named(start_gateway: Start, url: str, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("sk-another")
    gateway = start_gateway(upstream=url, upstream_key_file=wrong)
    wait_until(lambda: gateway.health()["engine"] == "restarting")
    message = gateway.chat().json()["error"]["message"]
    server = url.removesuffix("/v1")
    assert f"{server} refuses the gateway's key (status 401). It restarts" in message


def test_tokens_that_such_a_server_reports_count_for_the_key(
    start_gateway: Start, other: OtherServer, url: str, key_file: Path
) -> None:
    other.refused = {"return_token_ids", "logprobs"}
    gateway = start_gateway(upstream=url, upstream_key_file=key_file, limits=Limits(tokens_per_min=40))
    wait_until(lambda: gateway.health()["engine"] == "serving")
    secret = KeyRing(gateway.data_dir).create("app", [Scope.SERVE]).secret
    statuses = [gateway.chat(headers={"authorization": f"Bearer {secret}"}).status_code for _ in range(2)]
    assert statuses == [200, 429]
    assert other.requests[-1]["model"] == "small"


def test_models_of_two_servers_are_served_by_name(
    start_gateway: Start, url: str, key_file: Path, upstream: str, stand_in: StandIn
) -> None:
    gateway = start_gateway(upstream=f"{upstream} {url}#small {url}#large", upstream_key_file=key_file)
    wait_until(lambda: {engine["state"] for engine in gateway.health()["engines"]} == {"serving"})
    texts = [gateway.chat(model=name).json()["choices"][0]["message"]["content"] for name in ("small", "large")]
    assert texts == ["from small", "from large"]
    assert gateway.chat(model="stand-in").json()["model"] == "stand-in@external"
    assert stand_in.requests[-1]["return_token_ids"] is True
