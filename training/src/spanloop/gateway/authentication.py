"""Authenticate requests to the gateway by API key and scope, or by a token in the data directory.

Invariant: ``/admin`` always needs a key or the token of `local_tokens.admin_token`. The other routes need one from the
first key on, as the collector's do; there the token of `local_tokens.serve_token` is valid too. A key is checked before
a body is read. When the keys cannot be read, no key is valid.
"""

import secrets
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

from starlette.requests import HTTPConnection

from spanloop.authentication.api_keys import KeyRing, Scope, bearer_secret, check_key
from spanloop.authentication.local_tokens import admin_token, serve_token
from spanloop.datadir import DataDir
from spanloop.semconv.errors import DataDirectoryError

from .api_errors import ApiError

_HINTS: Final = {
    Scope.TRAIN: "Send 'Authorization: Bearer …' with the token in gateway/admin.token of the data directory, or "
    "with an API key of the scope train (spanloop keys create).",
    Scope.SERVE: "Send 'Authorization: Bearer KEY' with an API key of the scope serve, as OpenAI clients do with "
    "OPENAI_API_KEY. Next: spanloop keys create NAME --scope serve",
    Scope.READ: "Send 'Authorization: Bearer KEY' with an API key of the scope read. "
    "Next: spanloop keys create NAME --scope read",
}


class Authenticator:
    """Checks the API keys of requests.

    Args:
        data_dir: Holds keys and tokens.

    Raises:
        DataDirectoryError: The tokens cannot be written.
    """

    def __init__(self, data_dir: DataDir) -> None:
        self._keys = KeyRing(data_dir)
        self._admin_token = admin_token(data_dir)
        self._serve_token = serve_token(data_dir)

    @property
    def is_required(self) -> bool:
        """Whether requests to other routes than ``/admin`` need a key."""
        return self._keys.is_required

    def check_admin(self, request: HTTPConnection) -> None:
        """Check a request to ``/admin``.

        Raises:
            ApiError: 401 without a valid key, 403 when the key lacks the scope, 503 when the keys cannot be read.
        """
        self._check(request, Scope.TRAIN, self._is_admin)

    def check(self, request: HTTPConnection, scope: Scope) -> None:
        """Check a request to another route; it raises as `check_admin`."""
        if self.is_required:
            self._check(request, scope, lambda secret: self._is_admin(secret) or _equals(secret, self._serve_token))

    def _is_admin(self, secret: str) -> bool:
        return _equals(secret, self._admin_token)

    def _check(self, request: HTTPConnection, scope: Scope, has_token: Callable[[str], bool]) -> None:
        secret = bearer_secret(request.headers.get("authorization", "")) or ""
        if has_token(secret):
            return
        try:
            denied = check_key(self._keys, secret, scope)
        except DataDirectoryError as error:
            raise ApiError(HTTPStatus.SERVICE_UNAVAILABLE, error.what) from error
        if denied is not None:
            is_unknown = denied.status is HTTPStatus.UNAUTHORIZED
            raise ApiError(denied.status, _HINTS[scope] if is_unknown else f"{denied.message}.", code="invalid_api_key")


def _equals(secret: str, token: str) -> bool:
    return secrets.compare_digest(secret.encode(), token.encode())
