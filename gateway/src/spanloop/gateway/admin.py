"""``/admin``: deploy, stop, pause, resume, metered keys and status, for the data directory's token or an API key."""

import asyncio
from dataclasses import asdict
from http import HTTPStatus
from typing import Any, Final, cast

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from spanloop.foundation.errors import ConfigurationError, SpanloopError
from spanloop.foundation.keys.local_tokens import METERED_PREFIX
from spanloop.foundation.paths import DataDir

from .api_errors import ApiError
from .authentication import Authenticator
from .canary.canaries import Canaries
from .chat.request_body import read_body
from .engine.deployment import Deployment
from .engine.status import DeployResult, EngineState
from .fencing import FencingTokens
from .following.leader import Leader
from .local_copies import LocalCopies
from .metered_keys import MeteredKeys
from .metrics import Metrics
from .model_names import ModelNames
from .pauses import Pauses
from .served_models.engine_group import EngineGroup

_MAX_PAUSE_S: Final = 3600


class Admin:
    """The endpoints of ``/admin``.

    Args:
        lifecycle: The engine's lifecycle.
        pauses: The engine's pauses.
        metrics: The counters to update.
        authenticator: Checks each request.
        tokens: Refuses stale deployments.
        canaries: A deployment of its candidate ends a canary.
        names: Further names of models.
        metered: Keys of loops, whose calls have a limit of tokens.
        leader: The gateway that this one follows, if any: deployments are made there.
        data_dir: The gateway's; relative paths of a deployment are in its shared folder or in object storage.
    """

    def __init__(
        self,
        lifecycle: EngineGroup,
        pauses: Pauses,
        metrics: Metrics,
        *,
        authenticator: Authenticator,
        tokens: FencingTokens,
        canaries: Canaries,
        names: ModelNames,
        metered: MeteredKeys,
        leader: Leader,
        data_dir: DataDir,
    ) -> None:
        self._lifecycle = lifecycle
        self._pauses = pauses
        self._metrics = metrics
        self._authenticator = authenticator
        self._tokens = tokens
        self._canaries = canaries
        self._names = names
        self._metered = metered
        self._leader = leader
        self._data_dir, self._shared_dir = data_dir, data_dir.shared

    async def deploy(self, request: Request) -> Response:
        """Deploy weights; respond when the engine serves them."""
        self._authenticator.check_admin(request)
        self._leader.check_leads()
        body = await read_json(request)
        try:
            result = await self.carry_out(body)
        except ConfigurationError as error:
            raise ApiError(400, str(error), code="invalid_deployment") from error
        except SpanloopError as error:
            raise ApiError(HTTPStatus.INTERNAL_SERVER_ERROR, str(error), code="deployment_failed") from error
        return JSONResponse(
            {
                **asdict(result.deployment),
                "sampling": self._lifecycle.status_of(result.deployment.name).sampling,
                "model": result.deployment.label,
                "method": result.method,
                "duration_s": round(result.duration_s, 3),
                "preempted": result.preempted,
            }
        )

    async def carry_out(self, body: dict[str, Any]) -> DeployResult:
        """Deploy what a request says.

        Raises:
            ApiError: The gateway is paused, a canary runs, or the fencing token is stale.
            SpanloopError: The weights cannot be served.
        """
        self._pauses.check_deploy(str(body.get("holder", "")))
        copies = LocalCopies(self._data_dir, self._shared_dir)
        try:
            target = Deployment.parse(await asyncio.to_thread(copies.resolve, body))
            self._tokens.accept(body)
            self._canaries.check_deploy(target.label)
            await self._canaries.end_before(target.label)
            result = await self._lifecycle.deploy(target, is_beside=body.get("beside") is True)
            await self._canaries.end_after(target.label)
        finally:
            copies.keep(None)  # the engine's lifecycle holds them
        self._metrics.count("deployments_total", method=result.method)
        return result

    async def deployments(self, request: Request) -> Response:
        """Return what is served, as requests to ``deploy`` on any host, for gateways that follow this one."""
        self._authenticator.check_admin(request)
        copies = LocalCopies(self._data_dir, self._shared_dir)
        serving = {each.deployment for each in self._lifecycle.statuses if each.state is EngineState.SERVING}
        return JSONResponse(
            {
                "deployments": [
                    {
                        **copies.portable(each),
                        "beside": self._lifecycle.is_beside(each.name),
                        "is_serving": each in serving,
                    }
                    for each in self._lifecycle.deployments
                ],
                "names": self._names.models,
            }
        )

    async def names(self, request: Request) -> Response:
        """Replace the further names of a model, by which apps call it."""
        self._authenticator.check_admin(request)
        self._leader.check_leads()
        body = await read_json(request)
        try:
            self._names.set(body.get("model"), body.get("names"))
        except ConfigurationError as error:
            raise ApiError(400, str(error), code="invalid_request") from error
        return JSONResponse({"model": body["model"], "names": body["names"]})

    async def stop(self, request: Request) -> Response:
        """Stop all engines, or a ``model`` beside the first one, and a canary; respond when their processes ended."""
        self._authenticator.check_admin(request)
        name = (await read_json(request)).get("model")
        if name is not None:
            self._leader.check_leads()
            return await self._stop_model(name)
        await self._canaries.end()
        await self._lifecycle.stop()
        return self._status()

    async def _stop_model(self, name: object) -> Response:
        try:
            await self._canaries.end_with(str(name))
            await self._lifecycle.stop_model(str(name))
        except ConfigurationError as error:
            raise ApiError(400, str(error), code="invalid_request", param="model") from error
        return self._status()

    async def pause(self, request: Request) -> Response:
        """Pause the engine for ``ttl_s`` unless ``holder`` renews; respond when its processes have ended."""
        self._authenticator.check_admin(request)
        body = await read_json(request)
        holder, ttl_s = _read_holder(body), body.get("ttl_s")
        if not isinstance(ttl_s, int | float) or not 0 < ttl_s <= _MAX_PAUSE_S:
            raise ApiError(400, f"'ttl_s' must be seconds up to {_MAX_PAUSE_S}, got {ttl_s!r}.", code="invalid_request")
        try:
            await self._pauses.hold(holder, ttl_s)
        except ConfigurationError as error:
            raise ApiError(HTTPStatus.CONFLICT, str(error), code="cannot_pause") from error
        return self._status()

    async def resume(self, request: Request) -> Response:
        """Release a pause; the engine starts in the background."""
        self._authenticator.check_admin(request)
        await self._pauses.release(_read_holder(await read_json(request)))
        return self._status()

    async def metered(self, request: Request) -> Response:
        """Set the limit of a metered key; respond with its counts."""
        self._authenticator.check_admin(request)
        body = await read_json(request)
        key, limit = body.get("key"), body.get("limit")
        if not isinstance(key, str) or not key.removeprefix(METERED_PREFIX) or not key.startswith(METERED_PREFIX):
            raise ApiError(400, f"'key' must begin with {METERED_PREFIX!r}.", code="invalid_request", param="key")
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < 0:
            message = f"'limit' must be a number of tokens, got {limit!r:.80}."
            raise ApiError(400, message, code="invalid_request", param="limit")
        return JSONResponse(self._metered.set(key, limit)._asdict())

    async def status(self, request: Request) -> Response:
        """Return the engine's state."""
        self._authenticator.check_admin(request)
        return self._status()

    def _status(self) -> JSONResponse:
        status = self._lifecycle.status
        deployment = status.deployment
        return JSONResponse(
            {
                "state": status.state.value,
                "paused_by": self._pauses.holders,
                "deployment": None if deployment is None else asdict(deployment),
                "served": [each.label for each in self._lifecycle.deployments],
                "sampling": status.sampling,
                "error": status.error,
                "restarts": status.restarts,
                "start_duration_s": round(status.start_duration_s, 3),
                "engine_pid": status.engine_pid,
            }
        )


async def read_json(request: Request) -> dict[str, Any]:
    """Return the JSON object of a request; empty for another JSON value. It raises as `read_body`."""
    body = read_body(await request.body() or b"{}")
    return cast("dict[str, Any]", body) if isinstance(body, dict) else {}


def _read_holder(body: dict[str, Any]) -> str:
    holder = body.get("holder")
    if not isinstance(holder, str) or not holder:
        raise ApiError(400, f"'holder' must be the name of the holder, got {holder!r}.", code="invalid_request")
    return holder
