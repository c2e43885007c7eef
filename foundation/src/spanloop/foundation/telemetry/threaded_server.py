"""An HTTP server in a thread of a process that has other work.

Invariant: the server listens when the block begins, and its thread has ended when the block ends.
"""

import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

import uvicorn

from spanloop.foundation.errors import ServiceError

_POLL_S: Final = 0.005


@contextmanager
def serving_in_thread(server: uvicorn.Server, listener: socket.socket, *, name: str) -> Generator[None]:
    """Serve on a listening socket while the block runs.

    Args:
        server: Not started yet.
        listener: Its socket.
        name: Of the thread, and in errors.

    Raises:
        ServiceError: It ended before it listened.
    """
    thread = threading.Thread(target=server.run, args=([listener],), name=name, daemon=True)
    thread.start()
    while not server.started:
        if not thread.is_alive():
            raise ServiceError(f"The {name} listener ended before it listened.")
        thread.join(_POLL_S)
    try:
        yield
    finally:
        server.should_exit = True
        thread.join()
