"""Why the scheduler ends a running attempt: its job ran too long, or a process of it is stopped.

Invariant: a reason stays once it is found. A stopped process (SIGSTOP) never ends by itself and keeps its lease,
because the scheduler renews it; whatever else hangs in a training is found by ``stall_minutes``.
"""

import time
from datetime import datetime, timedelta
from typing import Final, NamedTuple

import psutil

from spanloop.foundation.processes.marked import find_processes
from spanloop.training.jobs.entities import StoredJob
from spanloop.training.jobs.processes.process_launch import RunningJob
from spanloop.training.jobs.queued_spec import QueuedSpec

_LOOK_EVERY_S: Final = 10.0


class Ending(NamedTuple):
    """Why an attempt is ended."""

    error: str
    is_final: bool
    """Whether the job fails; otherwise it is started again, as after a kill."""


class AttemptLimits:
    """The limits of one attempt, and whether it takes a GPU's slot.

    Args:
        job: The job when the attempt starts.
        started_at: When it starts.
        stopped_s: A process of the job that is stopped for so long counts as lost.
    """

    def __init__(self, job: StoredJob[QueuedSpec], *, started_at: datetime, stopped_s: float) -> None:
        self.ending: Ending | None = None
        self.uses_gpu = job.spec.uses_gpu
        self.max_attempts = job.spec.max_attempts
        self._minutes = job.spec.max_runtime_minutes
        left = None if self._minutes is None else timedelta(minutes=self._minutes, seconds=-job.ran_s)
        self._deadline = None if left is None else started_at + left
        self._stopped_s = stopped_s
        self._stopped_since_s: float | None = None
        self._look_every_s = min(_LOOK_EVERY_S, stopped_s / 2)
        self._next_look_s = time.monotonic() + self._look_every_s

    def look(self, running: RunningJob, now: datetime) -> Ending | None:
        """Return why the attempt has to end; None while it may go on."""
        if self.ending is None and self._deadline is not None and now >= self._deadline:
            self.ending = Ending(
                f"The job ran for max_runtime_minutes, {self._minutes:g} minutes, and was ended. Submit it with a "
                "higher limit; jobs retry gives it the same time again, from its last checkpoint.",
                is_final=True,
            )
        if self.ending is None and time.monotonic() >= self._next_look_s:
            self._next_look_s = time.monotonic() + self._look_every_s
            self._look_for_stopped(running)
        return self.ending

    def _look_for_stopped(self, running: RunningJob) -> None:
        stopped = [each.pid for each in find_processes(running.leader, running.mark) if _is_stopped(each.pid)]
        if not stopped:
            self._stopped_since_s = None
            return
        self._stopped_since_s = self._stopped_since_s or time.monotonic()
        stopped_s = time.monotonic() - self._stopped_since_s
        if stopped_s >= self._stopped_s:
            self.ending = Ending(
                f"Process {stopped[0]} of the job was stopped (SIGSTOP) for {stopped_s:.0f} s.", is_final=False
            )


def _is_stopped(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_STOPPED
    except psutil.Error:
        return False
