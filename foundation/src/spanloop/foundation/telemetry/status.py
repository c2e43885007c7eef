"""The health report and the metrics of a role, as routes: ``GET /healthz`` and ``GET /metrics``.

Invariant: a role that responds is alive, whatever its state is: ``/healthz`` is 200 and open. ``/metrics`` needs an API
key of the scope ``read`` from the first key on, and is refused while the keys cannot be read.
"""

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from http import HTTPStatus
from importlib.metadata import version

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from spanloop.foundation.errors import DataDirectoryError
from spanloop.foundation.keys.api_keys import KeyRing, Scope, bearer_secret, check_key

from .metrics import MEDIA_TYPE, Metrics


class Status:
    """What a role does now; shared by its threads.

    Args:
        role: Its name.
    """

    def __init__(self, role: str) -> None:
        self.role = role
        self._lock = threading.Lock()
        self._state, self._error, self._since = "starting", "", datetime.now(UTC)

    def set(self, state: str, error: str = "") -> None:
        """Record the state, and why the role cannot work; the time of the report is that of the last new state."""
        with self._lock:
            if state != self._state:
                self._since = datetime.now(UTC)
            self._state, self._error = state, error

    def report(self) -> dict[str, str]:
        """Return the JSON body of ``/healthz``."""
        with self._lock:
            return {
                "status": "degraded" if self._error else "ok",
                "role": self.role,
                "spanloop": version("spanloop"),
                "state": self._state,
                "since": self._since.isoformat(timespec="milliseconds"),
                "error": self._error,
            }


def status_routes(
    status: Status, metrics: Metrics, keys: KeyRing, refresh: Callable[[], None] | None = None
) -> list[Route]:
    """Return the two routes.

    Args:
        status: The role's state.
        metrics: Its metrics.
        keys: The API keys.
        refresh: Called in a thread before the metrics are rendered, to set gauges that are measured then.
    """

    def healthz(_: Request) -> Response:
        return JSONResponse(status.report())

    def render(request: Request) -> Response:
        if (denied := _denied(keys, request)) is not None:
            return denied
        if refresh is not None:
            refresh()
        return PlainTextResponse(metrics.render(), media_type=MEDIA_TYPE)

    return [Route("/healthz", healthz), Route("/metrics", render)]


def _denied(keys: KeyRing, request: Request) -> Response | None:
    if not keys.is_required:
        return None
    secret = bearer_secret(request.headers.get("authorization", ""))
    try:
        denied = check_key(keys, secret or "", Scope.READ)
    except DataDirectoryError as error:
        return _error(HTTPStatus.SERVICE_UNAVAILABLE, error.what)
    if secret is None:
        message = "an API key is required: send Authorization: Bearer KEY; spanloop keys create NAME --scope read"
        return _error(HTTPStatus.UNAUTHORIZED, message)
    return None if denied is None else _error(denied.status, denied.message)


def _error(status: HTTPStatus, message: str) -> Response:
    headers = {"WWW-Authenticate": "Bearer"} if status is HTTPStatus.UNAUTHORIZED else {}
    return JSONResponse({"error": message}, status_code=status, headers=headers)
