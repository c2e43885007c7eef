"""Pause serving while a job trains, and resume it afterwards.

Invariant: the gateway keeps its engine stopped only as long as this process renews the pause every few seconds. So
however the job ends (success, failure, cancellation, kill), the gateway resumes serving; a restarted job pauses again.
"""

from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import httpx

from spanloop.foundation.errors import JobError, NotRunningError, SpanloopError
from spanloop.foundation.leases import Heartbeat

from .deploy import GatewayAdmin, pause_holder, response_text

RENEW_S: Final = 5.0
TTL_S: Final = 30.0
"""Duration of the pause after the last renewal: long enough to restart a killed job."""
HAND_OVER_TTL_S: Final = 300.0
"""Duration of the pause before the deployment that ends it; a large model is copied first."""
_STOP_TIMEOUT_S: Final = 180.0
"""The gateway completes running requests first."""
_RESUME_TIMEOUT_S: Final = 3.0
"""A cancelled job has 8 s to end."""


class ServingPause:
    """A context manager that resumes on exit what ``begin`` paused.

    Args:
        root: The data directory.
        job_id: The job that trains.
        on_progress: Called with each progress line for the job's log.
        renew_s: Interval between renewals.
        ttl_s: Duration of the pause after a renewal.
    """

    def __init__(
        self,
        root: Path,
        job_id: str,
        on_progress: Callable[[str], None],
        *,
        renew_s: float = RENEW_S,
        ttl_s: float = TTL_S,
    ) -> None:
        self._root = root
        self._job_id = job_id
        self._on_progress = on_progress
        self._renew_s = renew_s
        self._ttl_s = ttl_s
        self._renewal: Heartbeat | None = None

    def begin(self) -> None:
        """Stop the engine; return when its memory is free. Does nothing without a gateway, or when it has begun.

        Raises:
            JobError: The gateway uses an external server, or did not stop in time.
            SpanloopError: The gateway rejected the request.
        """
        if self._renewal is not None:
            return
        try:
            state = self._pause(self._ttl_s)
        except NotRunningError:
            # The next renewal pauses a gateway that starts later.
            self._on_progress("no gateway runs, so no serving is paused")
        except httpx.HTTPError as error:
            raise JobError(
                f"Job {self._job_id}: the gateway did not stop its engine: {type(error).__name__}: {error}.",
                next_step=f"See {self._root / 'logs' / 'gateway.log'}, or train without pausing.",
            ) from error
        else:
            self._on_progress(f"serving is paused while this job trains (engine: {state})")
        self._renewal = Heartbeat(lambda: self._renew_once(self._ttl_s), self._renew_s, name="serving-pause").start()

    def hand_over(self) -> None:
        """Stop renewing, because the following deployment starts the engine."""
        if self._end_renewal():
            self._renew_once(HAND_OVER_TTL_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """Serve again what was paused; does nothing when nothing is."""
        if self._renewal is None:
            return
        self._end_renewal()
        self._renewal = None
        try:
            GatewayAdmin.find(self._root).post(
                "resume", {"holder": pause_holder(self._job_id)}, timeout_s=_RESUME_TIMEOUT_S
            )
        except (SpanloopError, httpx.HTTPError) as failure:
            # The job's outcome is more important, and the pause expires.
            self._on_progress(f"the gateway could not be resumed ({failure}); it serves again when the pause expires")
        else:
            self._on_progress("serving is resumed")

    def _pause(self, ttl_s: float) -> str:
        """Pause serving and return the engine's state."""
        body = {"holder": pause_holder(self._job_id), "ttl_s": ttl_s}
        response = GatewayAdmin.find(self._root).post("pause", body, timeout_s=_STOP_TIMEOUT_S)
        if not response.is_success:
            raise JobError(
                f"Job {self._job_id} requests pause_serving, which the gateway rejected ({response.status_code}): "
                f"{response_text(response)}",
                next_step="Submit it again without pause_serving; stop the server manually if its memory is needed.",
            )
        return str(response.json()["state"])

    def _renew_once(self, ttl_s: float) -> bool:
        try:
            self._pause(ttl_s)
        except (SpanloopError, httpx.HTTPError):
            # A gateway that is restarting receives the next renewal.
            return True
        return True

    def _end_renewal(self) -> bool:
        """Stop the renewal thread; return whether it was running."""
        return self._renewal is not None and self._renewal.stop(_RESUME_TIMEOUT_S)
