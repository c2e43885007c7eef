# pyright: reportPrivateUsage=false
"""Pauses: stopping the engine, errors meanwhile, and the restart when a holder releases, expires or is killed."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from spanloop.foundation.errors import ServiceError
from spanloop.foundation.keys.api_keys import KeyRing, Scope
from spanloop.gateway.engine.facts import EngineFacts
from spanloop.gateway.engine.served_adapter import ServedAdapter
from spanloop.gateway.engine.vllm_api import VllmApi
from spanloop.gateway.served_models.engine_factory import EngineFactory

from .support import TIMEOUT_S, RunningGateway, StandIn, wait_until, write_model

LONG_S = 600


class FakeChildEngine:
    """The stand-in as a child: it can be started with any folder and stopped."""

    can_restart = True
    served_name = "stand-in"
    lora_rank = 0

    def __init__(self, stand_in: StandIn, api: VllmApi) -> None:
        self._stand_in = stand_in
        self.api = api
        self.facts = EngineFacts()
        self.pid: int | None = None
        self.broken: list[str] = []
        self.calls: list[str] = []

    async def start(self, model_path: str, adapter: ServedAdapter | None = None) -> None:
        assert adapter is None
        name = Path(model_path).name
        self.calls.append(f"start {name}")
        if name in self.broken:
            raise ServiceError(f"{name} does not load")
        self._stand_in.weights = int((Path(model_path) / "model.safetensors").read_text())
        self.pid = 1

    async def swap_adapter(self, model_path: str, adapter: ServedAdapter) -> bool:
        raise AssertionError((model_path, adapter))

    async def stop(self) -> None:
        if self.pid is not None:
            self.calls.append("stop")
        self.pid = None

    async def release_memory(self) -> None:
        await self.stop()

    async def wait_until_down(self) -> str:
        await asyncio.Event().wait()
        raise AssertionError


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch, stand_in: StandIn, upstream: str) -> list[FakeChildEngine]:
    """Give every gateway a fake child engine; the newest is the last."""
    engines_made: list[FakeChildEngine] = []

    def make(factory: EngineFactory, _at: int) -> FakeChildEngine:
        engines_made.append(FakeChildEngine(stand_in, VllmApi(upstream, factory.client)))
        return engines_made[-1]

    monkeypatch.setattr(EngineFactory, "_first_engine", make)
    return engines_made


@pytest.fixture
def pausable(
    engines: list[FakeChildEngine], start_gateway: Callable[..., RunningGateway], tmp_path: Path, stand_in: StandIn
) -> RunningGateway:
    """A gateway that serves ``m@v1`` from a child engine."""
    assert stand_in.weights == 1
    running = start_gateway(drain_timeout_s=30.0)
    assert deploy(running, tmp_path / "models" / "v1").status_code == 200
    assert engines[-1].calls == ["start v1"]
    return running


def deploy(gateway: RunningGateway, folder: Path, **body: str) -> httpx.Response:
    return gateway.admin("deploy", name="m", version=folder.name, path=str(folder), **body)


def pause(gateway: RunningGateway, holder: str = "job a", ttl_s: float = LONG_S) -> httpx.Response:
    return gateway.admin("pause", holder=holder, ttl_s=ttl_s)


def serves(gateway: RunningGateway) -> bool:
    return bool(gateway.health()["engine"] == "serving")


def test_a_pause_stops_the_engine_and_reports_the_holder_until_its_release(
    pausable: RunningGateway, engines: list[FakeChildEngine]
) -> None:
    assert pause(pausable).json()["state"] == "paused"
    assert engines[-1].pid is None
    response = pausable.chat()
    assert (response.status_code, response.headers["retry-after"]) == (503, "30")
    error = response.json()["error"]
    assert error["code"] == "serving_paused"
    assert "paused while job a trains" in error["message"]
    health = pausable.health()
    assert (health["status"], health["engine"], health["paused_by"]) == ("ok", "paused", ["job a"])
    pausable.admin("resume", holder="job a")
    assert pausable.chat().json()["model"] == "m@v1"
    assert engines[-1].calls == ["start v1", "stop", "start v1"]
    assert pausable.health()["paused_by"] == []


def test_running_requests_finish_before_the_engine_stops(pausable: RunningGateway, stand_in: StandIn) -> None:
    stand_in.paused = True
    with ThreadPoolExecutor(2) as pool:
        running = pool.submit(pausable.chat)
        wait_until(lambda: stand_in.running == 1)
        paused = pool.submit(pause, pausable)
        wait_until(lambda: pausable.gateway.admission.endpoint is None)
        stand_in.paused = False
        assert paused.result().json()["state"] == "paused"
        # The client's own thread may not have read the response yet, so the test checks the engine, not the client.
        assert (stand_in.running, stand_in.aborted) == (0, 0)
        assert running.result().status_code == 200


def test_a_pause_that_is_not_renewed_expires(pausable: RunningGateway, engines: list[FakeChildEngine]) -> None:
    pause(pausable, ttl_s=0.2)
    wait_until(lambda: serves(pausable))
    assert engines[-1].calls == ["start v1", "stop", "start v1"]


def test_a_renewal_extends_the_pause(pausable: RunningGateway, engines: list[FakeChildEngine]) -> None:
    timers = pausable.gateway.pauses._timers
    pause(pausable)
    first = timers["job a"]
    pause(pausable)
    assert first is not None
    assert first.cancelled()
    assert timers["job a"] is not first
    pause(pausable, "job b", ttl_s=0.2)
    wait_until(lambda: pausable.health()["paused_by"] == ["job a"])
    assert pausable.health()["engine"] == "paused"
    assert engines[-1].calls == ["start v1", "stop"]


def test_serving_resumes_after_every_holder_released_its_pause(pausable: RunningGateway) -> None:
    pause(pausable)
    pause(pausable, "job b")
    pausable.admin("resume", holder="job a")
    assert pausable.health()["engine"] == "paused"
    pausable.admin("resume", holder="nobody")
    assert pausable.health()["engine"] == "paused"
    pausable.admin("resume", holder="job b")
    wait_until(lambda: serves(pausable))


def test_only_the_holder_can_deploy_during_a_pause(
    pausable: RunningGateway, engines: list[FakeChildEngine], tmp_path: Path
) -> None:
    folder = write_model(tmp_path / "v2", 2)
    pause(pausable)
    response = deploy(pausable, folder)
    assert response.status_code == 409
    assert "paused while job a trains" in response.json()["error"]["message"]
    assert deploy(pausable, folder, holder="job a").json()["model"] == "m@v2"
    pausable.admin("resume", holder="job a")
    assert pausable.chat().json()["model"] == "m@v2"
    assert engines[-1].calls == ["start v1", "stop", "start v2"]


def test_a_deployment_that_fails_during_a_pause_restores_the_previous_one(
    pausable: RunningGateway, engines: list[FakeChildEngine], tmp_path: Path
) -> None:
    engines[-1].broken.append("v2")
    pause(pausable)
    response = deploy(pausable, write_model(tmp_path / "v2", 2), holder="job a")
    assert response.status_code == 500
    assert "m@v1 serves again" in response.json()["error"]["message"]
    assert pausable.chat().json()["model"] == "m@v1"


def test_a_gateway_that_starts_while_a_job_trains_is_paused_by_the_next_renewal(
    pausable: RunningGateway,
    engines: list[FakeChildEngine],
    start_gateway: Callable[..., RunningGateway],
    tmp_path: Path,
) -> None:
    pause(pausable)
    pausable.gateway.recorder._spool.close()  # its process is gone
    (tmp_path / "data" / "generations").rename(tmp_path / "data" / "former")
    again = start_gateway()
    wait_until(lambda: serves(again))
    assert pause(again).json()["state"] == "paused"
    assert engines[-1].calls == ["start v1", "stop"]
    again.admin("resume", holder="job a")
    wait_until(lambda: serves(again))


def test_a_pause_does_not_start_a_stopped_engine(pausable: RunningGateway, engines: list[FakeChildEngine]) -> None:
    pausable.admin("stop")
    assert pause(pausable).json()["state"] == "stopped"
    pausable.admin("resume", holder="job a")
    assert pausable.health()["engine"] == "stopped"
    pause(pausable)
    assert engines[-1].calls == ["start v1", "stop"]


def test_without_a_deployment_a_pause_only_blocks_deployments(
    engines: list[FakeChildEngine], start_gateway: Callable[..., RunningGateway], tmp_path: Path
) -> None:
    empty = start_gateway()
    assert pause(empty).json()["state"] == "no_deployment"
    assert deploy(empty, tmp_path / "models" / "v1").status_code == 409
    empty.admin("resume", holder="job a")
    assert deploy(empty, tmp_path / "models" / "v1").status_code == 200
    assert engines[-1].calls == ["start v1"]


def test_an_external_engine_cannot_be_paused(gateway: RunningGateway) -> None:
    response = pause(gateway)
    assert response.status_code == 409
    assert "upstream that it did not start" in response.json()["error"]["message"]
    assert gateway.chat().status_code == 200
    assert gateway.health()["paused_by"] == []


@pytest.mark.parametrize(
    "body", [{}, {"holder": ""}, {"holder": "a"}, {"holder": "a", "ttl_s": 0}, {"holder": "a", "ttl_s": 1e9}]
)
def test_a_malformed_pause_is_rejected(gateway: RunningGateway, body: dict[str, object]) -> None:
    assert gateway.admin("pause", **body).status_code == 400
    assert gateway.chat().status_code == 200


def test_pausing_needs_the_token(gateway: RunningGateway) -> None:
    body = {"holder": "a", "ttl_s": 5}
    for path in ("pause", "resume"):
        assert httpx.post(f"{gateway.url}/admin/{path}", json=body, timeout=TIMEOUT_S).status_code == 401


def test_admin_accepts_api_keys_with_the_train_scope(gateway: RunningGateway) -> None:
    ring = KeyRing(gateway.data_dir)

    def status(key: str) -> int:
        return httpx.get(
            f"{gateway.url}/admin/status", headers={"Authorization": f"Bearer {key}"}, timeout=TIMEOUT_S
        ).status_code

    train, admin, read = (ring.create(each, [each]).secret for each in (Scope.TRAIN, Scope.ADMIN, Scope.READ))
    assert [status(key) for key in (train, admin, read, "nonsense")] == [200, 200, 403, 401]
    ring.revoke("train")
    assert status(train) == 401
    assert status((gateway.data_dir.gateway / "admin.token").read_text().strip()) == 200
