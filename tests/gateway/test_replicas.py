# pyright: reportPrivateUsage=false
"""Several engines behind one gateway: affinity, failures, rolling swaps, several models."""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.settings.roles import GatewaySettings
from spanloop.gateway.api_errors import UnavailableError
from spanloop.gateway.chat.sessions import conversation_of
from spanloop.gateway.client.engine_client import EngineClient
from spanloop.gateway.engine import vllm_server
from spanloop.gateway.engine.admission import AdmissionControl, AdmissionLimits, Caller
from spanloop.gateway.engine.deployment import Deployment
from spanloop.gateway.engine.gate import EngineEndpoint
from spanloop.gateway.engine.gpus import assign_gpus, visible_gpus
from spanloop.gateway.engine.serving_environment import ServingEnvironment, launch_command
from spanloop.gateway.engine.vllm_server import ChildEngine

from .support import RunningGateway, StandIn, data_of, serving, wait_until, write_model

Start = Callable[..., RunningGateway]


@pytest.fixture
def engines(tmp_path: Path) -> list[StandIn]:
    folder = write_model(tmp_path / "models" / "v1", 1)
    return [StandIn(folder, first_id=1 + (at << 20)) for at in range(2)]


@pytest.fixture
def replicated(engines: list[StandIn], start_gateway: Start) -> Generator[RunningGateway]:
    with serving(engines[0].app()) as first, serving(engines[1].app()) as second:
        gateway = start_gateway(upstream=f"{first}/v1 {second}", drain_timeout_s=30.0)
        wait_until(lambda: states(gateway) == ["serving", "serving"])
        yield gateway
        assert [engine.mixed for engine in engines] == [0, 0]


def states(gateway: RunningGateway) -> list[str]:
    return [engine["state"] for engine in gateway.health()["engines"]]


def chats_of(engine: StandIn) -> int:
    """Requests of callers: the gateway's own ask for two tokens, or one."""
    return sum("max_tokens" not in request for request in engine.requests)


def test_a_conversation_stays_with_one_engine_and_conversations_spread(
    replicated: RunningGateway, engines: list[StandIn]
) -> None:
    for number in range(16):
        before = [chats_of(engine) for engine in engines]
        for _ in range(2):
            headers = {"x-session-id": f"session {number}"}
            assert replicated.chat(headers=headers).status_code == 200
        added = [chats_of(engine) - count for engine, count in zip(engines, before, strict=True)]
        assert sorted(added) == [0, 2]
    assert all(chats_of(engine) >= 4 for engine in engines)


async def test_a_busy_engine_gives_its_conversations_to_an_idle_one_and_all_back_after_a_failure() -> None:
    admission = AdmissionControl(UnavailableError("none", code="x"), engines=3, limits=AdmissionLimits(running=100))
    endpoints = [EngineEndpoint(Deployment("m", "v1", "/m"), f"http://{at}", "policy") for at in range(3)]
    for gate, endpoint in zip(admission.gates, endpoints, strict=True):
        gate.open(endpoint)

    async def engine_of(number: int) -> int:
        async with admission.admit("m", Caller(conversation=b"%d" % number)) as slot:
            return admission.gates.index(slot.gate)

    places = {number: await engine_of(number) for number in range(60)}
    assert min(Counter(places.values()).values()) >= 10
    admission.gates[1].close(UnavailableError("down", code="x"))
    moved = {number: await engine_of(number) for number in places}
    assert all(moved[number] == place for number, place in places.items() if place != 1)
    assert {moved[number] for number, place in places.items() if place == 1} == {0, 2}
    admission.gates[1].open(endpoints[1])
    assert {number: await engine_of(number) for number in places} == places
    number = next(number for number, place in places.items() if place == 0)
    slots = [admission.admit("m", Caller(conversation=b"%d" % number)) for _ in range(30)]
    taken = Counter([admission.gates.index((await slot.__aenter__()).gate) for slot in slots])
    assert set(taken) == {0, 1, 2}
    assert taken[0] <= 2 * min(taken.values()) + 5
    for slot in slots:
        await slot.__aexit__(None, None, None)
    assert admission.running == 0


