"""When the next round of a loop begins.

Invariant: times that passed while no loop ran, or while a round ran, are not made up for.
"""

from datetime import datetime, timedelta
from typing import NamedTuple, Self

from spanloop.foundation.errors import ConfigurationError
from spanloop.training.jobs.schedules.schedule_settings import parse_interval
from spanloop.training.jobs.schedules.stored_schedules import check_cron, next_firing


class Timetable(NamedTuple):
    """At most one of both; without one a round begins when the one before has ended."""

    cron: str = ""
    """Five cron fields, in UTC."""
    every_minutes: float | None = None
    """From the beginning of a round to that of the next one."""

    @classmethod
    def parse(cls, cron: str, every: str) -> Self:
        """Read the options of the command line; both may be empty.

        Raises:
            ConfigurationError: One is invalid, or both are given.
        """
        if cron and every:
            raise ConfigurationError("--cron and --every both say when a round begins.", next_step="Give one of them.")
        return cls(check_cron(cron) if cron else "", parse_interval(every) if every else None)

    @property
    def repeats(self) -> bool:
        """Whether rounds begin at times."""
        return bool(self.cron) or self.every_minutes is not None

    def next_at(self, last: datetime | None, now: datetime) -> datetime:
        """Return when the next round begins.

        Args:
            last: When the last round began; None before the first.
            now: The current time.
        """
        if self.cron:
            return next_firing(self.cron, now)
        if self.every_minutes is None or last is None:
            return now
        return max(now, last + timedelta(minutes=self.every_minutes))
