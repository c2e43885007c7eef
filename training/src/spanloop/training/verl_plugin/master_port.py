"""The master port of a job: rank 0 listens on it for the other ranks (MASTER_PORT of torch)."""

import random
import socket
from contextlib import suppress
from pathlib import Path
from typing import Final

_LOWEST: Final = 20_000
"""Lower ports belong to services and to Ray's workers."""
_TRIES: Final = 100
_ANY: Final = 0
_OUTGOING: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
"""The range of which the kernel gives ports to outgoing connections, and to whoever binds port 0."""


def free_port() -> int:
    """Return a free port of this host.

    Rank 0 binds it seconds later, after its imports. No outgoing connection takes it until then: it lies below their
    range, and where that range leaves none, it is any free port.
    """
    try:
        highest = int(_OUTGOING.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        highest = 0
    apart = range(_LOWEST, highest)
    chosen = random.SystemRandom().sample(apart, min(_TRIES, len(apart)))
    for port in (*chosen, _ANY):
        with socket.socket() as probe, suppress(OSError):  # it is taken
            probe.bind(("", port))
            return int(probe.getsockname()[1])
    raise OSError("this host has no free port")