def test_a_conversation_is_the_session_else_the_beginning_of_its_texts() -> None:
    document = {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]}
    longer = {"messages": [*document["messages"], {"role": "assistant", "content": "a"}]}
    assert conversation_of("", "k", document) == conversation_of("", "k", longer)
    assert conversation_of("", "other", document) != conversation_of("", "k", document)
    assert conversation_of("s1", "k", document) == conversation_of("s1", "other", {}) != b""
    assert conversation_of("", "k", {"prompt": [1, 2]})


DEAD = {"healthy": False, "error_response": (500, {"error": {"message": "EngineCore died"}})}


@pytest.mark.parametrize(
    ("failure", "stream"),
    [({"break_after": 0}, False), ({"break_before_start": True}, True), (DEAD, False), (DEAD, True)],
)
def test_another_engine_answers_what_one_did_not(
    replicated: RunningGateway, engines: list[StandIn], failure: dict[str, Any], *, stream: bool
) -> None:
    for name, value in failure.items():
        setattr(engines[0], name, value)
    for number in range(8):
        response = replicated.chat(stream=stream, headers={"x-session-id": str(number)})
        assert response.status_code == 200
        documents = [each for each in data_of(response) if each != "[DONE]"] if stream else [response.json()]
        assert all(int(document["id"].partition("-")[2]) > 1 << 20 for document in documents)
    assert chats_of(engines[0])
    assert "spanloop_gateway_retried_total" in replicated.gateway.metrics.render()


def test_an_engine_that_is_down_leaves_and_comes_back(replicated: RunningGateway, engines: list[StandIn]) -> None:
    engines[0].healthy = False
    wait_until(lambda: states(replicated) == ["restarting", "serving"])
    health = replicated.health()
    assert (health["status"], health["engine"], health["restarts"]) == ("degraded", "serving", 1)
    assert "stopped responding" in health["error"]
    assert [replicated.chat(headers={"x-session-id": str(at)}).status_code for at in range(4)] == [200] * 4
    assert chats_of(engines[0]) == 0
    engines[0].healthy = True
    wait_until(lambda: states(replicated) == ["serving", "serving"])
    assert [engine["error"] for engine in replicated.health()["engines"]] == ["", ""]


