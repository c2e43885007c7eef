"""Receivers of alerts on this machine: a web server that records what is posted, and a mail server."""

import json
import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Posts:
    """A web server's requests, in order."""

    url: str = ""
    status: int = 200
    """What it answers."""
    documents: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    authorizations: list[str] = field(default_factory=list[str])
    arrived: threading.Event = field(default_factory=threading.Event)


@contextmanager
def web_receiver() -> Generator[Posts]:
    """Run a web server while the block runs."""
    posts = Posts()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            posts.documents.append(json.loads(body))
            posts.authorizations.append(self.headers.get("Authorization", ""))
            self.send_response(posts.status)
            self.send_header("Content-Length", "0")
            self.end_headers()
            posts.arrived.set()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in the standard library
            del format, args

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        posts.url = f"http://127.0.0.1:{server.server_port}/hook/of-a-secret-address"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield posts
        server.shutdown()


@dataclass
class Mails:
    """A mail server's commands and the mails that it took."""

    port: int = 0
    recipient_code: int = 250
    """What it answers to a recipient."""
    commands: list[str] = field(default_factory=list[str])
    mails: list[str] = field(default_factory=list[str])


@contextmanager
def mail_receiver() -> Generator[Mails]:
    """Run a mail server that takes mail without encryption, and any password."""
    mails = Mails()

    def serve(listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection, connection.makefile("rwb") as stream:
                _talk(stream, mails)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        mails.port = listener.getsockname()[1]
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        yield mails
        listener.shutdown(socket.SHUT_RDWR)


def _talk(stream: Any, mails: Mails) -> None:
    def answer(*lines: str) -> None:
        stream.write("".join(f"{line}\r\n" for line in lines).encode())
        stream.flush()

    answer("220 test")
    for raw in stream:
        command = raw.decode().strip()
        mails.commands.append(command)
        verb = command.partition(" ")[0].upper()
        if verb == "EHLO":
            answer("250-test", "250 AUTH PLAIN")
        elif verb == "AUTH":
            answer("235 welcome")
        elif verb == "RCPT":
            answer(f"{mails.recipient_code} recipient")
        elif verb == "DATA":
            answer("354 go on")
            lines = iter(stream.readline, b".\r\n")
            mails.mails.append(b"".join(lines).decode())
            answer("250 taken")
        elif verb == "QUIT":
            answer("221 bye")
            return
        else:
            answer("250 fine")
