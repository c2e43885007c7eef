"""Authenticate requests by API key and scope.

Invariant: when keys are required, a request's key is checked before its body is read, over HTTP and gRPC. When the keys
cannot be read, every request is refused.
"""

from http import HTTPStatus
from typing import Final

from spanloop.authentication.api_keys import KeyRing, Scope, bearer_secret, check_key
from spanloop.semconv.errors import DataDirectoryError

from .request_errors import RefusedError, RpcCode, unavailable

_RPC_CODES: Final = {HTTPStatus.UNAUTHORIZED: RpcCode.UNAUTHENTICATED, HTTPStatus.FORBIDDEN: RpcCode.PERMISSION_DENIED}


class Authenticator:
    """Checks the API keys of requests.

    Args:
        keys: None accepts every request.
    """

    def __init__(self, keys: KeyRing | None = None) -> None:
        self._keys = keys

    def authenticate(self, authorization: str, scope: Scope) -> None:
        """Check a request's API key.

        Args:
            authorization: The header ``Authorization``; empty when the request has none.
            scope: The scope that the request needs.

        Raises:
            RefusedError: 401 without a valid key, 403 when the key lacks the scope, 503 when the keys cannot be read.
        """
        if self._keys is None or not self._keys.is_required:
            return
        secret = bearer_secret(authorization)
        if secret is None:
            raise RefusedError(
                HTTPStatus.UNAUTHORIZED,
                RpcCode.UNAUTHENTICATED,
                "an API key is required: send Authorization: Bearer KEY (OTEL_EXPORTER_OTLP_HEADERS for an exporter); "
                "spanloop keys create makes one",
            )
        try:
            denied = check_key(self._keys, secret, scope)
        except DataDirectoryError as error:
            raise unavailable(error.what) from error
        if denied is not None:
            raise RefusedError(denied.status, _RPC_CODES[denied.status], denied.message)
