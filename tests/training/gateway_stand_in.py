"""A stand-in for the gateway's admin API that records requests."""

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from spanloop.foundation.paths import DataDir

TOKEN = "s3cret"


class GatewayStandIn(ThreadingHTTPServer):
    """``state`` is the engine's; ``refusals`` maps an endpoint to what it is answered instead."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.state = "serving"
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.refusals: dict[str, tuple[int, str]] = {}
        self.served = ""
        """``name@version`` that was deployed last."""
        self.beside: list[str] = []
        """Versions that are served beside it."""
        self.tokens = 0
        """Captured since the start."""
        self.canary: dict[str, Any] | None = None
        """The canary that runs, as the gateway tells it."""
        self.answer = "ok"
        """The model's answer to every question."""

    @property
    def paths(self) -> list[str]:
        """Which endpoints were asked; repeated ones once."""
        names = [path for path, _ in self.asked]
        return [name for index, name in enumerate(names) if index == 0 or names[index - 1] != name]


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        gateway = self.server
        assert isinstance(gateway, GatewayStandIn)
        if self.path == "/v1/chat/completions":
            return self._chat(gateway)
        assert self.headers["Authorization"] == f"Bearer {TOKEN}"
        path = self.path.removeprefix("/admin/")
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        gateway.asked.append((path, body))
        status, text = gateway.refusals.get(path, (200, ""))
        if status == 200 and path == "metered":
            text = json.dumps({"tokens": gateway.tokens, "refused": 0})
        elif status == 200 and path == "canary":
            candidate = f"{body['name']}@{body['version']}"
            canary = {"id": "c1", "candidate": candidate, "champion": gateway.served, "share": body["share"]}
            mode = "shadow" if body["is_shadow"] else "sessions"
            text = json.dumps({"canary": {**canary, "mode": mode, "started_s": 0.0}})
        elif status == 200:
            gateway.state = {"pause": "paused", "resume": "starting"}.get(path, "serving")
            if path == "deploy":
                gateway.served = f"{body['name']}@{body['version']}"
            text = json.dumps({"state": gateway.state})
        return self._send(status, text)

    def _chat(self, gateway: GatewayStandIn) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        message = {"role": "assistant", "content": gateway.answer}
        choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        reply = {"id": "r", "object": "chat.completion", "created": 1, "model": gateway.served}
        self._send(200, json.dumps({**reply, "choices": choices, "usage": usage}))

    def _send(self, status: int, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        gateway = self.server
        assert isinstance(gateway, GatewayStandIn)
        models = {"data": [{"id": gateway.served}] if gateway.served else []}
        status = {"served": [*filter(None, [gateway.served]), *gateway.beside]}
        health = {"restarts": 0, "captures": {"waiting_bytes": 0}, "spool": {"records": 0}}
        self.send_response(200)
        self.end_headers()
        if self.path == "/metrics":
            text = f'spanloop_gateway_tokens_total{{kind="prompt"}} {gateway.tokens}\n'
        else:
            canary = {"canary": gateway.canary, "engine": "serving", "error": ""}
            documents = {"/v1/models": models, "/admin/status": status, "/admin/canary": canary}
            text = json.dumps(documents.get(self.path, health))
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing."""


@contextmanager
def gateway_stand_in(data_dir: DataDir) -> Generator[GatewayStandIn]:
    """One that runs on the data directory."""
    data_dir.write(data_dir.gateway / "admin.token", TOKEN)
    with GatewayStandIn() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            with data_dir.announce("gateway", f"http://127.0.0.1:{server.server_address[1]}"):
                yield server
        finally:
            server.shutdown()
            thread.join()
