"""Ports for servers that have to be told theirs."""

import random
import socket
from typing import Final

_BELOW_WHAT_SYSTEMS_HAND_OUT: Final = range(20_000, 32_000)
"""Linux gives whoever asks for any port one from 32768 on: a port from here is still free when its server starts."""


def free_port() -> int:
    """One that nobody listens on, and that nobody is given by chance."""
    while True:
        port = random.choice(_BELOW_WHAT_SYSTEMS_HAND_OUT)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
