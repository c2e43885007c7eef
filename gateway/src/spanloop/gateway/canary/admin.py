"""``/admin/canary``: start, status and stop."""

import asyncio
from dataclasses import asdict
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from spanloop.foundation.errors import ConfigurationError, SpanloopError
from spanloop.foundation.paths import DataDir

from ..admin import read_json
from ..api_errors import ApiError
from ..authentication import Authenticator
from ..following.leader import Leader
from ..local_copies import LocalCopies
from ..pauses import Pauses
from .canaries import Canaries
from .canary import Canary


class CanaryAdmin:
    """The endpoints.

    Args:
        canaries: The canary that runs.
        pauses: A paused gateway starts none.
        authenticator: Checks each request.
        leader: The gateway that this one follows, if any: canaries run there.
        data_dir: The gateway's; relative paths of a candidate are in its shared folder or in object storage.
    """

    def __init__(
        self, canaries: Canaries, pauses: Pauses, authenticator: Authenticator, leader: Leader, data_dir: DataDir
    ) -> None:
        self._canaries = canaries
        self._pauses = pauses
        self._authenticator = authenticator
        self._leader = leader
        self._data_dir, self._shared_dir = data_dir, data_dir.shared

    async def start(self, request: Request) -> Response:
        """Start a canary; respond when its candidate serves."""
        self._authenticator.check_admin(request)
        self._leader.check_leads()
        body = await read_json(request)
        self._pauses.check_deploy("")
        copies = LocalCopies(self._data_dir, self._shared_dir)
        try:
            await self._canaries.begin(await asyncio.to_thread(copies.resolve, body))
        except ConfigurationError as error:
            raise ApiError(400, str(error), code="invalid_canary") from error
        except SpanloopError as error:
            raise ApiError(HTTPStatus.INTERNAL_SERVER_ERROR, str(error), code="canary_failed") from error
        finally:
            copies.keep(None)  # the candidate's lifecycle holds them
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
