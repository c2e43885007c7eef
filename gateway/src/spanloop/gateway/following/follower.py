"""Follow another gateway: serve the versions that it serves, by the names that it answers to.

Invariant: a version is taken over once the other gateway serves it, so one that cannot be served is not. While that
gateway is away, this one goes on with what it serves.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, Final, cast

from spanloop.foundation.errors import SpanloopError

from ..api_errors import ApiError
from ..client.connection import EngineConnectionError
from ..client.engine_client import EngineClient
from ..engine.status import DeployResult
from ..model_names import ModelNames
from ..served_models.engine_group import EngineGroup
from .leader import Leader

_POLL_S: Final = 1.0
_AFTER_FAILURE_S: Final = 10.0
_TIMEOUT_S: Final = 10.0
_log: Final = logging.getLogger(__name__)


class FollowError(SpanloopError):
    """Raised when the other gateway does not tell what it serves."""


class Follower:
    """Takes over what the leader serves.

    Args:
        leader: The gateway to follow.
        client: Sends the key for it.
        engines: The engines of this gateway.
        names: The further names of models.
        deploy: Carries out a deploy request.
    """

    def __init__(
        self,
        leader: Leader,
        client: EngineClient,
        engines: EngineGroup,
        names: ModelNames,
        deploy: Callable[[dict[str, Any]], Awaitable[DeployResult]],
    ) -> None:
        self._leader = leader
        self._client = client
        self._engines = engines
        self._names = names
        self._deploy = deploy
        self.error = ""
        """Why this gateway does not serve what the leader serves; empty while it does."""

    async def run(self) -> None:
        """Follow the leader until the task is cancelled; return at once when this gateway is the leader."""
        while not await self._leader.find_out():
            try:
                await self._take_over(await self._read())
            except (SpanloopError, ApiError) as error:
                if self.error != str(error):
                    _log.warning("what %s serves is not served here: %s", self._leader.url, error)
                self.error = str(error)
                await asyncio.sleep(_AFTER_FAILURE_S)
            else:
                self.error = ""
                await asyncio.sleep(_POLL_S)

    async def _read(self) -> dict[str, Any]:
        url = f"{self._leader.url}/admin/deployments"
        try:
            response = await self._client.get(url, timeout_s=_TIMEOUT_S)
        except EngineConnectionError as error:
            raise FollowError(f"{url} cannot be read: {error}.") from error
        if response.status_code != HTTPStatus.OK:
            raise FollowError(f"{url} answers {response.status_code}: {response.text[:200]}")
        return cast("dict[str, Any]", response.json())

    async def _take_over(self, document: dict[str, Any]) -> None:
        for request in document["deployments"]:
            label = f"{request['name']}@{request['version']}"
            if request["is_serving"] and all(each.label != label for each in self._engines.deployments):
                _log.info("%s serves %s, which is deployed here too", self._leader.url, label)
                await self._deploy(request)
        names = {request["name"] for request in document["deployments"]}
        for deployment in self._engines.deployments:
            if names and deployment.name not in names and self._engines.is_beside(deployment.name):
                await self._engines.stop_model(deployment.name)
        for model in {*document["names"], *self._names.models}:
            if list(self._names.of(model)) != (further := document["names"].get(model, [])):
                self._names.set(model, further)
