"""Fixtures: gateways in front of a stand-in for vLLM."""

from collections.abc import Callable, Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from spanloop.foundation.paths import DataDir
from spanloop.foundation.settings import Limits
from spanloop.foundation.settings.roles import GatewaySettings
from spanloop.gateway.app import Gateway
from spanloop.semconv.environment import CLICKHOUSE_URL_ENV
from spanloop.store import Store
from spanloop.store.client import Address, Connection

from .support import RunningGateway, Stack, StandIn, serving, wait_until, write_model

_CAPTURES_SQL = (
    "SELECT * REPLACE (toJSONString(sampling) AS sampling) FROM generations ORDER BY started_at, generation_id"
)


@pytest.fixture
def stand_in(tmp_path: Path) -> Generator[StandIn]:
    """The engine's stand-in, with weights 1."""
    stand_in = StandIn(write_model(tmp_path / "models" / "v1", 1))
    yield stand_in
    assert stand_in.mixed == 0, "weights changed under a running request"


@pytest.fixture
def upstream(stand_in: StandIn) -> Generator[str]:
    with serving(stand_in.app()) as url:
        yield url


@pytest.fixture
def start_gateway(data_dir: DataDir) -> Generator[Callable[..., RunningGateway]]:
    """Start a gateway with given settings on the test's data directory."""
    with Stack() as stack:

        def start(limits: Limits = Limits(), **settings: Any) -> RunningGateway:
            gateway = Gateway(GatewaySettings(**settings), data_dir, limits)
            server = serving(gateway.application())
            return RunningGateway(stack.enter(server), data_dir, gateway, stop=lambda: stack.leave(server))

        yield start


@pytest.fixture
def gateway(start_gateway: Callable[..., RunningGateway], upstream: str) -> RunningGateway:
    """A gateway in front of the stand-in, without a ClickHouse."""
    running = start_gateway(upstream=upstream, drain_timeout_s=30.0)
    wait_until(lambda: running.health()["engine"] == "serving")
    return running


@pytest.fixture
def stored_rows(
    address: Address, store: Store, monkeypatch: pytest.MonkeyPatch
) -> Callable[[int], list[dict[str, Any]]]:
    """Let gateways use a ClickHouse, and wait for a number of captures in it; request it before the gateway."""
    assert store.database == address.database
    monkeypatch.setenv(
        CLICKHOUSE_URL_ENV,
        f"{address.scheme}://{address.user}:{address.password}@{address.host}:{address.port}/{address.database}",
    )

    def rows(count: int) -> list[dict[str, Any]]:
        captures: list[dict[str, Any]] = []

        def enough() -> bool:
            nonlocal captures
            with suppress(Exception):  # the gateway makes the database with its first insert
                connection = Connection(address)
                captures = connection.query(_CAPTURES_SQL, doing="reading captures").to_dicts()
                connection.close()
            return len(captures) >= count

        wait_until(enough)
        return captures

    return rows
