"""The key with which this process calls another service, and the certificates that it trusts.

Invariant: a token in the data directory is sent to a service of this machine only. A service that a setting names gets
the key of ``SPANLOOP_KEY``.
"""

import ssl
from collections.abc import Callable

from spanloop.semconv.environment import KEY_ENV, ServiceAddress, read_setting


def service_key(address: ServiceAddress, local_token: Callable[[], str]) -> str:
    """Return the bearer secret for a service; empty when it is configured and there is no key.

    Args:
        address: The service.
        local_token: Returns the token of the data directory, for a service of this machine.

    Raises:
        ConfigurationError: The file of the key cannot be read.
    """
    return read_setting(KEY_ENV) if address.is_configured else local_token()


def bearer(secret: str) -> dict[str, str]:
    """Return the headers that carry a secret; none for the empty one."""
    return {"Authorization": f"Bearer {secret}"} if secret else {}


def trusted_certificates(url: str) -> ssl.SSLContext | bool:
    """Return httpx's ``verify`` for ``url``: the system's certificates, or those of ``SSL_CERT_FILE``."""
    return ssl.create_default_context() if url.startswith("https:") else True
