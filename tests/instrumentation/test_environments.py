"""``environment()`` over HTTP, against servers of other kinds."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from spanloop.instrumentation.environments import environment

ANSWERS: dict[str, dict[str, Any]] = {
    "reset": {"session": "s", "observation": "start", "tools": [], "takes_messages": True},
    "step": {"observation": "on", "reward": 0.5, "done": False},
    "close": {},
}


class Impatient(BaseHTTPRequestHandler):
    """Closes each connection after its answer without saying so, as a server does with one that is idle for long."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        body = json.dumps(ANSWERS[self.path.rpartition("/")[2]]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
        """Write nothing."""


def test_an_episode_goes_on_after_its_server_closed_an_idle_connection() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Impatient) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            with environment(f"http://127.0.0.1:{server.server_port}") as world:
                answers = [world.say("hello") for _ in range(3)]
        finally:
            server.shutdown()
            thread.join()
    assert [each.text for each in answers] == ["on"] * 3
    assert world.reward == 1.5
