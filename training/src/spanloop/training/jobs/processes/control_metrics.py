"""Metrics of schedulers and job runners.

Invariant: what the control database knows (jobs, ticks) is read from it when it is asked for, so every scheduler shows
the same, also one that does not lead; only what a process did itself is counted in it.
"""

from typing import Final

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from spanloop.foundation.control.clock import database_time
from spanloop.foundation.errors import DataDirectoryError
from spanloop.foundation.telemetry import metrics
from spanloop.training.jobs.schedules.outcome import TickOutcome
from spanloop.training.jobs.states import JobState

from ..database.control_database import ControlDatabase
from ..database.tables import AlertDeliveryRow, AlertRow, JobRow, TickRow
from .job_runner import JobRunner
from .scheduler_loop import Scheduler

_OF_A_RUNNER: Final[metrics.Families] = {
    "running_jobs": ("gauge", "Jobs that run here now."),
    "slots": ("gauge", "Jobs that may run here at the same time."),
    "gpu_slots": ("gauge", "Of them, jobs that may compute on a GPU."),
    "ended_total": ("counter", "Attempts that ended here, by the state of the job after it."),
    "control_up": ("gauge", "Whether the control database answered when the metrics were read."),
}
_OF_A_SCHEDULER: Final[metrics.Families] = {
    "leading": ("gauge", "1 on the scheduler that decides."),
    "jobs": ("gauge", "Jobs in the control database, by state."),
    "oldest_queued_seconds": ("gauge", "Age of the oldest queued job; 0 when there is none."),
    "ticks": ("gauge", "Ticks of all schedules that the control database remembers, by outcome."),
    "alerts_firing": ("gauge", "Alerts whose condition holds."),
    "alert_messages_waiting": ("gauge", "Messages of alerts that no receiver has taken yet."),
    **_OF_A_RUNNER,
}


class RunnerMetrics(metrics.Metrics):
    """Metrics of a process that runs jobs.

    Args:
        prefix: Of all names.
        families: All metrics.
    """

    def __init__(self, prefix: str = "spanloop_runner_", families: metrics.Families = _OF_A_RUNNER) -> None:
        super().__init__(prefix, families)
        self._database: ControlDatabase | None = None
        self._jobs: JobRunner | None = None
        self.set("control_up", 0)

    def watch(self, database: ControlDatabase, jobs: JobRunner | None) -> None:
        """Measure the control database, and the runner if there is one, from now on."""
        self._database, self._jobs = database, jobs

    def measure(self) -> None:
        """Set all values; an unreachable database is one of them."""
        if self._jobs is not None:
            settings = self._jobs.settings
            self.set("running_jobs", len(self._jobs.running))
            self.set("slots", settings.slots)
            self.set("gpu_slots", settings.slots if settings.gpu_slots is None else settings.gpu_slots)
            for state, count in self._jobs.ended.items():
                self.set("ended_total", count, state=str(state))
        if self._database is None:
            return
        try:
            with self._database.read() as session:
                self._measure(session)
        except DataDirectoryError:
            self.set("control_up", 0)
        else:
            self.set("control_up", 1)

    def _measure(self, session: Session) -> None:
        database_time(session)


class SchedulerMetrics(RunnerMetrics):
    """Metrics of a scheduler."""

    def __init__(self) -> None:
        super().__init__("spanloop_scheduler_", _OF_A_SCHEDULER)
        self._scheduler: Scheduler | None = None
        self.set("leading", 0)

    def watch_scheduler(self, scheduler: Scheduler) -> None:
        """Measure the scheduler, its database and its runner from now on."""
        self._scheduler = scheduler
        self.watch(scheduler.database, scheduler.jobs)

    def measure(self) -> None:
        """Set all values; an unreachable database is one of them."""
        if self._scheduler is not None:
            self.set("leading", int(self._scheduler.is_leading()))
        super().measure()

    def _measure(self, session: Session) -> None:
        states = select(JobRow.state, func.count()).group_by(JobRow.state)
        jobs = {str(state): int(count) for state, count in session.execute(states)}
        for state in JobState:
            self.set("jobs", jobs.get(str(state), 0), state=str(state))
        queued = select(func.min(JobRow.created_at)).where(JobRow.state == str(JobState.QUEUED))
        oldest = session.scalar(queued)
        age_s = 0.0 if oldest is None else (database_time(session) - oldest).total_seconds()
        self.set("oldest_queued_seconds", round(max(0.0, age_s), 3))
        outcomes = select(TickRow.verdict, func.sum(TickRow.times)).group_by(TickRow.verdict)
        ticks = {str(outcome): int(times) for outcome, times in session.execute(outcomes)}
        for outcome in TickOutcome:
            self.set("ticks", ticks.get(str(outcome), 0), verdict=str(outcome))
        firing = select(func.count()).where(AlertRow.resolved_at.is_(None))
        self.set("alerts_firing", session.execute(firing).scalar_one())
        waiting = select(func.count()).where(AlertDeliveryRow.next_at.is_not(None))
        self.set("alert_messages_waiting", session.execute(waiting).scalar_one())
