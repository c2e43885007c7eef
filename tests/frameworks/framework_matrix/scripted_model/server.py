"""A model on a loopback port that speaks seven APIs and plays `script`."""

import json
import re
import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import ModuleType
from typing import Any, Final
from urllib.parse import urlsplit

from . import anthropic, bedrock, chat, cohere, gemini, responses
from .script import MODEL, decide

_APIS: Final[tuple[tuple[str, ModuleType], ...]] = (
    (r"/chat/completions$", chat),
    (r"/responses$", responses),
    (r"/v1/messages$", anthropic),
    (r":(?:stream)?[gG]enerateContent$", gemini),
    (r"/v2/chat$", cohere),
    (r"/converse(?:-stream)?$", bedrock),
)
_STREAMING_PATHS: Final = (":streamGenerateContent", "/converse-stream")
_CARD: Final = {"id": MODEL, "object": "model", "created": 0, "owned_by": "scripted"}
_REFUSED: Final = {"message": "the script refuses this request", "type": "invalid_request_error", "code": "refused"}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._respond(200, "application/json", json.dumps({"object": "list", "data": [_CARD]}).encode())

    def do_POST(self) -> None:
        content = self._body()
        path = urlsplit(self.path).path
        api: Any = next((module for pattern, module in _APIS if re.search(pattern, path)), None)
        if api is None:
            self._respond(404, "application/json", json.dumps({"error": {"message": f"no API at {path}"}}).encode())
            return
        body: dict[str, Any] = json.loads(content)
        conversation = api.read(body)
        reply = decide(conversation)
        if reply.status != 200:
            error = {"type": "error", "error": _REFUSED, "message": _REFUSED["message"]}
            self._respond(reply.status, "application/json", json.dumps(error).encode())
        elif conversation.is_stream or path.endswith(_STREAMING_PATHS):
            is_binary = api is bedrock
            kind = "application/vnd.amazon.eventstream" if is_binary else "text/event-stream"
            encode: Callable[[Iterable[tuple[str, Any]]], bytes] = bedrock.event_stream if is_binary else _sse
            self._respond(200, kind, encode(api.stream(body, reply)))
        else:
            self._respond(200, "application/json", json.dumps(api.answer(body, reply)).encode())

    def _body(self) -> bytes:
        if self.headers.get("transfer-encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("content-length", "0")))
        parts: list[bytes] = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _respond(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.send_header("connection", "close")  # a client may use its pool in a second event loop
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name of the overridden parameter
        del format, args


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that end during a response."""


def _sse(events: Iterable[tuple[str, Any]]) -> bytes:
    lines: list[str] = []
    for name, values in events:
        data = values if isinstance(values, str) else json.dumps(values)
        lines.append((f"event: {name}\n" if name else "") + f"data: {data}\n\n")
    return "".join(lines).encode()


@contextmanager
def scripted_model() -> Generator[str]:
    """Serve on a free loopback port, and yield the server's URL."""
    server = _Server(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
