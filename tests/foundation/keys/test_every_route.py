"""Every route of every port, from the apps' own tables: 401 without a key, 403 with the wrong scope.

A route that is in no table below fails the test, so that a new one cannot be forgotten. Open are ``/healthz``, and the
dashboard's ``/login`` and ``/logout``.
"""
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportPrivateUsage=false

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import grpc
import httpx
import pytest
from starlette.responses import PlainTextResponse
from starlette.routing import BaseRoute, Mount, Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocketDisconnect
from streamlit.web.server.starlette.starlette_app import create_streamlit_routes

from spanloop.collector import create_app
from spanloop.collector.endpoints import app as collector_app
from spanloop.collector.endpoints import otlp_grpc
from spanloop.collector.endpoints.authentication import Authenticator
from spanloop.collector.health import Health
from spanloop.collector.metrics import Metrics
from spanloop.collector.receiver import Receiver
from spanloop.dashboard.front.app import create_front
from spanloop.dashboard.front.authentication import Authentication
from spanloop.foundation.keys.api_keys import KeyRing
from spanloop.foundation.keys.api_keys import Scope as KeyScope
from spanloop.foundation.keys.users import Role, Users
from spanloop.foundation.paths import DataDir
from spanloop.foundation.settings.roles import CollectorSettings, GatewaySettings, McpSettings
from spanloop.gateway.app import Gateway
from spanloop.mcp_server.service import McpService
from spanloop.spool import Spool

OPEN = {"/healthz", "/readyz", "/login", "/logout"}
COLLECTOR = {
    "/v1/traces": KeyScope.INGEST,
    "/v1/logs": KeyScope.INGEST,
    "/v1/metrics": KeyScope.INGEST,
    "/v1/scores": KeyScope.SCORE,
    "/metrics": KeyScope.READ,
}
MCP = {"/mcp": KeyScope.ASK, "/metrics": KeyScope.READ}
GATEWAY = {
    "/v1/chat/completions": KeyScope.SERVE,
    "/v1/completions": KeyScope.SERVE,
    "/v1/responses": KeyScope.SERVE,
    "/v1/responses/{id}": KeyScope.SERVE,
    "/v1/responses/{id}/input_items": KeyScope.SERVE,
    "/v1/messages": KeyScope.SERVE,
    "/v1/messages/count_tokens": KeyScope.SERVE,
    "/tokenize": KeyScope.SERVE,
    "/detokenize": KeyScope.SERVE,
    "/v1/models": KeyScope.SERVE,
    "/v1/models/{id:path}": KeyScope.SERVE,
    "/metrics": KeyScope.READ,
    "/admin/deploy": KeyScope.TRAIN,
    "/admin/stop": KeyScope.TRAIN,
    "/admin/deployments": KeyScope.TRAIN,
    "/admin/names": KeyScope.TRAIN,
    "/admin/pause": KeyScope.TRAIN,
    "/admin/resume": KeyScope.TRAIN,
    "/admin/metered": KeyScope.TRAIN,
    "/admin/status": KeyScope.TRAIN,
    "/admin/canary": KeyScope.TRAIN,
    "/admin/canary/stop": KeyScope.TRAIN,
}


@pytest.fixture
def secrets(data_dir: DataDir) -> dict[KeyScope, str]:
    """A key of each single scope."""
    ring = KeyRing(data_dir)
    return {scope: ring.create(scope, [scope]).secret for scope in KeyScope}


def calls_of(routes: Iterable[BaseRoute]) -> list[tuple[str, str]]:
    """Method and path of each route that is not open."""
    calls: list[tuple[str, str]] = []
    for route in routes:
        assert isinstance(route, Route), route
        if route.path not in OPEN:
            calls += [(method, route.path) for method in sorted((route.methods or {"GET"}) - {"HEAD", "OPTIONS"})]
    return calls


async def check(
    app: ASGIApp, routes: Iterable[BaseRoute], scopes: dict[str, KeyScope], keys: dict[KeyScope, str]
) -> None:
    calls = calls_of(routes)
    assert {path for _, path in calls} == set(scopes)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:

        async def status(method: str, path: str, authorization: str | None) -> int:
            headers = {} if authorization is None else {"authorization": authorization}
            return (await client.request(method, path, headers=headers, content=b"{}")).status_code

        for method, path in calls:
            for authorization in (None, "", "Bearer ", "Bearer nonsense", f"Basic {keys[KeyScope.ADMIN]}"):
                assert await status(method, path, authorization) == 401, (method, path, authorization)
            for scope, secret in keys.items():
                if scope not in {scopes[path], KeyScope.ADMIN}:
                    assert await status(method, path, f"Bearer {secret}") == 403, (method, path, scope)
        assert (await client.get("/healthz")).status_code == 200


