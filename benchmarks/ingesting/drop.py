"""The collector's own HTTP server with an app that reads each body and drops it: the most that the server could do."""

import socket
import sys

import uvicorn
from starlette.types import Receive, Scope, Send

from spanloop.collector.endpoints.connections import uvicorn_config


async def drop(_: Scope, receive: Receive, send: Send) -> None:
    """Read to the end, and answer what a collector answers."""
    while (await receive()).get("more_body", False):
        pass
    headers = [(b"content-type", b"application/x-protobuf"), (b"content-length", b"0")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


if __name__ == "__main__":
    with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as listener:
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # as the collector's
        uvicorn.Server(uvicorn_config(drop)).run(sockets=[listener])
