"""A loop's surroundings: a registered model, a stand-in for the gateway, and a scheduler that trains nothing."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from spanloop.foundation.paths import DataDir
from spanloop.semconv.environment import CLICKHOUSE_URL_ENV
from spanloop.store import Store
from spanloop.store.client import Address

from ..gateway_stand_in import GatewayStandIn, gateway_stand_in
from ..training_running import url_of
from .support import Scheduler, write_app, write_model_folder


@pytest.fixture
def place(data_dir: DataDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an ``app.toml`` whose tasks the version ``m@v2`` solves, and what it names."""
    folder = tmp_path / "app"
    write_app(folder)
    assert data_dir.path.is_dir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def gateway(data_dir: DataDir) -> Iterator[GatewayStandIn]:
    """The gateway; as the collector it has nothing that waits."""
    with (
        gateway_stand_in(data_dir) as server,
        data_dir.announce("collector", f"http://127.0.0.1:{server.server_address[1]}"),
    ):
        yield server


@pytest.fixture
def scheduler(data_dir: DataDir, tmp_path: Path, gateway: GatewayStandIn) -> Iterator[Scheduler]:
    assert gateway.served == ""
    with data_dir.announce("scheduler", "http://127.0.0.1:1"):
        running = Scheduler(data_dir, write_model_folder(tmp_path / "weights"))
        running.start()
        yield running
        running.stop()


@pytest.fixture
def environment(store: Store, address: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    assert store.database == address.database
    monkeypatch.setenv(CLICKHOUSE_URL_ENV, url_of(address))
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("SPANLOOP_EXIT_TIMEOUT_S", "0.1")
