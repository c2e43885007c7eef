"""A running spanloop without a scheduler and a dashboard: collector and gateway as processes, a scripted model."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from spanloop.foundation.paths import DataDir
from spanloop.semconv.environment import CLICKHOUSE_URL_ENV
from spanloop.store import Store
from spanloop.store.client import Address

from ...collector.collector.collectors import CollectorProcess
from ...gateway.support import Process, StandIn, serving, wait_until, write_model


@dataclass
class Scripted(StandIn):
    """A model that answers a question by its script, else with the question in capitals."""

    script: dict[str, str] = field(default_factory=dict[str, str])

    def _choice(self, index: int, body: dict[str, Any]) -> dict[str, Any]:
        question = body["messages"][-1]["content"]
        text = self.script.get(question, question.upper())
        return {**super()._choice(index, body), "message": {"role": "assistant", "content": text}}


@dataclass
class ModelsOnly:
    """A gateway that says what it serves."""

    names: tuple[str, ...] = ("tiny", "tiny@v1")
    restarts: int = 0

    def app(self) -> Starlette:
        return Starlette(routes=[Route("/v1/models", self._models), Route("/healthz", self._health)])

    async def _models(self, _: Request) -> Response:
        return JSONResponse({"data": [{"id": name} for name in self.names]})

    async def _health(self, _: Request) -> Response:
        return JSONResponse({"restarts": self.restarts})


@dataclass
class Spanloop:
    """The services of one test."""

    data_dir: DataDir
    gateway: Process
    model: Scripted
    clickhouse_url: str

    @property
    def served(self) -> str:
        """``name@version``."""
        health = self.gateway.health()
        return f"{health['model']}@{health['version']}"


@pytest.fixture
def spanloop(
    data_dir: DataDir, address: Address, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Spanloop]:
    assert store.database == address.database
    url = f"{address.scheme}://{address.user}:{address.password}@{address.host}:{address.port}/{address.database}"
    monkeypatch.setenv(CLICKHOUSE_URL_ENV, url)
    model = Scripted(write_model(tmp_path / "models" / "v1", 1))
    with serving(model.app()) as upstream, _services(data_dir, url, upstream) as gateway:
        wait_until(lambda: gateway.health()["engine"] == "serving")
        yield Spanloop(data_dir, gateway, model, url)


@contextmanager
def _services(data_dir: DataDir, clickhouse_url: str, upstream: str) -> Generator[Process]:
    collector = CollectorProcess(data_dir, clickhouse_url)
    gateway = Process(data_dir, "--upstream", upstream)
    try:
        assert collector.url
        yield gateway
    finally:
        gateway.client.close()
        gateway.stop()
        collector.terminate()
