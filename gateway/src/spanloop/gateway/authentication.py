"""Authenticate requests to the gateway by API key and scope, or by a token in the data directory; hold keys to limits.

Invariant: ``/admin`` always needs a key or the token of `local_tokens.admin_token`. The other routes need one from the
first key on, as the collector's do; there the token of `local_tokens.serve_token` is valid too. A key is checked before
a body is read. When the keys cannot be read, no key is valid.
"""

import secrets
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

from starlette.requests import HTTPConnection

from spanloop.foundation.errors import DataDirectoryError
from spanloop.foundation.keys.api_keys import AccessDenied, KeyRing, Scope, bearer_secret, permitted_key
from spanloop.foundation.keys.limits import Admission, KeyLimiter, LimitExceeded
from spanloop.foundation.keys.local_tokens import admin_token, serve_token
from spanloop.foundation.paths import DataDir
from spanloop.foundation.settings import Limits

from .api_errors import ApiError
from .metered_keys import MeteredKeys

_HINTS: Final = {
    Scope.TRAIN: "Send 'Authorization: Bearer …' with the token in gateway/admin.token of the data directory, or "
    "with an API key of the scope train (spanloop keys create).",
    Scope.SERVE: "Send 'Authorization: Bearer KEY' with an API key of the scope serve, as OpenAI clients do with "
    "OPENAI_API_KEY. Next: spanloop keys create NAME --scope serve",
    Scope.READ: "Send 'Authorization: Bearer KEY' with an API key of the scope read. "
    "Next: spanloop keys create NAME --scope read",
}


class Authenticator:
    """Checks the API keys of requests, and the limits of each key.

    Args:
        data_dir: Holds keys and tokens.
        limits: Limits of rate, concurrency, tokens and body size by key; the tokens of the data directory have none.
        on_refusal: Called with the name of a limit that refuses a request.
        metered: Keys of loops, which are valid as the token of `local_tokens.serve_token`.

    Raises:
        DataDirectoryError: The tokens cannot be written.
    """

    def __init__(
        self,
        data_dir: DataDir,
        limits: Limits | None = None,
        on_refusal: Callable[[str], None] = lambda _: None,
        metered: MeteredKeys | None = None,
    ) -> None:
        self._on_refusal = on_refusal
        self._keys = KeyRing(data_dir)
        self._limiter = KeyLimiter(limits or Limits())
        self._admin_token = admin_token(data_dir)
        self._serve_token = serve_token(data_dir)
        self._metered = MeteredKeys() if metered is None else metered

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

    def check(self, request: HTTPConnection, scope: Scope) -> str:
        """Check a request to another route; return the key's name, empty for none. It raises as `check_admin`."""
        if not self.is_required:
            return ""
        return self._check(request, scope, self._is_local)

    def admit(self, request: HTTPConnection, scope: Scope) -> Admission:
        """Check a request and the limits of its key; the caller ends the admission.

        Raises:
            ApiError: As `check`; 429 above the key's requests or tokens, 503 above its concurrent requests.
        """
        admission = self._limiter.admit(self.check(request, scope))
        if isinstance(admission, LimitExceeded):
            self._on_refusal(admission.limit)
            message = f"{admission.message[0].upper()}{admission.message[1:]}."
            raise ApiError(admission.status, message, code="rate_limit_exceeded", retry_after_s=admission.retry_after_s)
        return admission

    def _is_admin(self, secret: str) -> bool:
        return _equals(secret, self._admin_token)

    def _is_local(self, secret: str) -> bool:
        return self._is_admin(secret) or _equals(secret, self._serve_token) or secret in self._metered

    def _check(self, request: HTTPConnection, scope: Scope, has_token: Callable[[str], bool]) -> str:
        secret = secret_of(request)
        if has_token(secret):
            return ""
        try:
            key = permitted_key(self._keys, secret, scope)
        except DataDirectoryError as error:
            raise ApiError(HTTPStatus.SERVICE_UNAVAILABLE, error.what) from error
        if isinstance(key, AccessDenied):
            is_unknown = key.status is HTTPStatus.UNAUTHORIZED
            raise ApiError(key.status, _HINTS[scope] if is_unknown else f"{key.message}.", code="invalid_api_key")
        return key.name


def secret_of(request: HTTPConnection) -> str:
    """Return the key of a request; empty without one. Anthropic's clients send it in a header of its own."""
    return bearer_secret(request.headers.get("authorization", "")) or request.headers.get("x-api-key", "")


def _equals(secret: str, token: str) -> bool:
    return secrets.compare_digest(secret.encode(), token.encode())
