"""Who may ask: keys of the scope ask, their services and limits; nothing writes."""

from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from spanloop.client import Client
from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.keys.api_keys import KeyRing, Scope
from spanloop.foundation.paths import DataDir
from spanloop.foundation.settings import Limits
from spanloop.foundation.settings.roles import McpSettings
from spanloop.mcp_server.service import McpService, run
from spanloop.semconv.environment import CLICKHOUSE_URL_ENV
from spanloop.store import Store
from spanloop.store.client import Address
from spanloop.store.data_sets import add_to_data_set

from ...conftest import MakeFrame
from ..urls import clickhouse_url
from .conftest import Connect, ask

TIME = datetime(2026, 1, 2, tzinfo=UTC)
TOOLS_WITH_ROWS = ("find_episodes", "find_failures", "find_scores", "success_by", "failure_groups", "filter_values")


@pytest.fixture
def two_services(address: Address, store: Store, frame_of: MakeFrame, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store with a failed episode of each of two services."""
    monkeypatch.setenv(CLICKHOUSE_URL_ENV, clickhouse_url(address))
    for service in ("shop", "bank"):
        shared: dict[str, Any] = {"episode_id": service, "revision": 1}
        episode = shared | {
            "service_name": service,
            "agent_name": f"{service}-agent",
            "trace_ids": [service],
            "started_at": TIME,
            "outcome": "failure",
        }
        failure = shared | {
            "failure_id": f"{service}-failure",
            "occurred_at": TIME,
            "error_class": f"{service}_class",
            "fingerprint": service,
        }
        score = {"score_id": service, "name": f"{service}-score", "value": 1.0, "scored_at": TIME, "trace_id": service}
        for table, row in (("episodes", episode), ("failures", failure), ("scores", score)):
            store.insert(table, frame_of(table, [row]))
    return store


async def replies(connect: Connect, secret: str) -> str:
    """Return what the tools say, without the ids that the questions name."""
    async with connect(secret) as client:
        texts = [
            await ask(client, tool, **({"field": "agent"} if tool == "filter_values" else {}))
            for tool in TOOLS_WITH_ROWS
        ]
        texts += [await ask(client, "count", of="episodes"), await ask(client, "read_episode", episode_id="bank")]
        texts.append(await ask(client, "find_episodes", filters={"service": "bank"}))
    return "\n".join(texts)


async def test_a_key_reads_the_rows_of_its_services_alone(
    two_services: Store, data_dir: DataDir, connect: Connect
) -> None:
    del two_services
    ring = KeyRing(data_dir)
    shop, everything = ring.create("shop", [Scope.ASK], ["shop"]).secret, ring.create("all", [Scope.ASK]).secret
    limited, whole = await replies(connect, shop), await replies(connect, everything)
    for text in ("shop-agent", "shop_class", "shop-score"):
        assert text in limited
        assert text in whole
    for text in ("bank-agent", "bank_class", "bank-score"):
        assert text not in limited
        assert text in whole
    assert "1 episodes match." in limited
    assert "There is no episode 'bank'" in limited
    async with connect(shop) as client:
        refused = await ask(client, "data_sets")
        assert refused.is_error
        assert "sees no data set" in refused


async def test_a_data_set_is_read_by_client_and_assistant(
    two_services: Store, data_dir: DataDir, connect: Connect
) -> None:
    add_to_data_set(two_services, "refunds", ["bank"], created_by="ada", source="service=bank")
    add_to_data_set(two_services, "refunds", ["shop", "nowhere"], created_by="ada", source="selection")
    with Client(data_dir) as client:
        versions = client.data_sets()
        assert versions["data_set"].to_list() == ["refunds@v2", "refunds@v1"]
        assert versions.select("episodes", "added", "rejected_episodes", "created_by").row(0) == (2, 1, 1, "ada")
        assert client.data_set_episodes("refunds")["episode_id"].sort().to_list() == ["bank", "shop"]
        assert client.data_set_episodes("refunds@v1")["episode_id"].to_list() == ["bank"]
    async with connect("") as asking:
        assert "refunds@v1" in await ask(asking, "data_sets")
        episodes = await ask(asking, "data_set_episodes", data_set="refunds@v1")
        assert "bank-agent" in episodes
        assert "shop-agent" not in episodes
        assert (await ask(asking, "data_set_episodes", data_set="refunds@v3")).is_error
        assert (await ask(asking, "training_data")).startswith("0 rows")


@pytest.mark.parametrize("settings", [McpSettings(port=0, services="shop, mail")])
async def test_a_servers_services_limit_every_key(two_services: Store, data_dir: DataDir, connect: Connect) -> None:
    del two_services
    ring = KeyRing(data_dir)
    assert "bank-agent" not in await replies(connect, ring.create("all", [Scope.ASK]).secret)
    async with connect(ring.create("bank", [Scope.ASK], ["bank"]).secret) as client:
        refused = await ask(client, "count", of="episodes")
        assert refused.is_error
        assert "none is in both" in refused


def test_services_limit_the_scope_ask_alone(data_dir: DataDir) -> None:
    with pytest.raises(ConfigurationError, match="scope ask alone"):
        KeyRing(data_dir).create("wide", [Scope.ASK, Scope.ADMIN], ["shop"])


async def test_no_tool_changes_the_store(two_services: Store, connect: Connect) -> None:
    def rows() -> dict[str, int]:
        counts = two_services.connection.query(
            "SELECT name, total_rows FROM system.tables WHERE database = currentDatabase() AND total_rows IS NOT NULL",
            doing="counting",
        )
        return dict(counts.iter_rows())

    before = rows()
    async with connect("") as client:
        for text in ("'; DROP TABLE episodes; --", "') OR 1=1 --", "{p0:String}", "\\'"):
            for filters in ({"q": text}, {"service": text}, {"task": f"{text}*"}, {"attr": f"{text}={text}"}):
                assert (await ask(client, "count", of="episodes", filters=filters)).startswith("0 episodes")
            assert "no episode" in await ask(client, "read_episode", episode_id=text)
    assert rows() == before


async def test_requests_above_a_keys_limit_are_refused(data_dir: DataDir) -> None:
    secret = KeyRing(data_dir).create("slow", [Scope.ASK]).secret
    service = McpService(McpSettings(), data_dir, Limits(requests_per_s=0.01))
    _, app = service.application()
    headers = {"Authorization": f"Bearer {secret}"}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:1") as client:
        first, second = [await client.get("/nothing", headers=headers) for _ in range(2)]
    assert first.status_code == 404
    assert second.status_code == 429
    assert int(second.headers["retry-after"]) > 0
    assert 'spanloop_mcp_refused_requests_total{status="429"} 1' in service.metrics.render()


def test_beyond_the_loopback_it_needs_keys(data_dir: DataDir) -> None:
    with pytest.raises(ConfigurationError, match="--scope ask"):
        run(data_dir, McpSettings(host="0.0.0.0", port=0))


def test_another_websites_request_from_a_browser_is_refused(url: str) -> None:
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    accepted = {"Accept": "application/json, text/event-stream"}
    for headers, status in (({"Origin": "https://evil.example"}, 403), ({"Host": "evil.example"}, 421)):
        assert httpx.post(f"{url}/mcp", json=request, headers=accepted | headers).status_code == status
