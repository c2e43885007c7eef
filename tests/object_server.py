"""An S3 server (moto, a process of its own) behind a proxy that injects faults."""

import http.client
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, cast

import fsspec  # pyright: ignore[reportMissingTypeStubs] - it ships no type information
import pytest

from spanloop.foundation.objects import open_store
from spanloop.semconv.environment import STORAGE_URL_ENV

BUCKET = "spanloop-test"
_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length"}


class Fault(StrEnum):
    """What goes wrong with a request."""

    SERVER_ERROR = "500"
    RESET = "the connection is reset before the server sees the request"
    SLOW = "the answer is late"
    TRUNCATED = "the body ends in the middle"
    FLIPPED = "a byte of the body is another one"
    LOST = "the server has carried the request out, and its answer is lost"


class Rule(NamedTuple):
    """Which requests a fault meets."""

    fault: Fault
    request: str
    """Regular expression of ``METHOD /path?query``."""


class FaultyProxy(ThreadingHTTPServer):
    """Forwards requests to a server, and lets some of them fail."""

    daemon_threads = True

    def __init__(self, server_port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream_port = server_port
        self.rules: list[Rule] = []
        """The first rule that matches a request is used up by it."""
        self.requests: list[str] = []
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def fail(self, fault: Fault, request: str, times: int = 1) -> None:
        self.rules += [Rule(fault, request)] * times

    def take(self, request: str) -> Fault | None:
        with self._lock:
            self.requests.append(request)
            rule = next((rule for rule in self.rules if re.search(rule.request, request)), None)
            if rule is not None:
                self.rules.remove(rule)
        return None if rule is None else rule.fault

    def sent(self, request: str) -> list[str]:
        """The requests so far that match."""
        return [each for each in self.requests if re.search(request, each)]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: clients of these tests go away."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def _proxy(self) -> FaultyProxy:
        return cast("FaultyProxy", self.server)

    def _forward(self) -> None:
        body = self._body()
        fault = self._proxy.take(f"{self.command} {self.path}")
        if fault is Fault.RESET:
            self._reset()
            return
        if fault is Fault.SERVER_ERROR:
            self._answer(500, {}, b"<Error><Code>InternalError</Code></Error>")
            return
        upstream = http.client.HTTPConnection("127.0.0.1", self._proxy.upstream_port, timeout=60)
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP_BY_HOP - {"host"}}
        upstream.request(self.command, self.path, body=body, headers=headers)
        answer = upstream.getresponse()
        content = answer.read()
        upstream.close()
        if fault is Fault.LOST:
            self._reset()
            return
        if fault is Fault.SLOW:
            time.sleep(0.5)
        if fault is Fault.FLIPPED and content:
            content = bytes([content[0] ^ 1]) + content[1:]
        headers = {name: value for name, value in answer.getheaders() if name.lower() not in _HOP_BY_HOP}
        length = answer.getheader("content-length") if self.command == "HEAD" else None
        self._answer(answer.status, headers, content, length=length, cut=fault is Fault.TRUNCATED)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _forward  # noqa: N815 - names of the standard library

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("transfer-encoding", ""):
            return self.rfile.read(int(self.headers.get("content-length", 0)))
        parts: list[bytes] = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _answer(
        self, status: int, headers: dict[str, str], content: bytes, *, length: str | None = None, cut: bool = False
    ) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", length or str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if cut else content)
        if cut:
            self._reset()

    def _reset(self) -> None:
        self.close_connection = True
        self.wfile.flush()
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        self.connection.close()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - name of the standard library
        """Print nothing."""


class ObjectServer(NamedTuple):
    """A running server."""

    proxy: FaultyProxy
    environment: dict[str, str]
    """What a client's process needs."""

    def url(self, prefix: str) -> str:
        return f"s3://{BUCKET}/{prefix}"

    @contextmanager
    def used(self, prefix: str) -> Generator[str]:
        """Let this process, and all that it starts, store objects below the URL that is yielded."""
        url = self.url(prefix)
        with pytest.MonkeyPatch.context() as patch:
            for name, value in (self.environment | {STORAGE_URL_ENV: url}).items():
                patch.setenv(name, value)
            self.proxy.requests.clear()
            yield url
        self.proxy.rules.clear()


def forget_clients() -> None:
    """Let this process read the environment of the storage's client again."""
    open_store.cache_clear()
    untyped: Any = fsspec
    untyped.get_filesystem_class("s3").clear_instance_cache()


@contextmanager
def object_server(*, least_part_bytes: int = 64 * 1024) -> Generator[ObjectServer]:
    """An S3 server with one bucket; its parts of an upload may be small."""
    port = _free_port()
    credentials = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        env=os.environ | credentials | {"S3_UPLOAD_PART_MIN_SIZE": str(least_part_bytes)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _make_bucket(port, process)
        forget_clients()  # of another server
        proxy = FaultyProxy(port)
        thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield ObjectServer(proxy, credentials | {"AWS_ENDPOINT_URL": proxy.url})
        finally:
            proxy.shutdown()
            proxy.server_close()
            thread.join()
    finally:
        process.kill()
        process.wait()


def _make_bucket(port: int, process: "subprocess.Popen[bytes]") -> None:
    headers = {"Authorization": "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request"}
    deadline_s = time.monotonic() + 60
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        try:
            connection.request("PUT", f"/{BUCKET}", headers=headers)
            status = connection.getresponse().status
        except OSError:
            assert process.poll() is None, "moto ended"
            assert time.monotonic() < deadline_s, "moto did not start"
            time.sleep(0.05)
        else:
            assert status == 200
            return
        finally:
            connection.close()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
