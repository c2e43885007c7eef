"""Which addresses a service may listen on: this machine's loopback, and others only with API keys.

Invariant: a service that the network reaches checks API keys, unless ``--allow-anonymous`` says otherwise.
"""

import ipaddress
import logging
from typing import Final

from spanloop.authentication.api_keys import KeyRing, Scope
from spanloop.datadir import DataDir
from spanloop.semconv.errors import ConfigurationError

_log: Final = logging.getLogger(__name__)
_WILDCARDS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - only compared


def check_exposure(data_dir: DataDir, host: str, *, service: str, scope: Scope, allow_anonymous: bool) -> None:
    """Refuse an address beyond the loopback while there are no API keys.

    Args:
        data_dir: Holds the keys.
        host: The address to listen on.
        service: Its name in messages.
        scope: Of the key that its clients need.
        allow_anonymous: Warn instead.

    Raises:
        ConfigurationError: The network would reach the service without a key.
    """
    if is_loopback(host) or KeyRing(data_dir).is_required:
        return
    if not allow_anonymous:
        raise ConfigurationError(
            f"The {service} would listen on {host}, beyond this machine, and there are no API keys.",
            next_step=f"Make one: spanloop keys create NAME --scope {scope} --data-dir {data_dir.path}; "
            "or pass --allow-anonymous.",
        )
    _log.warning("the %s listens on %s without API keys: every client that reaches it may use it", service, host)


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def reachable_url(host: str, port: int) -> str:
    """Return the URL at which a process of this machine reaches a listener, with loopback for a wildcard address."""
    reachable = _WILDCARDS.get(host, host)
    return f"http://[{reachable}]:{port}" if ":" in reachable else f"http://{reachable}:{port}"
