"""A stopping gateway lets running requests end and sends new ones away."""

import asyncio

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from spanloop.gateway.apis.routes import CHAT_PATH
from spanloop.gateway.drain import Drain


class Model:
    """Answers when it may."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.may_answer = asyncio.Event()

    async def chat(self, _: Request) -> Response:
        self.began.set()
        await self.may_answer.wait()
        return PlainTextResponse("said")


def client_of(drain: Drain, model: Model) -> httpx.AsyncClient:
    app = Starlette(routes=[Route(CHAT_PATH, model.chat, methods=["POST"]), Route("/healthz", model.chat)])
    return httpx.AsyncClient(transport=httpx.ASGITransport(drain.wrap(app)), base_url="http://gateway")


async def test_a_running_request_ends_and_a_new_one_gets_503_with_retry_after() -> None:
    drain, model = Drain(), Model()
    async with client_of(drain, model) as client:
        running = asyncio.create_task(client.post(CHAT_PATH))
        await model.began.wait()
        draining = asyncio.create_task(drain.wait(grace_s=60))
        await asyncio.sleep(0)
        assert drain.is_active
        refused = await client.post(CHAT_PATH)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "shutting_down")
        assert (int(refused.headers["retry-after"]), refused.headers["connection"]) == (5, "close")
        assert not draining.done()
        model.may_answer.set()
        assert (await running).text == "said"
        await draining
        assert (await client.get("/healthz")).status_code == 200


async def test_a_request_that_does_not_end_is_waited_for_no_longer_than_the_grace() -> None:
    drain, model = Drain(), Model()
    async with client_of(drain, model) as client:
        running = asyncio.create_task(client.post(CHAT_PATH))
        await model.began.wait()
        await asyncio.wait_for(drain.wait(grace_s=0.05), timeout=30)
        assert not running.done()
        running.cancel()


async def test_a_gateway_without_requests_does_not_wait() -> None:
    await asyncio.wait_for(Drain().wait(grace_s=3600), timeout=30)
