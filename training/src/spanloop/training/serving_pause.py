"""Serving stopped while a job trains, and its return.

The invariant: the gateway keeps its engine stopped only as long as this process says so every few seconds. So whatever
becomes of the job (done, failed, cancelled, killed for good), the model is served again by itself; a job that is
started again after a kill pauses it anew.
"""

from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from types import TracebackType
from typing import Final, Self

import httpx

from spanloop.semconv.errors import JobError, NotRunningError, SpanloopError

from .deploy import pause_holder
from .gateway_admin import GatewayAdmin, said

RENEW_S: Final = 5.0
TTL_S: Final = 30.0
"""How long serving stays stopped after the last renewal: time enough to start a killed job again."""
HAND_OVER_TTL_S: Final = 300.0
"""For the deployment of the new version, which ends the pause; a large model is copied first."""
_STOP_TIMEOUT_S: Final = 180.0
"""The gateway lets running requests finish."""
_RESUME_TIMEOUT_S: Final = 3.0
"""A cancelled job has 8 s for all of its end."""


class ServingPause:
    """A context manager that gives back on leaving what ``begin`` took.

    Args:
        root: The data directory.
        job_id: The job that trains.
        say: Writes into the job's log.
        renew_s: Between two renewals.
        ttl_s: For how long the gateway believes one.
    """

    def __init__(
        self,
        root: Path,
        job_id: str,
        say: Callable[[str], None],
        *,
        renew_s: float = RENEW_S,
        ttl_s: float = TTL_S,
    ) -> None:
        self._root = root
        self._job_id = job_id
        self._say = say
        self._renew_s = renew_s
        self._ttl_s = ttl_s
        self._ended = Event()
        self._renewal: Thread | None = None

    def begin(self) -> None:
        """Have the engine stopped; returns when its memory is free. Without a gateway there is nothing to stop.

        Raises:
            JobError: The gateway serves from somebody else's server, or did not stop in time.
            SpanloopError: The gateway refused.
        """
        try:
            state = self._pause(self._ttl_s)
        except NotRunningError:
            # One that comes up later is paused by the next renewal.
            self._say("no gateway runs, so no serving is paused")
        except httpx.HTTPError as error:
            raise JobError(
                f"Job {self._job_id}: the gateway did not stop its engine: {type(error).__name__}: {error}.",
                next_step=f"See {self._root / 'logs' / 'gateway.log'}, or train without pausing.",
            ) from error
        else:
            self._say(f"serving is paused while this job trains (engine: {state})")
        self._renewal = Thread(target=self._keep, name="serving-pause", daemon=True)
        self._renewal.start()

    def hand_over(self) -> None:
        """Renew no longer, because a deployment follows that starts the engine."""
        if self._end_renewal():
            self._renew_once(HAND_OVER_TTL_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._renewal is None:
            return
        self._end_renewal()
        try:
            GatewayAdmin.find(self._root).post(
                "resume", {"holder": pause_holder(self._job_id)}, timeout_s=_RESUME_TIMEOUT_S
            )
        except (SpanloopError, httpx.HTTPError) as failure:
            # The job's own outcome counts more, and the gateway forgets the pause by itself.
            self._say(f"the gateway was not told that the job has ended ({failure}); it serves again by itself")
        else:
            self._say("serving goes on")

    def _pause(self, ttl_s: float) -> str:
        """The engine's state."""
        body = {"holder": pause_holder(self._job_id), "ttl_s": ttl_s}
        answer = GatewayAdmin.find(self._root).post("pause", body, timeout_s=_STOP_TIMEOUT_S)
        if not answer.is_success:
            raise JobError(
                f"Job {self._job_id} asks for pause_serving, which the gateway refused ({answer.status_code}): "
                f"{said(answer)}",
                next_step="Submit it again without pause_serving; stop the server by hand if its memory is needed.",
            )
        return str(answer.json()["state"])

    def _keep(self) -> None:
        while not self._ended.wait(self._renew_s):
            self._renew_once(self._ttl_s)

    def _renew_once(self, ttl_s: float) -> None:
        try:
            self._pause(ttl_s)
        except (SpanloopError, httpx.HTTPError):
            # A gateway that is being restarted answers the next one.
            return

    def _end_renewal(self) -> bool:
        """Whether renewals were under way."""
        was_running = self._renewal is not None and not self._ended.is_set()
        self._ended.set()
        if self._renewal is not None:
            self._renewal.join(_RESUME_TIMEOUT_S)
        return was_running
