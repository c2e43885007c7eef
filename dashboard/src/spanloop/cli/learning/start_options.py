"""When a job of ``spanloop train`` starts: now, once at a time, or repeatedly."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

import typer

if TYPE_CHECKING:
    from spanloop.training.run.job_api import ScheduleSettings


class StartOptions(NamedTuple):
    """The options that say when it starts, as they were given."""

    at: datetime | None
    cron: str | None
    every: str | None
    after_transitions: int | None
    when_failures: str | None
    budget: str | None

    @property
    def repeats(self) -> bool:
        """Whether a schedule submits the job again and again."""
        return any(each is not None for each in (self.cron, self.every, self.after_transitions, self.when_failures))

    @property
    def is_scheduled(self) -> bool:
        """Whether the job starts later."""
        return self.at is not None or self.repeats

    @property
    def starts_at(self) -> datetime | None:
        """The time of ``--at``, aware; the option has the local one."""
        return self.at.astimezone() if self.at else None

    def check(self, *, wait: bool, foreground: bool) -> None:
        """Refuse options that contradict each other.

        Raises:
            typer.BadParameter: It says which.
        """
        triggers = (self.at, self.cron, self.every, self.after_transitions, self.when_failures)
        if sum(each is not None for each in triggers) > 1:
            raise typer.BadParameter("give one of --at, --cron, --every, --after-transitions and --when-failures")
        if self.budget is not None and not self.repeats:
            raise typer.BadParameter("--budget is of a job that starts repeatedly, such as with --every 6h")
        if self.starts_at is not None and self.starts_at < datetime.now(UTC):
            raise typer.BadParameter(f"{self.starts_at:%Y-%m-%d %H:%M %Z} has passed; leave --at out to start now")
        if wait and self.is_scheduled:
            raise typer.BadParameter("--wait watches a job that starts now; leave out --at, --cron and the like")
        if foreground and (self.is_scheduled or wait):
            raise typer.BadParameter(
                "--foreground runs the job now and here; leave out --at, --cron, --wait and the like"
            )

    def settings(self) -> "ScheduleSettings":
        """Return the schedule's settings.

        Raises:
            ConfigurationError: An option cannot be read.
        """
        from spanloop.training.jobs.schedules.schedule_settings import (
            Budget,
            FailureTrigger,
            ScheduleSettings,
            parse_interval,
        )

        return ScheduleSettings(
            every_minutes=None if self.every is None else parse_interval(self.every),
            after_transitions=self.after_transitions,
            when_failures=None if self.when_failures is None else FailureTrigger.parse(self.when_failures),
            budget=None if self.budget is None else Budget.parse(self.budget),
        )