@pytest.fixture
def receiver(data_dir: DataDir, tmp_path: Path) -> Iterator[Receiver]:
    with Spool(tmp_path / "spool", max_bytes=2**20) as spool:
        receiver = Receiver(spool, Metrics(), Health(), CollectorSettings(), Authenticator(KeyRing(data_dir)))
        yield receiver
        receiver.close()


async def test_every_route_of_the_collector(receiver: Receiver, secrets: dict[KeyScope, str]) -> None:
    routes = collector_app._create_starlette_app(receiver).routes
    await check(create_app(receiver), routes, COLLECTOR, secrets)
    assert receiver.spool.stats.records == 0


async def test_every_method_of_the_collectors_grpc(
    receiver: Receiver, secrets: dict[KeyScope, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    methods: list[str] = []
    real = grpc.method_handlers_generic_handler

    def record(service: str, handlers: dict[str, Any]) -> Any:
        methods.extend(f"/{service}/{method}" for method in handlers)
        return real(service, handlers)

    monkeypatch.setattr(grpc, "method_handlers_generic_handler", record)
    async with (
        otlp_grpc.serve_grpc(receiver, "127.0.0.1", 0) as port,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):

        async def code(method: str, secret: str | None) -> str:
            metadata = () if secret is None else (("authorization", f"Bearer {secret}"),)
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await channel.unary_unary(method)(b"", metadata=metadata)
            return str(refused.value.code().name)

        assert len(methods) == 3
        for method in methods:
            assert [await code(method, secret) for secret in (None, "nonsense")] == ["UNAUTHENTICATED"] * 2
            wrong = [secret for scope, secret in secrets.items() if scope not in {KeyScope.INGEST, KeyScope.ADMIN}]
            assert {await code(method, secret) for secret in wrong} == {"PERMISSION_DENIED"}


async def test_every_route_of_the_gateway(data_dir: DataDir, secrets: dict[KeyScope, str]) -> None:
    gateway = Gateway(GatewaySettings(upstream="http://127.0.0.1:9"), data_dir)
    try:
        app = gateway.application()
        await check(app, app.routes, GATEWAY, secrets)
    finally:
        await gateway.recorder.close()
        await gateway.client.aclose()


async def test_every_route_of_the_mcp_server(data_dir: DataDir, secrets: dict[KeyScope, str]) -> None:
    app, guarded = McpService(McpSettings(), data_dir).application()
    await check(guarded, app.routes, MCP, secrets)
    transport = httpx.ASGITransport(guarded)
    async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
        for method in ("POST", "DELETE", "PUT", "OPTIONS"):
            for path in ("/mcp", "/mcp/", "/", "/anything"):
                assert (await client.request(method, path)).status_code == 401, (method, path)


async def _pages(scope: Scope, receive: Receive, send: Send) -> None:
    await PlainTextResponse("a page")(scope, receive, send)


def test_every_route_of_the_dashboard(data_dir: DataDir, secrets: dict[KeyScope, str]) -> None:
    Users(data_dir).create("ann", Role.OPERATOR, "four random words")
    front = create_front(data_dir, Authentication(data_dir, host="127.0.0.1", port=1, proxy=None), _pages)
    own = [route for route in front.routes if not isinstance(route, Mount)]
    assert {path for _, path in calls_of(own)} == {"/metrics"}
    pages = create_streamlit_routes(MagicMock())
    sockets = [route.path for route in pages if isinstance(route, WebSocketRoute)]
    paths = {path.replace("{", "").replace("}", "") for path in (getattr(route, "path", "/") for route in pages)}
    assert {"/_stcore/stream"} == {*sockets}
    assert {"/_stcore/health", "/_stcore/host-config"} < paths
    client = TestClient(front, base_url="http://localhost", follow_redirects=False)
    for path in [*paths, "/", "/jobs", "/any/thing"]:
        for method in ("GET", "PUT"):
            assert client.request(method, path or "/").status_code == 401, (method, path)
            for secret in (secrets[KeyScope.READ], secrets[KeyScope.ADMIN]):
                headers = {"authorization": f"Bearer {secret}"}
                assert client.request(method, path or "/", headers=headers).status_code == 403, (method, path)
    for path in sockets:
        with pytest.raises(WebSocketDisconnect), client.websocket_connect(path):
            pass
    assert client.get("/metrics").status_code == 401
    for scope, status in ((KeyScope.INGEST, 403), (KeyScope.READ, 200)):
        assert client.get("/metrics", headers={"authorization": f"Bearer {secrets[scope]}"}).status_code == status
