"""Health report and metrics of roles without a port of their own."""

import socket

import httpx
import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from spanloop.foundation.errors import ConfigurationError, PortInUseError
from spanloop.foundation.keys.api_keys import KeyRing, Scope
from spanloop.foundation.paths import DataDir
from spanloop.foundation.telemetry.metrics import Metrics
from spanloop.foundation.telemetry.status import Status, status_routes
from spanloop.foundation.telemetry.status_listener import StatusAddress, serving_status


def make_metrics() -> Metrics:
    return Metrics("spanloop_x_", {"leader": ("gauge", "1 while it leads.")})


def test_health_is_open_and_metrics_need_the_scope_read_from_the_first_key_on(data_dir: DataDir) -> None:
    status, metrics, keys = Status("scheduler"), make_metrics(), KeyRing(data_dir)
    app = Starlette(routes=status_routes(status, metrics, keys, lambda: metrics.set("leader", 1)))
    client = TestClient(app)
    assert client.get("/metrics").text.endswith("spanloop_x_leader 1\n")
    reader, sender = (keys.create(scope, [scope]).secret for scope in (Scope.READ, Scope.INGEST))

    def metrics_with(secret: str) -> int:
        return client.get("/metrics", headers={"Authorization": f"Bearer {secret}"}).status_code

    refused = client.get("/metrics")
    assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
    assert "spanloop keys create NAME --scope read" in refused.json()["error"]
    assert [metrics_with(secret) for secret in ("nothing", sender, reader)] == [401, 403, 200]
    data_dir.keys.write_text("damaged")
    assert metrics_with(reader) == 503
    assert client.get("/healthz").json()["role"] == "scheduler"


def test_health_names_state_and_reason_and_since_when() -> None:
    status = Status("pipeline")
    status.set("waiting", "no ClickHouse")
    since = status.report()["since"]
    status.set("waiting", "still none")
    assert status.report() | {"spanloop": ""} == {
        "status": "degraded", "role": "pipeline", "spanloop": "", "state": "waiting", "since": since,
        "error": "still none",
    }  # fmt: skip
    status.set("converting")
    assert (status.report()["status"], status.report()["error"]) == ("ok", "")


def test_the_listener_answers_while_its_block_runs(data_dir: DataDir) -> None:
    status, metrics = Status("runner"), make_metrics()
    with serving_status(data_dir, None, status, metrics) as url:
        assert url == ""
    with serving_status(data_dir, StatusAddress("127.0.0.1", 0), status, metrics) as url:
        assert httpx.get(f"{url}/healthz", timeout=60).json()["state"] == "starting"
        taken = StatusAddress("127.0.0.1", int(url.rpartition(":")[2]))
        with (
            pytest.raises(PortInUseError, match=r"runner's status listener cannot listen on 127\.0\.0\.1:"),
            serving_status(data_dir, taken, status, metrics),
        ):
            pass
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/healthz", timeout=60)


def test_the_network_is_refused_without_keys(data_dir: DataDir) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = StatusAddress("0.0.0.0", port)
    with (
        pytest.raises(ConfigurationError, match=r"runner's status listener would listen on 0\.0\.0\.0"),
        serving_status(data_dir, address, Status("runner"), make_metrics()),
    ):
        pass
