"""``/admin/canary``: start, status and stop."""

from dataclasses import asdict
from http import HTTPStatus
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from spanloop.foundation.errors import ConfigurationError, SpanloopError

from ..admin import read_json
from ..api_errors import ApiError
from ..authentication import Authenticator
from ..engine.deployment import in_shared_folder
from ..pauses import Pauses
from .canaries import Canaries
from .canary import Canary


class CanaryAdmin:
    """The endpoints.

    Args:
        canaries: The canary that runs.
        pauses: A paused gateway starts none.
        authenticator: Checks each request.
        shared_dir: Of this host; relative paths of a candidate are in it.
    """

    def __init__(self, canaries: Canaries, pauses: Pauses, authenticator: Authenticator, shared_dir: Path) -> None:
        self._canaries = canaries
        self._pauses = pauses
        self._authenticator = authenticator
        self._shared_dir = shared_dir

    async def start(self, request: Request) -> Response:
        """Start a canary; respond when its candidate serves."""
        self._authenticator.check_admin(request)
        body = await read_json(request)
        self._pauses.check_deploy("")
        try:
            await self._canaries.begin(in_shared_folder(body, self._shared_dir))
        except ConfigurationError as error:
            raise ApiError(400, str(error), code="invalid_canary") from error
        except SpanloopError as error:
            raise ApiError(HTTPStatus.INTERNAL_SERVER_ERROR, str(error), code="canary_failed") from error
        return self._status()

    async def stop(self, request: Request) -> Response:
        """End the canary, if one runs; respond when the candidate's engine has ended.

        With ``id``, only that canary.
        """
        self._authenticator.check_admin(request)
        body, candidate = await read_json(request), self._canaries.candidate
        identity = body.get("id")
        if candidate is not None and identity not in {None, candidate.canary.id}:
            raise ApiError(
                HTTPStatus.CONFLICT, f"The canary {candidate.canary.id} runs, not {identity!r}.", code="other_canary"
            )
        ended = await self._canaries.end()
        return JSONResponse({"ended": None if ended is None else _document(ended)})

    async def status(self, request: Request) -> Response:
        """Return the canary that runs."""
        self._authenticator.check_admin(request)
        return self._status()

    def _status(self) -> Response:
        candidate = self._canaries.candidate
        if candidate is None:
            return JSONResponse({"canary": None})
        status = candidate.lifecycle.status
        return JSONResponse(
            {"canary": _document(candidate.canary), "engine": status.state.value, "error": status.error}
        )


def _document(canary: Canary) -> dict[str, Any]:
    return {**asdict(canary), "candidate": canary.candidate.label}
