"""Look at every rule once: open an alert where a condition begins to hold, end it where it holds no more.

Invariant: an alert of a threshold is open from the first look at which its condition holds until it has not held for
`RECOVERY`; it is alerted once at its start and once at its end, however often its figure crosses the limit within that
time. A rule that cannot be measured changes nothing.
"""

import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy.orm import Session

from spanloop.foundation.errors import ConfigurationError, SpanloopError
from spanloop.training.jobs.database.control_database import ControlDatabase
from spanloop.training.jobs.database.tables import AlertRow

from .conditions import Threshold
from .entities import FIRING_CAUSE, MessageStatus, Rule, rule_from_row
from .events import new_events
from .measurements import Measurement
from .stored_alerts import find_rule, insert_alert, insert_messages, list_rules, open_alert_of

RECOVERY: Final = timedelta(minutes=1)
"""A condition that does not hold for so long has ended."""

Measure = Callable[[Threshold], Measurement]
"""Measures the figure of a threshold now."""

_log: Final = logging.getLogger(__name__)


def readable_rules(database: ControlDatabase) -> list[Rule]:
    """Return the rules that this version of spanloop can read; the others are logged."""
    rules: list[Rule] = []
    with database.read() as session:
        for row in list_rules(session):
            try:
                rules.append(rule_from_row(row))
            except ConfigurationError as error:
                _log.warning("alert rule %s is skipped: %s", row.name, error.what)
    return rules


def look_at_events(database: ControlDatabase, rules: list[Rule], *, now: datetime) -> None:
    """Open an alert for each new event."""
    for rule in rules:
        with database.read() as session:
            events = new_events(session, rule)
        if not events:
            continue
        with database.write() as session:
            # Read again under the write lock: another scheduler may have alerted them meanwhile.
            for event in new_events(session, rule) if _exists(session, rule) else ():
                insert_alert(session, rule, MessageStatus.HAPPENED, now=now, **event._asdict())
                _log.info("alert %s: %s", rule.name, event.detail)


def look_at_thresholds(database: ControlDatabase, rules: list[Rule], measure: Measure, *, now: datetime) -> None:
    """Measure the figure of each threshold, and open or end its alert.

    Raises:
        SpanloopError: A figure could not be measured; those of the other rules were.
    """
    last_error: SpanloopError | None = None
    for rule in rules:
        if not isinstance(rule.condition, Threshold):
            continue
        try:
            measurement = measure(rule.condition)
        except SpanloopError as error:
            last_error = error
            continue
        with database.read() as session:
            changes = _change(session, rule, measurement, now=now) is not None
        if changes:
            with database.write() as session:
                change = _change(session, rule, measurement, now=now)
                if change is not None and _exists(session, rule):
                    change()
    if last_error is not None:
        raise last_error


def _change(session: Session, rule: Rule, measurement: Measurement, *, now: datetime) -> Callable[[], None] | None:
    """Return what a measurement changes about the rule's alert; None for nothing."""
    alert = open_alert_of(session, rule.name)
    if alert is None:
        return (lambda: _open(session, rule, measurement, now=now)) if measurement.holds else None
    if measurement.holds:
        return (lambda: setattr(alert, "clear_since", None)) if alert.clear_since is not None else None
    if alert.clear_since is None:
        return lambda: setattr(alert, "clear_since", now)
    if now - alert.clear_since >= RECOVERY:
        return lambda: _end(session, rule, alert, measurement, now=now)
    return None


def _open(session: Session, rule: Rule, measurement: Measurement, *, now: datetime) -> None:
    cause = f"{FIRING_CAUSE}{now.isoformat(timespec='microseconds')}"
    detail = measurement.detail
    insert_alert(session, rule, MessageStatus.FIRING, cause=cause, detail=detail, link=measurement.link, now=now)
    _log.info("alert %s fires: %s", rule.name, detail)


def _end(session: Session, rule: Rule, alert: AlertRow, measurement: Measurement, *, now: datetime) -> None:
    alert.resolved_at = now
    insert_messages(session, alert, rule.channels, MessageStatus.RESOLVED, detail=measurement.detail, now=now)
    _log.info("alert %s is resolved: %s", rule.name, measurement.detail)


def _exists(session: Session, rule: Rule) -> bool:
    """Whether the rule is still the one that was looked at."""
    try:
        return find_rule(session, rule.name).created_at == rule.created_at
    except ConfigurationError:
        return False
