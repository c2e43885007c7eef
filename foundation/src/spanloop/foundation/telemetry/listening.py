"""Listening sockets of services, with errors that name the next step."""

import errno
import socket
from typing import Final

from spanloop.foundation.errors import PortInUseError, ServiceError

_BACKLOG: Final = 2048


def listen(service: str, host: str, port: int, option: str) -> socket.socket:
    """Return a listening socket; connections are queued until the server accepts them.

    Args:
        service: Its name in messages.
        host: An address of this machine.
        port: 0 lets the system choose.
        option: The command-line option that chooses another port.

    Raises:
        PortInUseError: Another process listens on the port.
        ServiceError: The address is not one of this machine, or the port needs privileges.
    """
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # asyncio sets it only on sockets with an explicit protocol; without it every response waits 40 ms for an ACK.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        where = f"{host}:{port}"
        if error.errno == errno.EADDRINUSE:
            raise PortInUseError(
                f"The {service} cannot listen on {where}: another process does.",
                next_step=f"Stop it (`ss -ltnp 'sport = :{port}'` shows which), or choose another port with {option}.",
            ) from error
        raise ServiceError(
            f"The {service} cannot listen on {where}: {error.strerror}.",
            next_step=f"Choose another address with --host, or another port with {option}.",
        ) from error
    return listener
