"""Measure the figure of a threshold in the store, and link to the episodes that it was measured on.

Invariant: without an episode, and for a reward without a rewarded one, there is no figure, and the condition does not
hold: nothing measured is not zero.
"""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlencode

from spanloop.foundation.settings import Prices

from .conditions import Figure, Threshold

if TYPE_CHECKING:  # it is imported where a store is opened, because the scheduler starts at once
    from spanloop.store import Store

LONGEST_EPISODE: Final = timedelta(days=1)
"""An episode counts when it began at most so long before the window."""
_NO_PRICES: Final = Prices()
_PERCENTILES: Final = ("p50", "p95", "p99")


class Measurement(NamedTuple):
    """A figure at one time."""

    holds: bool
    """Whether the condition holds."""
    detail: str
    """The figure, and how many episodes it is about."""
    link: str
    """Path and query of the dashboard's page with these episodes, or their failures."""


def measure(store: "Store", condition: Threshold, *, now: datetime, prices: Prices = _NO_PRICES) -> Measurement:
    """Measure a threshold's figure; a cost by ``prices``.

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
    if condition.figure is Figure.COST:
        cost = _cost(store, condition, prices, since)
        return Measurement(
            holds=cost.holds and counted >= condition.episodes,
            detail=f"{cost.detail} of {counted:,} episode{'' if counted == 1 else 's'}{cost.missing}",
            link=_link(condition, min(since, _utc(row["first_started_at"])), now),
        )
    value, text = _figure(condition, row)
    exceeds = value > condition.limit if condition.is_above else value < condition.limit
    return Measurement(
        holds=exceeds and counted >= condition.episodes,
        detail=f"{text} of {counted:,} {what}{'' if counted == 1 else 's'}",
        link=_link(condition, min(since, _utc(row["first_started_at"])), now),
    )


class _Cost(NamedTuple):
    holds: bool
    detail: str
    missing: str
    """The calls without a cost, after a semicolon; empty where every call has one."""


def _cost(store: "Store", condition: Threshold, prices: Prices, since: datetime) -> _Cost:
    """Measure a cost. One that is not known completely is a least cost, which may be above a limit and never below."""
    from spanloop.store.costs import fetch_ended_usage, sum_costs, unpriced_models  # noqa: PLC0415

    priced = fetch_ended_usage(store, prices, agent=condition.agent, since=since, started_since=since - LONGEST_EPISODE)
    total = sum_costs(priced).row(0, named=True)
    unpriced, uncounted = unpriced_models(priced), int(total["uncounted_calls"])
    missing = [*map(str, unpriced), *([f"{uncounted:,} calls without token counts"] if uncounted else [])]
    cost = float(total["cost"] or 0.0)
    is_known = total["cost"] is not None or not unpriced
    return _Cost(
        holds=is_known and (cost > condition.limit if condition.is_above else cost < condition.limit and not missing),
        detail=f"cost {'at least ' if missing else ''}{cost:,.4g} {prices.currency}" if is_known else "cost not known",
        missing="".join(f"; {each}" for each in missing),
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
    elif condition.figure is Figure.COST:
        parameters["sort"] = "-tokens"
    else:
        parameters["reward" if condition.figure is Figure.REWARD else "duration"] = bounds
    return f"{page}?{urlencode({name: value for name, value in parameters.items() if value})}"


def _utc(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
