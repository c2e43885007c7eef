"""Draw the control that says when a job starts: now, at a time, or repeatedly by one of the triggers of a schedule."""
# pyright: reportUnknownMemberType=false

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import streamlit as st

from spanloop.dashboard import resources
from spanloop.dashboard.view_models.jobs import When, as_utc
from spanloop.training.run.job_api import Budget, FailureTrigger, ScheduleSettings, parse_interval

_WHEN: Final[tuple[When, ...]] = ("Now", "At a time", "Repeatedly")
_CRON: Final = "Cron"
_TRIGGERS: Final = {
    _CRON: ("Cron (UTC)", "0 3 * * *", "minute hour day month weekday; 0 3 * * * is every night at three"),
    "Interval": ("Every", "6h", "30m, 6h or 1d"),
    "New transitions": ("After", "500", "model calls that can be trained on and that no job of the schedule has used"),
    "Failures": (
        "When",
        "timeout above 20% of 50",
        "CLASS of AGENT above 20% of 50: more than 20 % of the agent's last 50 episodes; without “of AGENT”, of all",
    ),
}
"""Label, first text and help of each trigger."""


@dataclass(frozen=True, slots=True)
class Start:
    """When the job starts: now when nothing is set. Texts are as the user wrote them."""

    at: datetime | None = None
    trigger: str = ""
    text: str = ""
    budget: str = ""

    @property
    def cron(self) -> str | None:
        """The cron expression; None for another trigger."""
        return self.text if self.trigger == _CRON else None

    def settings(self) -> ScheduleSettings:
        """Return the schedule's settings.

        Raises:
            ConfigurationError: A text cannot be read.
        """
        return ScheduleSettings(
            every_minutes=parse_interval(self.text) if self.trigger == "Interval" else None,
            after_transitions=int(self.text) if self.trigger == "New transitions" else None,
            when_failures=FailureTrigger.parse(self.text) if self.trigger == "Failures" else None,
            budget=Budget.parse(self.budget) if self.budget.strip() else None,
        )


def show() -> tuple[Start, str]:
    """Draw the control; return the choice, and the label of the button that submits it."""
    when = st.segmented_control("When", list(_WHEN), default="Now", key="when", required=True)
    if when == "At a time":
        now = resources.now()
        at = st.datetime_input(
            "Time (UTC)",
            value=(now + timedelta(hours=1)).replace(minute=0, second=0, microsecond=0, tzinfo=None),
            key="at",
            width=260,
        )
        return Start(at=as_utc(at) if at else None), "Schedule it"
    if when == "Repeatedly":
        return _repeated(), "Schedule it"
    return Start(), "Start it"


def _repeated() -> Start:
    with st.container(horizontal=True):
        trigger = st.selectbox("Trigger", list(_TRIGGERS), key="trigger", width=180)
        label, first, explanation = _TRIGGERS[trigger]
        key = trigger.lower().replace(" ", "_")
        if trigger == "New transitions":
            number = st.number_input(label, min_value=1, value=int(first), key=key, width=260, help=explanation)
            text = str(number)
        else:
            text = st.text_input(label, value=first, key=key, width=260, help=explanation)
        budget = st.text_input(
            "Budget",
            placeholder="none",
            key="budget",
            width=180,
            help="The most that the schedule uses, back from now: 3 jobs/week or 600 minutes/month",
        )
    return Start(trigger=trigger, text=text, budget=budget)
