"""API keys on the gateway's chat routes, and the addresses it listens on without them."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from spanloop.foundation.keys.api_keys import KeyRing, Scope
from spanloop.foundation.keys.local_tokens import serve_token
from spanloop.foundation.paths import DataDir
from spanloop.foundation.settings import KeyLimits, Limits
from spanloop.gateway.__main__ import main

from .support import TIMEOUT_S, Process, RunningGateway, StandIn, wait_until

CHAT = {"messages": [{"role": "user", "content": "hi"}]}


def statuses(url: str, secret: str = "") -> dict[str, int]:
    headers = {"Authorization": f"Bearer {secret}"} if secret else {}
    with httpx.Client(base_url=url, headers=headers, timeout=TIMEOUT_S) as client:
        chat = client.post("/v1/chat/completions", json=CHAT)
        others = {path: client.get(path).status_code for path in ("/v1/models", "/metrics", "/healthz")}
    return {"chat": chat.status_code, **others}


def test_without_keys_every_request_is_answered(gateway: RunningGateway) -> None:
    assert set(statuses(gateway.url).values()) == {200}
    assert set(statuses(gateway.url, "anything").values()) == {200}


def test_from_the_first_key_on_chat_needs_the_scope_serve(gateway: RunningGateway) -> None:
    ring = KeyRing(gateway.data_dir)
    serve, read, ingest, admin = (
        ring.create(scope, [scope]).secret for scope in (Scope.SERVE, Scope.READ, Scope.INGEST, Scope.ADMIN)
    )
    assert statuses(gateway.url) == {"chat": 401, "/v1/models": 401, "/metrics": 401, "/healthz": 200}
    assert statuses(gateway.url, serve) == {"chat": 200, "/v1/models": 200, "/metrics": 403, "/healthz": 200}
    assert statuses(gateway.url, read) == {"chat": 403, "/v1/models": 403, "/metrics": 200, "/healthz": 200}
    assert set(statuses(gateway.url, ingest).values()) == {403, 200}
    assert set(statuses(gateway.url, admin).values()) == {200}
    ring.revoke("serve")
    assert statuses(gateway.url, serve)["chat"] == 401


def test_the_error_names_the_command_that_makes_a_key(gateway: RunningGateway) -> None:
    KeyRing(gateway.data_dir).create("laptop", [Scope.INGEST])
    error = httpx.post(f"{gateway.url}/v1/chat/completions", json=CHAT, timeout=TIMEOUT_S).json()["error"]
    assert (error["type"], error["code"]) == ("authentication_error", "invalid_api_key")
    assert "spanloop keys create NAME --scope serve" in error["message"]


def test_a_key_is_checked_before_the_body_and_never_reaches_the_engine(
    gateway: RunningGateway, stand_in: StandIn
) -> None:
    secret = KeyRing(gateway.data_dir).create("app", [Scope.SERVE]).secret
    refused = httpx.post(f"{gateway.url}/v1/chat/completions", content=b"no json", timeout=TIMEOUT_S)
    assert refused.status_code == 401
    assert stand_in.requests[1:] == []
    assert gateway.chat(headers={"Authorization": f"Bearer {secret}"}).status_code == 200
    assert "authorization" not in stand_in.headers[-1]


def test_the_token_of_the_data_directory_serves_the_users_own_processes(gateway: RunningGateway) -> None:
    KeyRing(gateway.data_dir).create("laptop", [Scope.INGEST])
    token = serve_token(gateway.data_dir)
    assert (gateway.data_dir.gateway / "serve.token").stat().st_mode & 0o777 == 0o600
    assert statuses(gateway.url, token)["chat"] == 200
    admin = httpx.get(f"{gateway.url}/admin/status", headers={"Authorization": f"Bearer {token}"}, timeout=TIMEOUT_S)
    assert admin.status_code == 401


def test_unreadable_keys_refuse_every_request(gateway: RunningGateway) -> None:
    secret = KeyRing(gateway.data_dir).create("app", [Scope.SERVE]).secret
    gateway.data_dir.keys.write_text("broken")
    assert statuses(gateway.url, secret)["chat"] == 503


def test_beyond_loopback_it_needs_keys_or_the_flag(
    data_dir: DataDir, upstream: str, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--host", "0.0.0.0", "--upstream", upstream]
    assert main(["--data-dir", str(data_dir.path), "--port", "0", *arguments]) == 2
    refusal = capfd.readouterr().err
    assert "The gateway would listen on 0.0.0.0, beyond this machine, and there are no API keys." in refusal
    assert "spanloop keys create NAME --scope serve" in refusal
    open_to_all = Process(data_dir, *arguments, "--allow-anonymous")
    assert open_to_all.url.startswith("http://127.0.0.1:")
    assert statuses(open_to_all.url)["/v1/models"] == 200
    open_to_all.stop()
    KeyRing(data_dir).create("app", [Scope.SERVE])
    with_keys = Process(data_dir, *arguments)
    assert statuses(with_keys.url)["/v1/models"] == 401
    with_keys.stop()


def test_a_key_is_held_to_its_limits(start_gateway: Callable[..., RunningGateway], upstream: str) -> None:
    limits = Limits(requests_per_s=1, keys={"big": KeyLimits(requests_per_s=1000, body_bytes=200)})
    gateway = start_gateway(upstream=upstream, limits=limits)
    wait_until(lambda: gateway.health()["engine"] == "serving")
    ring = KeyRing(gateway.data_dir)
    app, big = ({"Authorization": f"Bearer {ring.create(name, [Scope.SERVE]).secret}"} for name in ("app", "big"))
    assert gateway.chat(headers=app).status_code == 200
    limited = gateway.chat(headers=app)
    assert limited.status_code == 429
    assert int(limited.headers["retry-after"]) >= 1
    assert limited.json()["error"]["code"] == "rate_limit_exceeded"
    own = {"Authorization": f"Bearer {serve_token(gateway.data_dir)}"}
    for headers in (big, own):
        assert [gateway.chat(headers=headers).status_code for _ in range(3)] == [200] * 3
    too_large = gateway.chat(headers=big, messages=[{"role": "user", "content": "x" * 200}])
    assert too_large.status_code == 413


def test_a_response_in_progress_counts_until_its_end(
    start_gateway: Callable[..., RunningGateway], upstream: str, stand_in: StandIn
) -> None:
    gateway = start_gateway(upstream=upstream, limits=Limits(concurrent_requests=1))
    wait_until(lambda: gateway.health()["engine"] == "serving")
    headers = {"Authorization": f"Bearer {KeyRing(gateway.data_dir).create('app', [Scope.SERVE]).secret}"}
    stand_in.paused = True
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(gateway.chat, headers=headers)
        wait_until(lambda: gateway.health()["running_requests"] == 1)
        second = gateway.chat(headers=headers)
        stand_in.paused = False
        assert first.result().status_code == 200
    assert (second.status_code, second.headers["retry-after"]) == (503, "1")
    assert gateway.chat(headers=headers).status_code == 200
    assert httpx.post(f"{gateway.url}/v1/chat/completions", content=b"{", headers=headers).status_code == 400
    assert gateway.chat(headers=headers).status_code == 200
