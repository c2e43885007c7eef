"""Which addresses a service may listen on: this machine's loopback, and others only with API keys or a login.

Invariant: a service that the network reaches checks API keys, unless ``--allow-anonymous`` says otherwise. The
dashboard asks for a login, or believes a proxy.
"""

import ipaddress
import logging
from typing import Final

from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.keys.api_keys import KeyRing, Scope
from spanloop.foundation.paths import DataDir
from spanloop.foundation.settings import Dashboard

_log: Final = logging.getLogger(__name__)
_WILDCARDS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 - only compared


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


def check_dashboard_exposure(data_dir: DataDir, host: str, configuration: Dashboard) -> None:
    """Refuse an address beyond the loopback while the dashboard asks nobody for a login.

    Raises:
        ConfigurationError: The network would reach the pages without a login.
    """
    proxy = configuration.trusted_proxy
    if is_loopback(host) or data_dir.users.exists() or (proxy is not None and proxy.header):
        return
    raise ConfigurationError(
        f"The dashboard would listen on {host}, beyond this machine, and it has no users.",
        next_step=f"Make one: spanloop users create NAME --role operator --data-dir {data_dir.path}; "
        "or name a proxy that knows the users in [dashboard.trusted_proxy].",
    )


def warn_without_tls(host: str, service: str, *, is_tls: bool) -> None:
    """Log that keys and passwords cross the network unencrypted."""
    if not is_tls and not is_loopback(host):
        _log.warning("the %s listens on %s without TLS: put a proxy with TLS in front, or set [tls]", service, host)


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def reachable_url(host: str, port: int, *, is_tls: bool = False) -> str:
    """Return the URL at which a process of this machine reaches a listener, with loopback for a wildcard address."""
    reachable = _WILDCARDS.get(host, host)
    scheme = "https" if is_tls else "http"
    return f"{scheme}://[{reachable}]:{port}" if ":" in reachable else f"{scheme}://{reachable}:{port}"
