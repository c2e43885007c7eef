"""The job API of the command line, the dashboard and users' scripts: submit, cancel, retry and schedule training jobs.

Invariant: it only writes requests (a queued job, a cancellation, a schedule) into the control database; only the
scheduler starts and ends processes. Needs SQLAlchemy and pydantic; no torch, verl or ray.
"""

import os
from datetime import datetime
from functools import partial
from typing import Final

from spanloop.foundation.control.clock import Clock, utc_now
from spanloop.foundation.errors import ConfigurationError
from spanloop.training.jobs import job_queue
from spanloop.training.jobs.entities import Tick, job_from_row, schedule_from_row, skip_unreadable, tick_from_row
from spanloop.training.jobs.job_queue import Kinds
from spanloop.training.jobs.leases import JobLeaseLostError
from spanloop.training.jobs.paths import HasPath
from spanloop.training.jobs.queue_api import QueueApi
from spanloop.training.jobs.schedules import schedule_ticks
from spanloop.training.jobs.schedules import stored_schedules as schedules
from spanloop.training.jobs.schedules.schedule_settings import (
    Budget,
    FailureTrigger,
    LoopFile,
    ScheduleSettings,
    parse_interval,
)
from spanloop.training.jobs.schedules.stored_schedules import check_cron, check_instant, next_firing
from spanloop.training.jobs.states import JobState
from spanloop.training.models.registry import Registry
from spanloop.training.promotion.submission_checks import check_extensions
from spanloop.training.spec.choices import Backbone, Device
from spanloop.training.spec.job_spec import JobSpec
from spanloop.training.spec.stored_spec import EVALUATE, Job, Schedule, parse_spec
from spanloop.training.verl_plugin.override_check import check_verl

__all__ = [
    "Backbone",
    "Budget",
    "Device",
    "FailureTrigger",
    "Job",
    "JobApi",
    "JobLeaseLostError",
    "JobSpec",
    "JobState",
    "LoopFile",
    "Schedule",
    "ScheduleSettings",
    "Tick",
    "parse_interval",
]

NO_SETTINGS: Final = ScheduleSettings()

_job = partial(job_from_row, parse_spec=parse_spec)
_schedule = partial(schedule_from_row, parse_spec=parse_spec)


