"""Ports for servers that need a fixed port."""

import random
import socket
from typing import Final

_BELOW_EPHEMERAL_PORTS: Final = range(20_000, 32_000)
"""Linux assigns ephemeral ports from 32768 on: a port of this range is still free when its server starts."""


def free_port() -> int:
    """Return an unused port outside the ephemeral range."""
    while True:
        port = random.choice(_BELOW_EPHEMERAL_PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
