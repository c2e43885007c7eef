"""The gateway that the setting ``follow`` names. It may be this one, so that all hosts can have the same settings."""

import asyncio
import contextlib
import socket
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from ..api_errors import ApiError


class Leader:
    """The gateway where deployments are made.

    Args:
        url: Its URL; empty when this gateway follows none.
        port: The port of this gateway.
    """

    def __init__(self, url: str, port: int) -> None:
        self.url: Final = url.rstrip("/")
        self._port = port
        self._is_this = not url

    @property
    def is_this(self) -> bool:
        """Whether it is this gateway, as far as is known; False until `find_out` could resolve its name."""
        return self._is_this

    async def find_out(self) -> bool:
        """Find out whether the URL names this gateway: an address of this machine, and this gateway's port."""
        if not self._is_this:
            self._is_this = await asyncio.to_thread(_names_this_machine, self.url, self._port)
        return self._is_this

    def check_leads(self) -> None:
        """Check that deployments are made here; ApiError: this gateway follows another one (409)."""
        if not self._is_this:
            message = f"This gateway follows {self.url}: send the request to that one."
            raise ApiError(HTTPStatus.CONFLICT, message, code="follows_another")


def _names_this_machine(url: str, port: int) -> bool:
    parts = urlsplit(url)
    if (parts.port or (443 if parts.scheme == "https" else 80)) != port:
        return False
    try:
        addresses = socket.getaddrinfo(parts.hostname, 0, type=socket.SOCK_DGRAM)
    except OSError:
        return False  # a name that does not exist yet, as of a pod that starts
    for family, kind, protocol, _, address in addresses:
        with contextlib.suppress(OSError), socket.socket(family, kind, protocol) as probe:
            probe.bind(address)  # fails unless it is an address of this machine
            return True
    return False
