"""API keys and scopes on every route of the collector."""
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

import subprocess
import sys

import grpc
import pytest

from spanloop.collector.endpoints.authentication import Authenticator
from spanloop.collector.endpoints.otlp_grpc import serve_grpc
from spanloop.foundation.keys.api_keys import KeyRing, Scope
from spanloop.foundation.paths import DataDir

from .collectors import App, Launcher, trace_request

BODY = trace_request(1).SerializeToString()
SCORE = b'{"value": 1, "session_id": "s"}'
ROUTES = [
    ("POST", "/v1/traces", BODY, "application/x-protobuf", Scope.INGEST),
    ("POST", "/v1/logs", b"", "application/x-protobuf", Scope.INGEST),
    ("POST", "/v1/scores", SCORE, "application/json", Scope.SCORE),
    ("GET", "/metrics", b"", "", Scope.READ),
]
TRACES = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


@pytest.fixture
def ring(app: App, data_dir: DataDir) -> KeyRing:
    """The keys that the app asks for; none is made yet."""
    key_ring = KeyRing(data_dir)
    app.receiver.authenticator = Authenticator(key_ring)
    return key_ring


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route[1])
async def test_every_route_requires_a_key_with_its_scope(
    app: App, ring: KeyRing, route: tuple[str, str, bytes, str, Scope]
) -> None:
    method, path, body, content_type, scope = route

    async def status(key: str | None) -> int:
        headers = {"content-type": content_type} | ({} if key is None else {"authorization": f"Bearer {key}"})
        response = await app.client.request(method, path, content=body, headers=headers)
        assert (response.headers.get("www-authenticate") == "Bearer") == (response.status_code == 401)
        return response.status_code

    assert await status(None) == 200
    good = ring.create("good", [scope]).secret
    other_key = ring.create("other", [item for item in Scope if item not in {scope, Scope.ADMIN}]).secret
    stored_count = len(app.spooled())
    assert [await status(key) for key in (None, "", "nonsense", other_key)] == [401, 401, 401, 403]
    assert len(app.spooled()) == stored_count
    assert await status(good) == 200
    ring.revoke("good")
    assert await status(good) == 401


async def test_grpc_requires_a_key_with_its_scope(app: App, ring: KeyRing) -> None:
    secret = ring.create("good", [Scope.INGEST]).secret
    other_key = ring.create("other", [Scope.READ]).secret
    async with (
        serve_grpc(app.receiver, "127.0.0.1", 0) as port,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        export = channel.unary_unary(TRACES)
        for metadata, code in (
            ((), "UNAUTHENTICATED"),
            ((("authorization", f"Bearer {other_key}"),), "PERMISSION_DENIED"),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await export(BODY, metadata=metadata)
            assert refused.value.code().name == code
        assert app.spooled() == []
        assert await export(BODY, metadata=(("authorization", f"bearer {secret}"),)) == b""
    assert len(app.spooled()) == 1


async def test_unreadable_keys_refuse_every_request(app: App, ring: KeyRing, data_dir: DataDir) -> None:
    secret = ring.create("good", [Scope.INGEST]).secret
    data_dir.keys.write_text("broken")
    response = await app.post(BODY, authorization=f"Bearer {secret}")
    assert response.status_code == 503
    assert app.spooled() == []


def test_beyond_loopback_it_needs_keys_or_the_flag(data_dir: DataDir, launch: Launcher) -> None:
    command = [sys.executable, "-m", "spanloop.collector", "--data-dir", str(data_dir.path), "--port", "0"]
    completed = subprocess.run([*command, "--host", "0.0.0.0"], capture_output=True, text=True, timeout=60, check=False)
    assert completed.returncode == 2
    assert "there are no API keys" in completed.stderr
    assert "spanloop keys create" in completed.stderr
    collector = launch("", 0, "--host", "0.0.0.0", "--allow-anonymous", "--no-grpc")
    assert collector.post(BODY).status_code == 200
    collector.terminate()
    secret = KeyRing(data_dir).create("good", [Scope.INGEST]).secret
    collector = launch("", 0, "--host", "0.0.0.0", "--no-grpc")
    assert collector.post(BODY).status_code == 401
    assert collector.post(BODY, authorization=f"Bearer {secret}").status_code == 200
    assert collector.health()
    collector.terminate()
    assert secret not in collector.log.read_text()
