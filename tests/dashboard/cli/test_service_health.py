"""Reading the services' health pages."""

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

from spanloop.foundation.paths import DataDir
from spanloop.runtime import service_health


@contextmanager
def service(data_dir: DataDir, name: str, health: dict[str, Any]) -> Generator[None]:
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(health).encode())

        def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002 (the base names it so)

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        with data_dir.announce(name, f"http://127.0.0.1:{server.server_port}"):
            yield
        server.shutdown()
        thread.join()


def test_what_is_served_and_what_waits(tmp_path: Path) -> None:
    data_dir = DataDir(tmp_path).open()
    gateway = {
        "engine": "serving",
        "model": "tiny",
        "version": "v2",
        "error": "",
        "engines": [{"model": "tiny@v2", "state": "serving"}, {"model": "other@v1", "state": "starting"}],
        "captures": {"waiting_bytes": 7, "oldest_age_s": 1.5},
    }
    with service(data_dir, "gateway", gateway):
        states = {"tiny@v2": "serving", "other@v1": "starting"}
        expected = service_health.GatewayHealth("serving", "tiny@v2", "", 7, 1.5, states)
        assert service_health.gateway_health(data_dir) == expected
    with service(data_dir, "gateway", gateway | {"model": "", "version": ""}):
        gateway_health = service_health.gateway_health(data_dir)
        assert gateway_health is not None
        assert not gateway_health.model
    collector = {"spool": {"bytes": 12, "oldest_age_s": 3.5}, "store": "down"}
    with service(data_dir, "collector", collector):
        assert service_health.spool_health(data_dir) == service_health.SpoolHealth(12, 3.5, "down")


def test_nothing_is_known_of_a_service_that_does_not_answer(tmp_path: Path) -> None:
    data_dir = DataDir(tmp_path).open()
    assert service_health.gateway_health(data_dir) is None
    with data_dir.announce("collector", "http://127.0.0.1:9"):
        assert service_health.spool_health(data_dir) is None
