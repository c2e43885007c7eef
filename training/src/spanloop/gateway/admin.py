"""``/admin``: deploy, stop, status; for whoever can read the token file of the data directory."""

import json
import secrets
from dataclasses import asdict
from http import HTTPStatus
from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from spanloop.semconv.errors import ConfigurationError, SpanloopError
from spanloop.store import DataDir

from .answers import AnswerError
from .control import Control
from .deployment import Deployment
from .metrics import Metrics

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
    """The three endpoints.

    Args:
        control: What they act on.
        metrics: Counted into.
        token: What the caller must show.
    """

    def __init__(self, control: Control, metrics: Metrics, token: str) -> None:
        self._control = control
        self._metrics = metrics
        self._token = token

    async def deploy(self, request: Request) -> Response:
        """Answer when the new weights answer."""
        self._authorize(request)
        try:
            target = Deployment.parse(json.loads(await request.body()))
            done = await self._control.deploy(target)
        except ValueError as error:
            raise AnswerError(400, f"The request body is not JSON: {error}.", code="invalid_request") from error
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
                "deployment": None if deployment is None else asdict(deployment),
                "error": status.error,
                "restarts": status.restarts,
                "start_duration_s": round(status.start_duration_s, 3),
                "engine_pid": status.engine_pid,
            }
        )

    def _authorize(self, request: Request) -> None:
        shown = request.headers.get("authorization", "").removeprefix("Bearer ")
        if not secrets.compare_digest(shown.encode(), self._token.encode()):
            raise AnswerError(
                401, "This needs 'Authorization: Bearer …' with the token in gateway/admin.token of the data directory."
            )
