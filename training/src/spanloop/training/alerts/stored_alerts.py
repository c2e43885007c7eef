"""Alerts and their messages in the control database.

Invariant: an alert and the messages about it are one transaction, and a rule has at most one alert for each cause and
one open alert. So whatever processes look at the same time, a cause is alerted once; and a message that is stored is
sent at least once, or its last error is stored.
"""

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from spanloop.foundation.errors import ConfigurationError
from spanloop.training.jobs.database.tables import AlertDeliveryRow, AlertRow, AlertRuleRow

from .entities import FIRING_CAUSE, Alert, MessageStatus, Rule, alert_from_row, delivery_from_row

KEPT_ALERTS: Final = 1_000
"""Alerts of a threshold that are kept; older ones that ended are removed. Those of events stay, because they say which
events were alerted."""


def list_rules(session: Session) -> Sequence[AlertRuleRow]:
    """Return all rules, by name."""
    return session.scalars(select(AlertRuleRow).order_by(AlertRuleRow.name)).all()


def find_rule(session: Session, name: str) -> AlertRuleRow:
    """Return the row of a rule.

    Raises:
        ConfigurationError: There is no such rule.
    """
    row = session.get(AlertRuleRow, name)
    if row is None:
        raise ConfigurationError(f"There is no alert rule {name!r}.", next_step="See them: spanloop alerts list")
    return row


def insert_rule(session: Session, rule: Rule) -> None:
    """Insert a rule.

    Raises:
        ConfigurationError: There is one with this name.
    """
    if session.get(AlertRuleRow, rule.name) is not None:
        raise ConfigurationError(
            f"There is an alert rule {rule.name!r} already.",
            next_step=f"Choose another name, or remove it first: spanloop alerts remove {rule.name}",
        )
    row = AlertRuleRow(
        name=rule.name,
        condition=str(rule.condition),
        channels=json.dumps(list(rule.channels)),
        created_at=rule.created_at,
    )
    session.add(row)


def delete_rule(session: Session, name: str, *, now: datetime) -> None:
    """Delete a rule, end its open alert, and give up its messages; its history stays.

    Raises:
        ConfigurationError: There is no such rule.
    """
    session.delete(find_rule(session, name))
    alerts = select(AlertRow.alert_id).where(AlertRow.rule == name)
    open_messages = update(AlertDeliveryRow).where(
        AlertDeliveryRow.alert_id.in_(alerts), AlertDeliveryRow.next_at.is_not(None)
    )
    options = {"synchronize_session": False}
    session.execute(open_messages.values(next_at=None, error="the rule was removed"), execution_options=options)
    open_alerts = update(AlertRow).where(AlertRow.rule == name, AlertRow.resolved_at.is_(None))
    session.execute(open_alerts.values(resolved_at=now), execution_options=options)


def open_alert_of(session: Session, rule: str) -> AlertRow | None:
    """Return the alert of a rule that has not ended; None without."""
    return session.scalars(select(AlertRow).where(AlertRow.rule == rule, AlertRow.resolved_at.is_(None))).first()


def insert_alert(
    session: Session,
    rule: Rule,
    status: MessageStatus,
    *,
    cause: str,
    detail: str,
    link: str,
    now: datetime,
) -> AlertRow:
    """Insert an alert with a message to each channel of its rule; only a firing one stays open."""
    row = AlertRow(
        rule=rule.name,
        condition=str(rule.condition),
        cause=cause,
        opened_at=now,
        clear_since=None,
        resolved_at=None if status is MessageStatus.FIRING else now,
        detail=detail,
        link=link,
    )
    session.add(row)
    session.flush()
    insert_messages(session, row, rule.channels, status, detail=detail, now=now)
    if status is MessageStatus.FIRING:
        _remove_old(session, rule.name)
    return row


def insert_messages(
    session: Session, alert: AlertRow, channels: Iterable[str], status: MessageStatus, *, detail: str, now: datetime
) -> None:
    """Insert a message about an alert to each channel, to be sent at once."""
    for channel in channels:
        row = AlertDeliveryRow(
            alert_id=alert.alert_id,
            channel=channel,
            status=status.value,
            detail=detail,
            created_at=now,
            attempts=0,
            next_at=now,
            received_at=None,
            error="",
        )
        session.add(row)
    session.flush()


def list_alerts(session: Session, *, rule: str = "", limit: int = 100) -> tuple[Alert, ...]:
    """Return alerts with their messages, newest first.

    Args:
        session: A session.
        rule: Only of this rule; empty for all.
        limit: At most so many.
    """
    statement = select(AlertRow).order_by(AlertRow.alert_id.desc()).limit(limit)
    if rule:
        statement = statement.where(AlertRow.rule == rule)
    return tuple(_with_messages(session, session.scalars(statement).all()))


def get_alert(session: Session, alert_id: int) -> Alert | None:
    """Return an alert with its messages; None when there is none."""
    row = session.get(AlertRow, alert_id)
    return None if row is None else next(iter(_with_messages(session, [row])))


def _with_messages(session: Session, rows: Sequence[AlertRow]) -> Iterable[Alert]:
    ids = [row.alert_id for row in rows]
    statement = select(AlertDeliveryRow).where(AlertDeliveryRow.alert_id.in_(ids))
    messages = session.scalars(statement.order_by(AlertDeliveryRow.delivery_id)).all()
    for row in rows:
        yield alert_from_row(row, tuple(delivery_from_row(each) for each in messages if each.alert_id == row.alert_id))


def _remove_old(session: Session, rule: str) -> None:
    of_threshold = select(AlertRow.alert_id).where(AlertRow.rule == rule, AlertRow.cause.startswith(FIRING_CAUSE))
    old = session.scalars(of_threshold.order_by(AlertRow.alert_id.desc()).offset(KEPT_ALERTS).limit(KEPT_ALERTS)).all()
    if old:
        session.execute(delete(AlertDeliveryRow).where(AlertDeliveryRow.alert_id.in_(old)))
        session.execute(delete(AlertRow).where(AlertRow.alert_id.in_(old)))
