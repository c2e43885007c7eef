"""Authenticate requests by API key and scope, and hold each key to its limits.

Invariant: when keys are required, a request's key is checked before its body is read, over HTTP and gRPC. When the keys
cannot be read, every request is refused.
"""

from http import HTTPStatus
from typing import Final

from spanloop.foundation.errors import DataDirectoryError
from spanloop.foundation.keys.api_keys import AccessDenied, KeyRing, Scope, bearer_secret, permitted_key
from spanloop.foundation.keys.limits import Admission, KeyLimiter, LimitExceeded

from .request_errors import RefusedError, RpcCode, unavailable

_RPC_CODES: Final = {
    HTTPStatus.UNAUTHORIZED: RpcCode.UNAUTHENTICATED,
    HTTPStatus.FORBIDDEN: RpcCode.PERMISSION_DENIED,
    HTTPStatus.TOO_MANY_REQUESTS: RpcCode.RESOURCE_EXHAUSTED,
    HTTPStatus.SERVICE_UNAVAILABLE: RpcCode.UNAVAILABLE,
}


class Authenticator:
    """Checks the API keys of requests, and the limits of each key.

    Args:
        keys: None accepts every request.
        limiter: None has no limits.
    """

    def __init__(self, keys: KeyRing | None = None, limiter: KeyLimiter | None = None) -> None:
        self._keys = keys
        self._limiter = limiter

    def admit(self, authorization: str, scope: Scope) -> Admission:
        """Check a request's API key and its limits; the caller ends the admission.

        Raises:
            RefusedError: As `authenticate`; 429 above the key's rate, 503 above its concurrent requests.
        """
        name = self.authenticate(authorization, scope)
        if self._limiter is None:
            return Admission()
        admission = self._limiter.admit(name)
        if isinstance(admission, LimitExceeded):
            raise RefusedError(
                admission.status,
                _RPC_CODES[admission.status],
                admission.message,
                retry_after_s=admission.retry_after_s,
            )
        return admission

    def authenticate(self, authorization: str, scope: Scope) -> str:
        """Check a request's API key.

        Args:
            authorization: The header ``Authorization``; empty when the request has none.
            scope: The scope that the request needs.

        Returns:
            The key's name; empty when requests need none.

        Raises:
            RefusedError: 401 without a valid key, 403 when the key lacks the scope, 503 when the keys cannot be read.
        """
        if self._keys is None or not self._keys.is_required:
            return ""
        secret = bearer_secret(authorization)
        if secret is None:
            raise RefusedError(
                HTTPStatus.UNAUTHORIZED,
                RpcCode.UNAUTHENTICATED,
                "an API key is required: send Authorization: Bearer KEY (OTEL_EXPORTER_OTLP_HEADERS for an exporter); "
                "spanloop keys create makes one",
            )
        try:
            key = permitted_key(self._keys, secret, scope)
        except DataDirectoryError as error:
            raise unavailable(error.what) from error
        if isinstance(key, AccessDenied):
            raise RefusedError(key.status, _RPC_CODES[key.status], key.message)
        return key.name
