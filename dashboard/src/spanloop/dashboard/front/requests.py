"""What the front reads from a request: the client's address, its cookies, and whether another site sent it."""

import ipaddress
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

from spanloop.foundation.settings import TrustedProxy

_LOCAL_NAMES: Final = frozenset({"localhost"})


class FrontRequest:
    """A request, or the handshake of a WebSocket, as seen from the front.

    Args:
        connection: The request.
        proxy: Its forwarding headers are believed, and nobody else's.
    """

    def __init__(self, connection: HTTPConnection, proxy: TrustedProxy | None) -> None:
        peer = connection.client.host if connection.client else ""
        self.headers = connection.headers
        self.cookies = connection.cookies
        self.is_from_proxy = proxy is not None and proxy.contains(peer)
        forwarded = self.headers.get("x-forwarded-for", "") if self.is_from_proxy else ""
        self.address = forwarded.rpartition(",")[2].strip() or peer
        """The client's address: the last one that the proxy added."""
        is_forwarded_tls = self.is_from_proxy and self.headers.get("x-forwarded-proto", "") == "https"
        self.is_tls = is_forwarded_tls or connection.url.scheme in {"https", "wss"}

    @property
    def is_from_another_site(self) -> bool:
        """Whether a page of another site made the browser send this."""
        if self.headers.get("sec-fetch-site", "same-origin") in {"cross-site", "same-site"}:
            return True
        origin = self.headers.get("origin")
        return origin is not None and urlsplit(origin).netloc != self.headers.get("host", "")

    @property
    def is_for_this_machine(self) -> bool:
        """Whether the browser was given a name of the loopback, not one that some name server points here."""
        try:
            host = urlsplit(f"//{self.headers.get('host', '')}").hostname or ""
        except ValueError:
            return False
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return host in _LOCAL_NAMES or host.endswith(".localhost")
