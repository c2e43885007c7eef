"""Send the messages that wait, each channel's in order and no channel waiting for another one.

Invariant: a message is sent at least once until its receiver takes it, or for `GIVE_UP`; every attempt is recorded. A
test is tried once, because somebody waits for its outcome.
"""

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from sqlalchemy import select

from spanloop.foundation.control.clock import Clock, utc_now
from spanloop.foundation.errors import SpanloopError
from spanloop.foundation.settings import AlertChannel
from spanloop.training.jobs.database.control_database import ControlDatabase
from spanloop.training.jobs.database.tables import AlertDeliveryRow

from .channels import send
from .entities import Alert, Delivery, MessageStatus, delivery_from_row
from .messages import Message, message_of
from .stored_alerts import get_alert

FIRST_PAUSE: Final = timedelta(seconds=2)
LONGEST_PAUSE: Final = timedelta(minutes=10)
GIVE_UP: Final = timedelta(days=1)
"""A message that nobody took for so long is given up."""
_CHANNELS_AT_ONCE: Final = 8

Send = Callable[[AlertChannel, Message], None]

_log: Final = logging.getLogger(__name__)


class Targets(NamedTuple):
    """The channels of messages, and the dashboard that their links lead to."""

    channels: Mapping[str, AlertChannel]
    dashboard_url: str


class _Waiting(NamedTuple):
    alert: Alert
    delivery: Delivery


class Sender:
    """Sends the messages of one control database.

    Args:
        database: The control database.
        send_message: Sends one message; raises a ``SpanloopError`` when it was not taken.
        clock: Returns the current time.
    """

    def __init__(self, database: ControlDatabase, *, send_message: Send = send, clock: Clock = utc_now) -> None:
        self._database = database
        self._send = send_message
        self._clock = clock
        self._pool = ThreadPoolExecutor(_CHANNELS_AT_ONCE, thread_name_prefix="alert-sender")
        self._busy: dict[str, Future[None]] = {}

    def send_waiting(self, targets: Callable[[], Targets]) -> None:
        """Begin to send what waits; a channel that still sends is left alone.

        Args:
            targets: Returns where to send to; called only when something waits.

        Raises:
            SpanloopError: ``targets`` raised it, or the outcome of an earlier message could not be stored; that message
                is sent again.
        """
        ended = [name for name, future in self._busy.items() if future.done()]
        errors = [error for name in ended if (error := self._busy.pop(name).exception()) is not None]
        waiting: dict[str, list[_Waiting]] = {}
        for each in self._due():
            waiting.setdefault(each.delivery.channel, []).append(each)
        to = targets() if waiting else None
        for name, messages in waiting.items():
            if to is not None and name not in self._busy:
                self._busy[name] = self._pool.submit(self._send_all, name, messages, to)
        if errors:
            raise errors[0]

    def wait(self) -> None:
        """Wait until everything that was begun has ended."""
        for future in list(self._busy.values()):
            future.exception()

    def close(self) -> None:
        """Begin nothing more; what is being sent ends by itself."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _due(self) -> list[_Waiting]:
        statement = select(AlertDeliveryRow).where(AlertDeliveryRow.next_at <= self._clock())
        with self._database.read() as session:
            rows = session.scalars(statement.order_by(AlertDeliveryRow.delivery_id)).all()
            alerts = {alert_id: get_alert(session, alert_id) for alert_id in {row.alert_id for row in rows}}
        return [_Waiting(alert, delivery_from_row(row)) for row in rows if (alert := alerts[row.alert_id]) is not None]

    def _send_all(self, name: str, messages: list[_Waiting], targets: Targets) -> None:
        channel = targets.channels.get(name)
        for alert, delivery in messages:
            error = self._try(name, channel, message_of(alert, delivery, targets.dashboard_url))
            self._record(delivery, error)

    def _try(self, name: str, channel: AlertChannel | None, message: Message) -> str:
        """Send one message; return why it was not taken, empty when it was."""
        if channel is None:
            return f"there is no channel {name!r} in [alerts.channels]"
        try:
            self._send(channel, message)
        except SpanloopError as error:
            _log.warning("alert message %s to %s: %s", message.id, name, error.what)
            return error.what
        except Exception as error:  # noqa: BLE001 - the border of a message: a defect is recorded, too
            # Its text may repeat a secret.
            _log.error("alert message %s to %s: %s", message.id, name, type(error).__name__)
            return f"it could not be sent: {type(error).__name__}"
        return ""

    def _record(self, delivery: Delivery, error: str) -> None:
        now = self._clock()
        with self._database.write() as session:
            row = session.get(AlertDeliveryRow, delivery.id)
            if row is None:
                return
            row.attempts += 1
            row.error = error
            if not error:
                row.received_at, row.next_at = now, None
            elif row.next_at is not None:
                row.next_at = _next_attempt(row, now)


def _next_attempt(row: AlertDeliveryRow, now: datetime) -> datetime | None:
    if row.status == MessageStatus.TEST.value or now - row.created_at >= GIVE_UP:
        return None
    doublings = min(row.attempts - 1, 20)
    return now + min(FIRST_PAUSE * (1 << doublings), LONGEST_PAUSE)
