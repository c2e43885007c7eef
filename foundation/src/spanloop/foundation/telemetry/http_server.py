"""Run uvicorn in a role's process: signals end it with status 0, and it is announced once it listens."""

import asyncio
import contextlib
import signal
import socket
from collections.abc import Generator
from typing import Final

import uvicorn

from spanloop.foundation.errors import ServiceError

_POLL_S: Final = 0.01


class HttpServer(uvicorn.Server):
    """Uvicorn with its own signal handlers replaced, since those end the process by the signal, not with status 0."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Let SIGTERM and SIGINT end the server, not the process."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, setattr, self, "should_exit", True)
        yield


async def start_server(server: uvicorn.Server, role: str, listener: socket.socket | None = None) -> asyncio.Task[None]:
    """Start a server; return the task that serves, once the server listens.

    Args:
        server: The server.
        role: Its name in messages.
        listener: The socket; None is the address of the server's configuration.

    Raises:
        ServiceError: The server ended before it listened.
    """
    serving = asyncio.create_task(server.serve(sockets=None if listener is None else [listener]))
    while not server.started:
        if serving.done():
            await serving
            raise ServiceError(f"The {role}'s HTTP server ended before it started to listen.")
        await asyncio.sleep(_POLL_S)
    return serving
