"""Which version answers a call: the champion, or the candidate of the canary that runs.

Invariant: a call goes to the candidate only if its session belongs to it, or if it names the candidate's version. The
champion answers a call that the candidate fails before a part of the answer was sent; the session stays there.
"""

import logging
import secrets
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.paths import DataDir

from ..api_errors import ApiError, UnavailableError
from ..chat.sessions import SessionLog
from ..engine.admission import AdmissionControl
from ..engine.serving_environment import SERVED_NAME
from ..engine.status import EngineState
from ..served_models.engine_group import EngineGroup
from .canary import Canary, CanaryFile, CanaryMode
from .candidate import Candidate
from .routed_call import Arm, RoutedCall

_log: Final = logging.getLogger(__name__)
_PARTS: Final = 1_000_000


class Canaries:
    """Starts, continues and ends canaries, and routes calls.

    Args:
        data_dir: Holds the running canary and the sessions.
        champion: Admission to the champion.
        lifecycle: Of the champion's engine.
        make_candidate: Makes the candidate of a canary; its engine does not run yet.
    """

    def __init__(
        self,
        data_dir: DataDir,
        champion: AdmissionControl,
        lifecycle: EngineGroup,
        make_candidate: Callable[[Canary], Candidate],
    ) -> None:
        self._champion = champion
        self._lifecycle = lifecycle
        self._make_candidate = make_candidate
        self._file = CanaryFile(data_dir)
        self._sessions = SessionLog(data_dir.gateway / "sessions")
        self._candidate: Candidate | None = None
        self._starting: Canary | None = None

    @property
    def candidate(self) -> Candidate | None:
        """The candidate of the canary that runs."""
        return self._candidate

    def resume_stored(self) -> None:
        """Continue the canary of an earlier process, in the background, if the champion is still the same."""
        try:
            canary = self._file.read()
            if canary is None:
                return
            served = self._lifecycle.status_of(canary.candidate.name).deployment
            if served is not None and served.label != canary.champion:
                _log.warning("the canary of %s is over: %s is served", canary.candidate.label, served.label)
                self._file.remove()
                return
            self._candidate = self._make_candidate(canary)
            self._candidate.lifecycle.start()
            _log.info("the canary of %s continues", canary.candidate.label)
        except ConfigurationError as error:
            _log.error("the canary does not continue: %s", error)

    def check_deploy(self, label: str) -> None:
        """Refuse a deployment that would replace the champion while it is compared.

        Raises:
            ApiError: 409, a canary runs, and ``label`` is neither its champion nor its candidate.
        """
        canary = self._candidate.canary if self._candidate is not None else self._starting
        if canary is not None and label not in {canary.champion, canary.candidate.label}:
            raise ApiError(
                HTTPStatus.CONFLICT,
                f"The canary of {canary.candidate.label} runs, which compares it with {canary.champion}. "
                "Next: wait until it is decided, or end it with spanloop canary stop.",
                code="canary_running",
            )

    async def begin(self, body: dict[str, object]) -> Canary:
        """Start a canary; return when the candidate serves.

        Raises:
            ConfigurationError: The request is malformed, a canary runs, or no champion serves.
            SpanloopError: The candidate cannot be served; nothing was changed.
        """
        status = self._lifecycle.status_of(str(body.get("name")))
        if self._candidate is not None or self._starting is not None:
            running = (
                "one starts" if self._candidate is None else f"that of {self._candidate.canary.candidate.label} runs"
            )
            raise ConfigurationError(f"There is one canary at a time, and {running}.", next_step="spanloop canary stop")
        if status.state is not EngineState.SERVING or status.deployment is None:
            raise ConfigurationError(
                f"The gateway serves no champion to compare with: its engine is {status.state}.",
                next_step="spanloop models deploy NAME",
            )
        canary = Canary.request(body, status.deployment.label)
        self._starting = canary
        try:
            candidate = self._make_candidate(canary)
            try:
                await candidate.serve()
                # The sessions that began while the engine started stay with the champion.
                canary = candidate.canary = canary.started_now()
                self._file.write(canary)
            except BaseException:
                await candidate.end()
                raise
            self._candidate = candidate
        finally:
            self._starting = None
        _log.info("the canary of %s begins: %s of the %s", canary.candidate.label, canary.share, canary.mode)
        return canary

    async def end(self) -> Canary | None:
        """End the canary that runs, if any: the champion answers everything."""
        candidate, self._candidate = self._candidate, None
        if candidate is None:
            return None
        self._file.remove()
        await candidate.end()
        _log.info("the canary of %s is over", candidate.canary.candidate.label)
        return candidate.canary

    async def end_before(self, label: str) -> None:
        """End the canary whose candidate is about to be deployed into the engine that it shares with the champion."""
        candidate = self._candidate
        if candidate is not None and candidate.is_shared and candidate.canary.candidate.label == label:
            await self.end()

    async def end_after(self, label: str) -> None:
        """End the canary whose candidate was deployed: it is the champion."""
        if self._candidate is not None and self._candidate.canary.candidate.label == label:
            await self.end()

    async def end_with(self, name: str) -> None:
        """End the canary of a model that is about to be stopped."""
        if self._candidate is not None and self._candidate.canary.candidate.name == name:
            await self.end()

    async def suspend(self, reason: UnavailableError) -> None:
        """Free the memory of all engines; ConfigurationError: the champion's is an external server."""
        if self._candidate is not None and self._lifecycle.can_restart:
            await self._candidate.suspend(reason)
        await self._lifecycle.suspend(reason)

    async def resume(self) -> None:
        """Start the engines that `suspend` stopped."""
        await self._lifecycle.resume()
        if self._candidate is not None:
            await self._candidate.resume()

    async def close(self) -> None:
        """Stop the candidate's engine, because the gateway ends; the next process continues the canary."""
        if self._candidate is not None:
            await self._candidate.lifecycle.close()
        self._sessions.close()

    def route(self, model: str, session: str) -> RoutedCall:
        """Decide which version answers a call.

        Args:
            model: The name that it asks for; empty for any.
            session: Its session; empty without one.
        """
        first_seen_s = self._sessions.first_seen_s(session, time.time()) if session else 0.0
        candidate = self._candidate
        if candidate is None:
            return RoutedCall(self._champion)
        canary = candidate.canary
        if model == canary.candidate.label:
            return RoutedCall(self._champion, candidate, session)
        champion_name = canary.champion.partition("@")[0]
        first = self._lifecycle.status.deployment
        unnamed = {"", SERVED_NAME} if first is None or first.name == champion_name else set[str]()
        if model not in {champion_name, *unnamed}:
            return RoutedCall(self._champion)
        if canary.mode is CanaryMode.SHADOW:
            is_copied = secrets.randbelow(_PARTS) < canary.share * _PARTS
            return RoutedCall(self._champion, shadow=candidate if is_copied else None)
        if not session or first_seen_s < canary.started_s:
            return RoutedCall(self._champion)
        arm = Arm.CANDIDATE if canary.takes(session, first_seen_s) else Arm.CHAMPION
        return RoutedCall(self._champion, candidate, session, arm)

    def fell_back(self, session: str) -> None:
        """Let a session that the candidate failed stay with the champion."""
        self._sessions.age(session)