def test_a_rolling_swap_serves_all_the_time(
    replicated: RunningGateway, engines: list[StandIn], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = threading.Event()
    models: list[str] = []

    def ask(worker: int) -> None:
        while not stop.is_set():
            response = replicated.chat(stream=worker % 2 == 0, headers={"x-session-id": str(len(models))})
            assert response.status_code == 200, response.text
            models.append((data_of(response)[0] if worker % 2 == 0 else response.json())["model"])

    admission = replicated.gateway.admission
    held: list[bool] = []

    def watched(hold: Callable[[], None]) -> Callable[[], None]:
        def hold_and_note() -> None:
            hold()
            held.append(admission.is_held)

        return hold_and_note

    for gate in admission.gates:
        monkeypatch.setattr(gate, "hold", watched(gate.hold))
    with ThreadPoolExecutor(4) as pool:
        workers = [pool.submit(ask, number) for number in range(4)]
        for number in (2, 3):
            folder = write_model(tmp_path / f"v{number}", number)
            answer = replicated.admin("deploy", name="stand-in", version=f"v{number}", path=str(folder))
            assert (answer.status_code, answer.json()["method"]) == (200, "hot_swap")
        wait_until(lambda: "stand-in@v3" in models)
        stop.set()
        for worker in workers:
            worker.result()
    assert held == [False] * 4
    assert [engine.weights for engine in engines] == [3, 3]
    captures = replicated.captures()
    assert len(captures) == len(models)
    for capture in captures:
        weights = {"external": 1, "v2": 2, "v3": 3}[capture.policy_version.partition("@")[2]]
        assert capture.response_token_ids[0] == 1000 + weights


def test_a_swap_that_fails_on_one_engine_is_taken_back_on_the_others(
    replicated: RunningGateway, engines: list[StandIn], tmp_path: Path
) -> None:
    folders = [write_model(tmp_path / f"v{number}", number) for number in (2, 3)]
    assert replicated.admin("deploy", name="stand-in", version="v2", path=str(folders[0])).status_code == 200
    engines[1].reload_changes_nothing = True
    failed = replicated.admin("deploy", name="stand-in", version="v3", path=str(folders[1]))
    assert failed.status_code == 500
    assert "stand-in@v2 serves again" in failed.json()["error"]["message"]
    assert [engine.weights for engine in engines] == [2, 2]
    assert [engine["model"] for engine in replicated.health()["engines"]] == ["stand-in@v2"] * 2
    assert replicated.chat(model="stand-in@v2").status_code == 200
    deployment = replicated.gateway.lifecycle.status.deployment
    assert deployment is not None
    assert deployment.version == "v2"


def test_engines_of_several_models_are_found_by_name(
    engines: list[StandIn], start_gateway: Start, tmp_path: Path
) -> None:
    engines[1].name = "other"
    with serving(engines[0].app()) as first, serving(engines[1].app()) as second:
        gateway = start_gateway(upstream=f"{first} {second}")
        wait_until(lambda: states(gateway) == ["serving", "serving"])
        for name, engine in (("stand-in", engines[0]), ("other", engines[1])):
            before = chats_of(engine)
            assert gateway.chat(model=name).json()["model"] == f"{name}@external"
            assert chats_of(engine) == before + 1
        missing = gateway.chat(model="third")
        assert missing.status_code == 404
        assert "'other'" in missing.json()["error"]["message"]
        folder = write_model(tmp_path / "v2", 2)
        assert gateway.admin("deploy", name="other", version="v2", path=str(folder)).status_code == 200
        assert [engine.weights for engine in engines] == [1, 2]
        refused = gateway.admin("deploy", name="third", version="v2", path=str(folder))
        assert refused.status_code == 400
        assert "serve other, stand-in" in refused.json()["error"]["message"]
        engines[1].healthy, engines[1].error_response = False, (500, {})
        assert gateway.chat(model="other").status_code == 503
        wait_until(lambda: states(gateway) == ["serving", "restarting"])
        assert gateway.chat(model="other").json()["error"]["code"] == "engine_restarting"
        assert gateway.chat(model="stand-in").status_code == 200


def test_engines_get_gpus_of_their_own() -> None:
    assert assign_gpus(2, 2, ("0", "1", "2", "3", "4")) == [("0", "1"), ("2", "3")]
    with pytest.raises(ConfigurationError, match="engines = 3 with tensor_parallel = 2 need 6 GPUs; 5 are visible"):
        assign_gpus(3, 2, ("0", "1", "2", "3", "4"))


def test_visible_gpus_are_those_of_the_variable_else_all(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    assert visible_gpus({}, tmp_path) == ("0", "1")
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "3, GPU-7"}, tmp_path) == ("3", "GPU-7")
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": ""}, tmp_path) == ()


def test_an_engine_is_started_on_its_gpus(tmp_path: Path) -> None:
    serving_environment = ServingEnvironment(tmp_path, "vllm", "0.32.0", is_cpu=False)
    settings = GatewaySettings(engines=2, tensor_parallel=2)
    launch = launch_command(serving_environment, "/m", tmp_path / "socket", settings, gpus=("2", "3"))
    assert launch.environment["CUDA_VISIBLE_DEVICES"] == "2,3"
    at = launch.command.index("--tensor-parallel-size")
    assert launch.command[at + 1] == "2"


def test_engines_are_the_gateways_own() -> None:
    with pytest.raises(ValidationError, match="name several URLs in upstream"):
        GatewaySettings(engines=2, upstream="http://a")
    assert GatewaySettings(upstream=" http://a/v1/  http://b ").upstreams == ("http://a", "http://b")


async def test_a_child_that_answers_no_health_check_is_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm_server, "_CHECK_EVERY_S", 0.01)
    answers = iter([True, False, False, True, *[False] * 6])
    engine = ChildEngine(GatewaySettings(), EngineClient(), tmp_path / "engine.log")

    async def is_healthy() -> bool:
        return next(answers)

    engine._api = SimpleNamespace(is_healthy=is_healthy)  # type: ignore[assignment]
    engine._process = await asyncio.create_subprocess_exec("sleep", "60")
    assert "answered no health check" in await engine.wait_until_down()
    await engine.stop()
