"""``/admin``: deploy, stop, pause, resume, status; for whoever can read the data directory's token, or has a key."""

import json
import secrets
from dataclasses import asdict
from http import HTTPStatus
from typing import Any, Final, cast

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from spanloop.authentication.api_keys import KeyRing, Scope
from spanloop.authentication.bearer import check_key
from spanloop.datadir import DataDir
from spanloop.semconv.errors import ConfigurationError, DataDirectoryError, SpanloopError

from .api_errors import AnswerError
from .control import Control
from .deployment import Deployment
from .metrics import Metrics
from .pause import Pauses

_LONGEST_PAUSE_S: Final = 3600
_TOKEN_BYTES: Final = 32


def admin_token(data_dir: DataDir) -> str:
    """The token in ``gateway/admin.token``, made (0600) when there is none.

    Raises:
        DataDirectoryError: The disk refused.
    """
    path = data_dir.gateway / "admin.token"
    if path.exists() and (token := path.read_text(encoding="ascii").strip()):
        return token
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    data_dir.write(path, token + "\n", mode=0o600)
    return token


class Admin:
    """The endpoints.

    Args:
        control: What they act on.
        pauses: Who holds the engine stopped.
        metrics: Counted into.
        token: What the caller must show,
        keys: or one of these, with the scope ``train``.
    """

    def __init__(self, control: Control, pauses: Pauses, metrics: Metrics, token: str, keys: KeyRing) -> None:
        self._control = control
        self._pauses = pauses
        self._metrics = metrics
        self._token = token
        self._keys = keys

    async def deploy(self, request: Request) -> Response:
        """Answer when the new weights answer."""
        self._authorize(request)
        body = await _json(request)
        self._pauses.check_deploy(str(body.get("holder", "")))
        try:
            done = await self._control.deploy(Deployment.parse(body))
        except ConfigurationError as error:
            raise AnswerError(400, str(error), code="invalid_deployment") from error
        except SpanloopError as error:
            raise AnswerError(HTTPStatus.INTERNAL_SERVER_ERROR, str(error), code="deployment_failed") from error
        self._metrics.count("deployments_total", method=done.method)
        return JSONResponse(
            {
                **asdict(done.deployment),
                "model": done.deployment.label,
                "method": done.method,
                "duration_s": round(done.duration_s, 3),
                "preempted": done.preempted,
            }
        )

    async def stop(self, request: Request) -> Response:
        """Answer when the engine's processes are gone."""
        self._authorize(request)
        await self._control.stop()
        return self._status()

    async def pause(self, request: Request) -> Response:
        """Answer when the engine's processes are gone; ``holder`` has to ask again before ``ttl_s`` are over."""
        self._authorize(request)
        body = await _json(request)
        holder, ttl_s = _holder(body), body.get("ttl_s")
        if not isinstance(ttl_s, int | float) or not 0 < ttl_s <= _LONGEST_PAUSE_S:
            raise AnswerError(
                400, f"'ttl_s' must be seconds up to {_LONGEST_PAUSE_S}, got {ttl_s!r}.", code="invalid_request"
            )
        try:
            await self._pauses.hold(holder, ttl_s)
        except ConfigurationError as error:
            raise AnswerError(HTTPStatus.CONFLICT, str(error), code="cannot_pause") from error
        return self._status()

    async def resume(self, request: Request) -> Response:
        """Answer at once; the engine starts in the background."""
        self._authorize(request)
        await self._pauses.release(_holder(await _json(request)))
        return self._status()

    async def status(self, request: Request) -> Response:
        """The engine now."""
        self._authorize(request)
        return self._status()

    def _status(self) -> JSONResponse:
        status = self._control.status
        deployment = status.deployment
        return JSONResponse(
            {
                "state": status.state.value,
                "paused_by": self._pauses.holders,
                "deployment": None if deployment is None else asdict(deployment),
                "error": status.error,
                "restarts": status.restarts,
                "start_duration_s": round(status.start_duration_s, 3),
                "engine_pid": status.engine_pid,
            }
        )

    def _authorize(self, request: Request) -> None:
        shown = request.headers.get("authorization", "").removeprefix("Bearer ")
        if secrets.compare_digest(shown.encode(), self._token.encode()):
            return
        try:
            denied = check_key(self._keys, shown, Scope.TRAIN)
        except DataDirectoryError as error:
            raise AnswerError(503, error.what) from error
        if denied is None:
            return
        if denied.status == HTTPStatus.UNAUTHORIZED:
            raise AnswerError(
                401,
                "This needs 'Authorization: Bearer …' with the token in gateway/admin.token of the data directory, or "
                "with an API key of the scope train (spanloop keys create).",
            )
        raise AnswerError(denied.status, denied.message)


async def _json(request: Request) -> dict[str, Any]:
    try:
        body: object = json.loads(await request.body())
    except ValueError as error:
        raise AnswerError(400, f"The request body is not JSON: {error}.", code="invalid_request") from error
    return cast("dict[str, Any]", body) if isinstance(body, dict) else {}


def _holder(body: dict[str, Any]) -> str:
    holder = body.get("holder")
    if not isinstance(holder, str) or not holder:
        raise AnswerError(400, f"'holder' must say who pauses, got {holder!r}.", code="invalid_request")
    return holder
