"""Authenticate HTTP requests by API key and scope, and hold each key to its limits.

Invariant: a key is checked before a body is read. From the first key on every request but ``/healthz`` needs one; when
the keys cannot be read, every request is refused.
"""

from http import HTTPStatus
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from spanloop.foundation.errors import DataDirectoryError
from spanloop.foundation.keys.api_keys import AccessDenied, Key, KeyRing, bearer_secret, permitted_key
from spanloop.foundation.keys.api_keys import Scope as KeyScope
from spanloop.foundation.keys.limits import Admission, KeyLimiter, LimitExceeded

from .metrics import McpMetrics

KEY: Final = "spanloop.key"
"""Where the request's scope holds its key."""
_CHECKED_BY_THEMSELVES: Final = ("/healthz", "/metrics")
_HINT: Final = (
    "an API key is required: send Authorization: Bearer KEY with a key of the scope ask; "
    "spanloop keys create NAME --scope ask makes one"
)


class KeyGuard:
    """An ASGI application in front of another one, which it admits requests with a key to."""

    def __init__(self, app: ASGIApp, keys: KeyRing, limiter: KeyLimiter, metrics: McpMetrics) -> None:
        self._app = app
        self._keys = keys
        self._limiter = limiter
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request of a permitted key, and refuse another one."""
        if scope["type"] != "http" or scope["path"] in _CHECKED_BY_THEMSELVES:
            await self._app(scope, receive, send)
            return
        key = self._key(scope)
        admission = self._admit(key) if isinstance(key, Key | None) else key
        if isinstance(admission, Response):
            self._metrics.count("refused_requests_total", status=str(admission.status_code))
            await admission(scope, receive, send)
            return
        with admission:
            await self._app({**scope, KEY: key}, receive, send)

    def _key(self, scope: Scope) -> Key | Response | None:
        """Return the request's key, None where none is needed, or the refusal."""
        if not self._keys.is_required:
            return None
        secret = bearer_secret(Headers(scope=scope).get("authorization", ""))
        if not secret:
            return _refusal(HTTPStatus.UNAUTHORIZED, _HINT)
        try:
            key = permitted_key(self._keys, secret, KeyScope.ASK)
        except DataDirectoryError as error:
            return _refusal(HTTPStatus.SERVICE_UNAVAILABLE, error.what)
        return _refusal(key.status, key.message) if isinstance(key, AccessDenied) else key

    def _admit(self, key: Key | None) -> Admission | Response:
        admission = self._limiter.admit(key.name if key else "")
        if isinstance(admission, LimitExceeded):
            return _refusal(admission.status, admission.message, retry_after_s=admission.retry_after_s)
        return admission


def _refusal(status: HTTPStatus, message: str, *, retry_after_s: int = 0) -> Response:
    headers = {"WWW-Authenticate": "Bearer"} if status is HTTPStatus.UNAUTHORIZED else {}
    if retry_after_s:
        headers["Retry-After"] = str(retry_after_s)
    return JSONResponse({"error": message}, status_code=status, headers=headers)
