"""A rule, an alert and a message about it, as values."""

import json
from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple

from spanloop.training.jobs.database.tables import AlertDeliveryRow, AlertRow, AlertRuleRow

from .conditions import Condition, parse_condition


class MessageStatus(StrEnum):
    """The event of an alert that a message reports."""

    FIRING = "firing"
    RESOLVED = "resolved"
    """The condition has not held for a minute, or for longer."""
    HAPPENED = "happened"
    """An event, which has no end."""
    TEST = "test"


class AlertState(StrEnum):
    """Where an alert stands."""

    FIRING = "firing"
    RESOLVED = "resolved"
    HAPPENED = "happened"
    TEST = "test"


class Rule(NamedTuple):
    """One rule."""

    name: str
    condition: Condition
    channels: tuple[str, ...]
    created_at: datetime


class Delivery(NamedTuple):
    """One message about an alert to one channel."""

    id: int
    channel: str
    status: MessageStatus
    detail: str
    created_at: datetime
    attempts: int
    next_at: datetime | None
    """None when it was received, or given up."""
    received_at: datetime | None
    error: str
    """Why the last attempt failed."""

    @property
    def is_open(self) -> bool:
        """Whether it is tried again."""
        return self.next_at is not None

    def __str__(self) -> str:
        if self.received_at is not None:
            return f"{self.status} received by {self.channel}"
        attempts = f"{self.attempts} attempt{'' if self.attempts == 1 else 's'}"
        if self.is_open:
            return f"{self.status} to {self.channel}: {f'{attempts}, {self.error}' if self.attempts else 'waiting'}"
        return f"{self.status} to {self.channel} given up after {attempts}: {self.error}"


class Alert(NamedTuple):
    """One alert with its messages, the oldest first."""

    id: int
    rule: str
    condition: str
    state: AlertState
    opened_at: datetime
    resolved_at: datetime | None
    detail: str
    link: str
    """Path and query of the dashboard's page that shows the cause."""
    deliveries: tuple[Delivery, ...]


TEST_CAUSE: Final = "test:"
"""What the cause of a test begins with."""
FIRING_CAUSE: Final = "since:"
"""What the cause of an alert of a threshold begins with."""


def rule_from_row(row: AlertRuleRow) -> Rule:
    """Return the rule in ``row``.

    Raises:
        ConfigurationError: Another version of spanloop wrote its condition.
    """
    return Rule(row.name, parse_condition(row.condition), tuple(json.loads(row.channels)), row.created_at)


def delivery_from_row(row: AlertDeliveryRow) -> Delivery:
    """Return the message in ``row``."""
    return Delivery(
        id=row.delivery_id,
        channel=row.channel,
        status=MessageStatus(row.status),
        detail=row.detail,
        created_at=row.created_at,
        attempts=row.attempts,
        next_at=row.next_at,
        received_at=row.received_at,
        error=row.error,
    )


def alert_from_row(row: AlertRow, deliveries: tuple[Delivery, ...]) -> Alert:
    """Return the alert in ``row`` with its messages."""
    return Alert(
        id=row.alert_id,
        rule=row.rule,
        condition=row.condition,
        state=_state(row),
        opened_at=row.opened_at,
        resolved_at=row.resolved_at,
        detail=row.detail,
        link=row.link,
        deliveries=deliveries,
    )


def _state(row: AlertRow) -> AlertState:
    if row.cause.startswith(TEST_CAUSE):
        return AlertState.TEST
    if not row.cause.startswith(FIRING_CAUSE):
        return AlertState.HAPPENED
    return AlertState.FIRING if row.resolved_at is None else AlertState.RESOLVED
