"""More requests than engines, memory and limits of keys have room for."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from spanloop.foundation.keys.api_keys import KeyRing, Scope
from spanloop.foundation.settings import Limits
from spanloop.gateway.api_errors import UnavailableError
from spanloop.gateway.apis.routes import MESSAGES_PATH
from spanloop.gateway.drain import Drain
from spanloop.gateway.engine.admission import AdmissionControl, AdmissionLimits, Caller
from spanloop.gateway.engine.deployment import Deployment
from spanloop.gateway.engine.gate import EngineEndpoint

from .support import TIMEOUT_S, RunningGateway, StandIn, wait_until

ENDPOINT = EngineEndpoint(Deployment("m", "v1", "/m"), "http://e", "policy")
HI = [{"role": "user", "content": "hi"}]
REQUESTS: dict[str, Any] = {
    "/v1/chat/completions": {"messages": HI},
    "/v1/responses": {"input": "hi", "model": "stand-in"},
    "/v1/messages": {"messages": HI, "model": "stand-in", "max_tokens": 9},
}


def post(gateway: RunningGateway, path: str, **headers: str) -> httpx.Response:
    return httpx.post(gateway.url + path, json=REQUESTS[path], headers=headers, timeout=TIMEOUT_S)


def error_of(path: str, response: httpx.Response) -> str:
    """The error's type, which is in the form of the path's API."""
    document = response.json()
    assert (document.get("type") == "error") == (path == MESSAGES_PATH)
    error: dict[str, Any] = document["error"]
    assert error["message"]
    return str(error["type"])


class Load:
    """Requests of several keys on one engine with room for some."""

    def __init__(self, limits: AdmissionLimits) -> None:
        self.refusals = 0
        self.admission = AdmissionControl(
            UnavailableError("none", code="no_deployment"), limits=limits, on_refusal=self._count
        )
        self.admission.gates[0].open(ENDPOINT)
        self.admitted: list[str] = []
        self._ends: list[asyncio.Event] = []

    def _count(self) -> None:
        self.refusals += 1

    async def start(self, key: str, *, is_repeated: bool = False) -> "asyncio.Task[None]":
        task = asyncio.create_task(self._use(key, is_repeated=is_repeated))
        for _ in range(3):
            await asyncio.sleep(0)
        return task

    async def _use(self, key: str, *, is_repeated: bool) -> None:
        async with self.admission.admit("", Caller(key, is_repeated=is_repeated)):
            self.admitted.append(key)
            end = asyncio.Event()
            self._ends.append(end)
            await end.wait()

    async def end_first(self) -> None:
        self._ends.pop(0).set()
        for _ in range(5):
            await asyncio.sleep(0)


async def test_keys_share_an_engine_whatever_one_of_them_sends() -> None:
    load = Load(AdmissionLimits(running=2, waiting=100))
    tasks = [await load.start("many") for _ in range(8)]
    tasks += [await load.start("few") for _ in range(2)]
    for _ in range(10):
        await load.end_first()
    await asyncio.gather(*tasks)
    assert load.admitted == ["many", "many", "few", "many", "few", "many", "many", "many", "many", "many"]
    assert (load.admission.waiting, load.admission.running, load.refusals) == (0, 0, 0)


async def test_a_full_queue_refuses_the_newest_of_the_key_that_waits_most() -> None:
    load = Load(AdmissionLimits(running=1, waiting=2))
    many = [await load.start("many") for _ in range(3)]
    few = await load.start("few")
    with pytest.raises(UnavailableError) as refused:
        await many[2]
    assert (refused.value.status, refused.value.code) == (503, "overloaded")
    assert refused.value.retry_after_s is not None
    repeated = await load.start("few", is_repeated=True)
    with pytest.raises(UnavailableError):
        await few
    for _ in range(3):
        await load.end_first()
    await asyncio.gather(many[0], many[1], repeated)
    assert sorted(load.admitted) == ["few", "many", "many"]
    assert load.refusals == 2


async def test_a_cancelled_request_leaves_neither_queue_nor_slot() -> None:
    load = Load(AdmissionLimits(running=1, waiting=9))
    first, second, third = [await load.start("a") for _ in range(3)]
    second.cancel()
    await load.end_first()
    await first
    assert load.admitted == ["a", "a"]
    third.cancel()
    await asyncio.gather(second, third, return_exceptions=True)
    assert (load.admission.waiting, load.admission.running) == (0, 0)


@pytest.mark.parametrize("path", REQUESTS)
def test_an_overload_is_a_503_in_the_callers_form(
    start_gateway: Callable[..., RunningGateway], upstream: str, stand_in: StandIn, path: str
) -> None:
    gateway = start_gateway(upstream=upstream, engine_requests=1, waiting_requests=1)
    wait_until(lambda: gateway.health()["engine"] == "serving")
    stand_in.paused = True
    with ThreadPoolExecutor(2) as pool:
        running = pool.submit(gateway.chat)
        wait_until(lambda: gateway.health()["running_requests"] == 1)
        waiting = pool.submit(gateway.chat)
        wait_until(lambda: gateway.health()["held_requests"] == 1)
        refused = post(gateway, path)
        assert (refused.status_code, stand_in.running) == (503, 1)
        assert int(refused.headers["retry-after"]) >= 1
        assert error_of(path, refused) in {"server_error", "overloaded_error"}
        stand_in.paused = False
        assert [each.result().status_code for each in (running, waiting)] == [200, 200]
    metrics = httpx.get(f"{gateway.url}/metrics", timeout=TIMEOUT_S).text
    assert 'spanloop_gateway_refused_total{reason="overloaded"} 1' in metrics
    assert "spanloop_gateway_held_requests 0" in metrics


@pytest.mark.parametrize("path", REQUESTS)
def test_a_key_that_used_its_tokens_waits(
    start_gateway: Callable[..., RunningGateway], upstream: str, path: str
) -> None:
    gateway = start_gateway(upstream=upstream, limits=Limits(tokens_per_min=10))
    wait_until(lambda: gateway.health()["engine"] == "serving")
    ring = KeyRing(gateway.data_dir)
    app, other = ({"x-api-key": ring.create(name, [Scope.SERVE]).secret} for name in ("app", "other"))
    assert [post(gateway, path, **app).status_code for _ in range(2)] == [200, 200]
    refused = post(gateway, path, **app)
    assert refused.status_code == 429
    assert 20 <= int(refused.headers["retry-after"]) <= 30  # 14 of 10 tokens are used, one refills in 6 s
    assert error_of(path, refused) == "rate_limit_error"
    assert post(gateway, path, **other).status_code == 200
    metrics = gateway.gateway.metrics.render()
    assert 'refused_total{reason="tokens_per_min"} 1' in metrics


@pytest.mark.parametrize("path", REQUESTS)
def test_bodies_beyond_the_memory_for_them_are_refused(
    start_gateway: Callable[..., RunningGateway], upstream: str, stand_in: StandIn, path: str
) -> None:
    gateway = start_gateway(upstream=upstream, bodies_bytes=1000)
    wait_until(lambda: gateway.health()["engine"] == "serving")
    stand_in.paused = True
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(gateway.chat, messages=[{"role": "user", "content": "x" * 945}])
        wait_until(lambda: gateway.health()["running_requests"] == 1)
        refused = post(gateway, path)
        stand_in.paused = False
        assert running.result().status_code == 200
    assert refused.status_code == 503
    assert int(refused.headers["retry-after"]) >= 1
    assert error_of(path, refused) in {"server_error", "overloaded_error"}
    assert post(gateway, path).status_code == 200


async def test_a_stopping_gateway_refuses_a_message_in_its_form() -> None:
    refused: list[str] = []
    drain = Drain(lambda: refused.append("draining"))
    await drain.wait(1)

    async def never(*_: Any) -> None:
        raise AssertionError

    async with httpx.AsyncClient(transport=httpx.ASGITransport(drain.wrap(never)), base_url="http://g") as client:
        response = await client.post(MESSAGES_PATH)
    assert (response.status_code, error_of(MESSAGES_PATH, response)) == (503, "overloaded_error")
    assert (response.headers["retry-after"], refused) == ("5", ["draining"])


def test_a_response_that_cannot_be_stored_is_answered(gateway: RunningGateway) -> None:
    (gateway.data_dir.gateway / "responses").write_text("no folder")
    assert post(gateway, "/v1/responses").status_code == 200


@pytest.mark.parametrize(
    ("path", "fields"), [("/v1/chat/completions", {"messages": HI}), ("/v1/completions", {"prompt": "hi"})]
)
def test_more_choices_than_the_limit_are_refused(
    start_gateway: Callable[..., RunningGateway], upstream: str, stand_in: StandIn, path: str, fields: dict[str, Any]
) -> None:
    gateway = start_gateway(upstream=upstream, max_choices=4)
    wait_until(lambda: gateway.health()["engine"] == "serving")
    stand_in.requests.clear()
    refused = httpx.post(gateway.url + path, json={**fields, "n": 5}, timeout=TIMEOUT_S)
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "n"
    assert "'n' must be at most 4, got 5" in refused.json()["error"]["message"]
    assert stand_in.requests == []
    assert len(gateway.chat(n=4).json()["choices"]) == 4
