"""Who may: bearer keys with scopes, asked for at every door of the collector.

Invariant: when keys are required, nothing of a request is read before its key was checked, whether it came over HTTP or
gRPC; and when the keys cannot be read, nobody may. No key is ever logged.
"""

from http import HTTPStatus
from typing import Final

from spanloop.authentication.api_keys import KeyRing, Scope
from spanloop.authentication.bearer import bearer_secret, check_key
from spanloop.semconv.errors import DataDirectoryError

from .request_errors import RefusedError, RpcCode, unavailable

_RPC_CODES: Final = {
    HTTPStatus.UNAUTHORIZED: RpcCode.UNAUTHENTICATED,
    HTTPStatus.FORBIDDEN: RpcCode.PERMISSION_DENIED,
}


class Authenticator:
    """Checks requests.

    Args:
        keys: None lets everybody in.
    """

    def __init__(self, keys: KeyRing | None = None) -> None:
        self._keys = keys

    def check(self, authorization: str, scope: Scope) -> None:
        """Let pass, or not.

        Args:
            authorization: The header ``Authorization``, empty without one.
            scope: What the request wants to do.

        Raises:
            RefusedError: 401 without a good key, 403 with one for something else, 503 when the keys cannot be read.
        """
        if self._keys is None or not self._keys.is_required:
            return
        secret = bearer_secret(authorization)
        if secret is None:
            raise RefusedError(
                HTTPStatus.UNAUTHORIZED,
                RpcCode.UNAUTHENTICATED,
                "a key is needed: send Authorization: Bearer KEY (OTEL_EXPORTER_OTLP_HEADERS for an exporter); "
                "spanloop keys create makes one",
            )
        try:
            denied = check_key(self._keys, secret, scope)
        except DataDirectoryError as error:
            raise unavailable(error.what) from error
        if denied is not None:
            raise RefusedError(denied.status, _RPC_CODES[denied.status], denied.message)
