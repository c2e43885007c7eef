"""Measure the figure of a threshold in the store, and link to the episodes that it was measured on.

Invariant: without an episode, and for a reward without a rewarded one, there is no figure, and the condition does not
hold: nothing measured is not zero.
"""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlencode

from .conditions import Figure, Threshold

if TYPE_CHECKING:  # it is imported where a store is opened, because the scheduler starts at once
    from spanloop.store import Store

LONGEST_EPISODE: Final = timedelta(days=1)
"""An episode counts when it began at most so long before the window."""
_PERCENTILES: Final = ("p50", "p95", "p99")


class Measurement(NamedTuple):
    """A figure at one time."""

    holds: bool
    """Whether the condition holds."""
    detail: str
    """The figure, and how many episodes it is about."""
    link: str
    """Path and query of the dashboard's page with these episodes, or their failures."""


def measure(store: "Store", condition: Threshold, *, now: datetime) -> Measurement:
    """Measure a threshold's figure.

    Raises:
        StoreError: ClickHouse is unreachable.
    """
    since = now - condition.window
    bounds = {"agent": condition.agent, "since": since, "started_since": since - LONGEST_EPISODE}
    if condition.failure_class:
        frame = store.query("alert_failure_class", failure_class=condition.failure_class, **bounds)
    else:
        frame = store.query("alert_episodes", **bounds)
    row = frame.row(0, named=True)
    counted = int(row["rewarded"] if condition.figure is Figure.REWARD else row["episodes"])
    what = "rewarded episode" if condition.figure is Figure.REWARD else "episode"
    if not counted:
        return Measurement(holds=False, detail=f"no {what}", link=_link(condition, since, now))
    value, text = _figure(condition, row)
    exceeds = value > condition.limit if condition.is_above else value < condition.limit
    return Measurement(
        holds=exceeds and counted >= condition.episodes,
        detail=f"{text} of {counted:,} {what}{'' if counted == 1 else 's'}",
        link=_link(condition, min(since, _utc(row["first_started_at"])), now),
    )


def _figure(condition: Threshold, row: dict[str, Any]) -> tuple[float, str]:
    if condition.figure is Figure.FAILURES:
        percent = 100.0 * int(row["failed"]) / int(row["episodes"])
        return percent, f"{condition.failure_class or 'failures'} {percent:.1f}%"
    if condition.figure is Figure.REWARD:
        reward = float(row["mean_reward"])
        return reward, f"reward {reward:.4g}"
    seconds = float(row["latency_s"][_PERCENTILES.index(condition.statistic)])
    return seconds, f"latency {condition.statistic} {round(seconds, 2):,.10g}s"


def _link(condition: Threshold, start: datetime, end: datetime) -> str:
    minute = timedelta(minutes=1)
    until = end + minute
    parameters = {"time": f"{start:%Y-%m-%dT%H:%MZ}..{until:%Y-%m-%dT%H:%MZ}", "agent": condition.agent}
    page = "episodes"
    limit = f"{condition.limit:.10g}"
    bounds = f"{limit}.." if condition.is_above else f"..{limit}"
    if condition.failure_class:
        page, parameters["class"] = "failures", condition.failure_class
    elif condition.figure is Figure.FAILURES:
        parameters["outcome"] = "failure"
    else:
        parameters["reward" if condition.figure is Figure.REWARD else "duration"] = bounds
    return f"{page}?{urlencode({name: value for name, value in parameters.items() if value})}"


def _utc(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
