"""Authenticate requests by API key and scope: the check that the collector and the gateway share.

The caller turns a denial into its own HTTP or gRPC error. A key is never logged.
"""

from http import HTTPStatus
from typing import Final, NamedTuple

from .api_keys import KeyRing, Scope

_SCHEME: Final = "bearer "


class AccessDenied(NamedTuple):
    """Why a request is denied."""

    status: HTTPStatus
    """401 for a key that is unknown or revoked, 403 for a key without the required scope."""
    message: str


def bearer_secret(authorization: str) -> str | None:
    """Return the secret in an ``Authorization: Bearer SECRET`` header, None for a header of another form."""
    return authorization[len(_SCHEME) :].strip() if authorization.lower().startswith(_SCHEME) else None


def check_key(keys: KeyRing, secret: str, scope: Scope) -> AccessDenied | None:
    """Look an API key up and check its scope; return None when access is granted.

    Raises:
        DataDirectoryError: The keys cannot be read, so no request may pass.
    """
    key = keys.find(secret)
    if key is None or key.revoked_at:
        return AccessDenied(HTTPStatus.UNAUTHORIZED, "this API key is unknown or revoked")
    if not key.allows(scope):
        scopes = ", ".join(key.scopes)
        return AccessDenied(HTTPStatus.FORBIDDEN, f"the API key {key.name} has the scopes {scopes}; expected {scope}")
    return None