class JobApi(QueueApi[JobSpec]):
    """Submits, lists, cancels and schedules training jobs.

    Thread-safe and cheap to construct.

    Args:
        data_dir: The data directory, or its path; it must exist.
        clock: Returns the current time.

    Raises:
        ConfigurationError: ``SPANLOOP_CONTROL_URL`` cannot be used.
        DataDirectoryError: The control database is unreachable, or a newer spanloop wrote it.
    """

    def __init__(self, data_dir: str | os.PathLike[str] | HasPath, *, clock: Clock = utc_now) -> None:
        super().__init__(data_dir, parse_spec, kinds=Kinds(without=EVALUATE), clock=clock)
        self._registry = Registry(data_dir)

    def submit(self, spec: JobSpec) -> Job:
        """Queue a job; a running scheduler starts it when it is the next job.

        Raises:
            JobError: ``spec.base`` names no registered model version, or one that was pruned; or the selector cannot be
                used.
            ConfigurationError: verl is installed here and does not have what ``verl`` or ``loggers`` ask for;
                or the job deploys, and the reader or grader of ``[evaluation]`` cannot be used.
        """
        check_verl(spec)
        self._registry.require_weights(self._registry.get(spec.base))
        check_extensions(spec, self._paths.root)
        with self._database.write() as session:
            return _job(job_queue.insert_job(session, spec, now=self._clock()))

    def schedule(
        self,
        spec: JobSpec,
        *,
        cron: str | None = None,
        at: datetime | None = None,
        settings: ScheduleSettings = NO_SETTINGS,
    ) -> Schedule:
        """Submit ``spec`` whenever its trigger says so and there is new data, or once at a given time.

        Args:
            spec: The job. Its base model is resolved when the job runs.
            cron: Five cron fields (minute hour day month weekday), in UTC.
            at: An aware time; a past time is due at once. The job is submitted whatever data there is.
            settings: An interval, a condition on the data, a budget; a loop whose rounds begin instead of the job.

        Raises:
            ConfigurationError: There is no trigger or more than one, the schedule never ticks, verl is installed here
                and does not have what ``verl`` or ``loggers`` ask for, or the job deploys, and the reader or
                grader of ``[evaluation]`` cannot be used.
            JobError: The selector cannot be used.
        """
        check_verl(spec)
        check_extensions(spec if settings.loop is None else spec.changed(deploy=False), self._paths.root)
        now = self._clock()
        triggers = (
            cron,
            at,
            settings.every_minutes,
            settings.after_transitions,
            settings.when_failures,
        )
        if sum(trigger is not None for trigger in triggers) != 1:
            raise ConfigurationError(
                "A schedule needs exactly one trigger: a cron expression, a time, an interval, a number of new "
                "transitions, or a condition on failures.",
                next_step="Pass cron='0 3 * * *' or at=datetime(…, tzinfo=UTC), or one of the settings.",
            )
        normalised_cron = ""
        if cron is not None:
            normalised_cron = check_cron(cron)
            next_at = next_firing(normalised_cron, now)
        elif at is not None:
            next_at = check_instant(at)
        else:
            next_at = now
        if at is not None and settings.budget is not None:
            raise ConfigurationError("A budget is of a schedule that submits more than one job.")
        if settings.loop is not None and (settings.budget is not None or settings.after_transitions is not None):
            raise ConfigurationError(
                "A round of a loop has the [budget] of its file, and makes its transitions itself.",
                next_step="Leave out the budget, and give cron, at, an interval or a condition on failures.",
            )
        with self._database.write() as session:
            row = schedules.insert_schedule(
                session, spec, cron=normalised_cron, settings=settings, next_at=next_at, now=now
            )
            return _schedule(row)

    def schedules(self) -> tuple[Schedule, ...]:
        """Return all schedules, oldest first; schedules without another firing have no ``next_at``.

        Schedules that another version of spanloop stored are logged and skipped.
        """
        with self._database.read() as session:
            return tuple(skip_unreadable(schedules.list_schedules(session), _schedule))

    def get_schedule(self, schedule_id: str) -> Schedule:
        """Return a schedule.

        Raises:
            JobError: There is no such schedule.
            DataDirectoryError: Another version of spanloop stored it.
        """
        with self._database.read() as session:
            return _schedule(schedules.find_schedule(session, schedule_id))

    def jobs_of_schedule(self, schedule_id: str | None) -> frozenset[str]:
        """Return the ids of all jobs that a schedule submitted; none for None."""
        if schedule_id is None:
            return frozenset()
        with self._database.read() as session:
            return frozenset(session.scalars(job_queue.jobs_of_schedule(schedule_id)))

    def ticks(self, schedule_id: str, *, limit: int = 20) -> tuple[Tick, ...]:
        """Return what the last ticks of a schedule did, newest first; none before the first one."""
        with self._database.read() as session:
            rows = session.scalars(schedule_ticks.list_ticks(schedule_id).limit(limit))
            return tuple(tick_from_row(row) for row in rows)

    def obstacle(self, schedule: Schedule) -> str:
        """Return why a schedule may not submit a job now, whatever data there is; empty if it may."""
        with self._database.read() as session:
            return schedule_ticks.find_obstacle(session, schedule, now=self._clock())

    def pause(self, schedule_id: str) -> Schedule:
        """Let a schedule tick no more until it is resumed; its open job goes on.

        Raises:
            JobError: There is no such schedule.
        """
        with self._database.write() as session:
            row = schedules.find_schedule(session, schedule_id)
            schedules.pause_schedule(row, now=self._clock())
            return _schedule(row)

    def resume(self, schedule_id: str) -> Schedule:
        """Let a paused schedule tick again from its next time on; what it missed is not made up for.

        Raises:
            JobError: There is no such schedule.
        """
        with self._database.write() as session:
            row = schedules.find_schedule(session, schedule_id)
            schedules.resume_schedule(row, _schedule(row).settings, now=self._clock())
            return _schedule(row)

    def unschedule(self, schedule_id: str) -> None:
        """Delete a schedule; the jobs that it submitted stay.

        Raises:
            JobError: There is no such schedule.
        """
        with self._database.write() as session:
            schedules.delete_schedule(session, schedule_id)
