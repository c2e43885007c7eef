"""What makes a schedule submit its job besides cron and a time: an interval, new data, failures; and its budget.

Invariant: a schedule has exactly one trigger. A setting is written as a text that says what it does, and the same text
is shown.
"""

import re
from datetime import timedelta
from enum import StrEnum
from typing import Final, Self

from pydantic import BaseModel, ConfigDict, Field

from spanloop.foundation.errors import ConfigurationError

CHECK_INTERVAL: Final = timedelta(minutes=5)
"""How often the data is looked at for a schedule that waits for data."""
_MINUTES: Final = {"m": 1, "h": 60, "d": 24 * 60}
_INTERVAL: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([mhd])")
_FAILURES: Final = re.compile(
    r"(?P<failure_class>\S+)(?: of (?P<agent>.+?))? above (?P<percent>\d+(?:\.\d+)?) ?%"
    r" of (?:the last )?(?P<episodes>\d+)(?: episodes)?"
)
_BUDGET: Final = re.compile(r"(?P<amount>\d+) ?(?P<unit>jobs?|minutes?)(?:/| a | per )(?P<period>week|month)")


class BudgetUnit(StrEnum):
    """What a budget counts."""

    JOBS = "jobs"
    MINUTES = "minutes"
    """Run time of the schedule's jobs."""


class BudgetPeriod(StrEnum):
    """Over which time a budget counts, back from now."""

    WEEK = "week"
    MONTH = "month"

    @property
    def length(self) -> timedelta:
        """Seven days, or thirty."""
        return timedelta(days=7 if self is BudgetPeriod.WEEK else 30)


class Budget(BaseModel):
    """The most that a schedule may use in a period."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    amount: int = Field(ge=1)
    unit: BudgetUnit
    period: BudgetPeriod

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``3 jobs/week`` or ``600 minutes/month``.

        Raises:
            ConfigurationError: It is no budget.
        """
        match = _BUDGET.fullmatch(text.strip())
        if match is None or not int(match["amount"]):
            raise ConfigurationError(
                f"{text!r} is no budget.", next_step="Write '3 jobs/week' or '600 minutes/month', for example."
            )
        unit = BudgetUnit.JOBS if match["unit"].startswith("job") else BudgetUnit.MINUTES
        return cls(amount=int(match["amount"]), unit=unit, period=BudgetPeriod(match["period"]))

    def __str__(self) -> str:
        return f"{self.amount} {self.unit}/{self.period}"


class FailureTrigger(BaseModel):
    """A failure class is in more than a share of the last episodes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    failure_class: str = Field(min_length=1)
    agent: str = ""
    """Of this agent (``gen_ai.agent.name``); empty for all."""
    percent: float = Field(ge=0, lt=100, allow_inf_nan=False)
    episodes: int = Field(ge=1, le=1_000_000)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``unknown_tool of planner above 20% of 50``; without ``of planner`` every agent counts.

        Raises:
            ConfigurationError: It is no such condition.
        """
        match = _FAILURES.fullmatch(text.strip())
        if match is None or float(match["percent"]) >= 100 or not 1 <= int(match["episodes"]) <= 1_000_000:
            raise ConfigurationError(
                f"{text!r} is no condition on failures.",
                next_step="Write 'CLASS of AGENT above 20% of 50' or 'CLASS above 20% of 50': more than 20 % of the "
                "last 50 episodes have a failure of this class.",
            )
        return cls(
            failure_class=match["failure_class"],
            agent=match["agent"] or "",
            percent=float(match["percent"]),
            episodes=int(match["episodes"]),
        )

    def __str__(self) -> str:
        agent = f" of {self.agent}" if self.agent else ""
        return f"{self.failure_class}{agent} above {self.percent:g}% of the last {self.episodes} episodes"


class LoopFile(BaseModel):
    """The file of a loop whose rounds a schedule begins."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str = Field(min_length=1)
    """Absolute path of the ``app.toml``."""
    model: str = Field(min_length=1)
    """The name of its ``[model]``."""


class ScheduleSettings(BaseModel):
    """The settings of a schedule that are stored as JSON; at most one of the first three is its trigger."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    every_minutes: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    after_transitions: int | None = Field(default=None, ge=1)
    when_failures: FailureTrigger | None = None
    budget: Budget | None = None
    loop: LoopFile | None = None
    """A tick begins a round of this loop, or continues an open one, and submits no job."""

    @property
    def waits_for_data(self) -> bool:
        """Whether the data decides when its job is submitted, instead of the clock."""
        return self.after_transitions is not None or self.when_failures is not None

    @property
    def interval(self) -> timedelta | None:
        """The time between its ticks; None for a cron expression or a single time."""
        if self.every_minutes is not None:
            return timedelta(minutes=self.every_minutes)
        return CHECK_INTERVAL if self.waits_for_data else None

    @property
    def trigger_text(self) -> str:
        """The trigger, as a user writes it; empty for a cron expression or a single time."""
        if self.every_minutes is not None:
            return f"every {interval_text(self.every_minutes)}"
        if self.after_transitions is not None:
            return f"after {self.after_transitions:,} new transitions"
        return f"when {self.when_failures}" if self.when_failures is not None else ""


def parse_interval(text: str) -> float:
    """Return the minutes of ``30m``, ``6h`` or ``1d``.

    Raises:
        ConfigurationError: It is no interval of at least one minute.
    """
    match = _INTERVAL.fullmatch(text.strip())
    minutes = float(match[1]) * _MINUTES[match[2]] if match else 0.0
    if minutes < 1 or minutes > 1e6:
        raise ConfigurationError(
            f"{text!r} is no interval of at least a minute.", next_step="Write 30m, 6h or 1d, for example."
        )
    return minutes


def interval_text(minutes: float) -> str:
    """Return an interval as `parse_interval` reads it."""
    unit = next((unit for unit in ("d", "h") if minutes % _MINUTES[unit] == 0), "m")
    return f"{minutes / _MINUTES[unit]:g}{unit}"
