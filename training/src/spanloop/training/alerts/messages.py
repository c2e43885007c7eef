"""The text of a message about an alert, and its link into the dashboard."""

from typing import Any, NamedTuple

from spanloop.foundation.paths import DataDir
from spanloop.foundation.settings import Alerts
from spanloop.foundation.settings.roles import DashboardSettings

from .entities import Alert, Delivery, MessageStatus

_HEADLINES = {
    MessageStatus.FIRING: "fires",
    MessageStatus.RESOLVED: "is resolved",
    MessageStatus.HAPPENED: "happened",
    MessageStatus.TEST: "is tested",
}


class Message(NamedTuple):
    """One message; a repeated one has the same id."""

    id: str
    """Of the message, for receivers that drop repeated ones."""
    alert: int
    rule: str
    status: str
    condition: str
    detail: str
    at: str
    """When it was written; ISO 8601, UTC."""
    link: str
    """Address of the dashboard's page that shows the cause."""

    @property
    def headline(self) -> str:
        """One line: rule and status."""
        return f"spanloop: {self.rule} {_HEADLINES[MessageStatus(self.status)]}: {self.detail}"

    @property
    def document(self) -> dict[str, Any]:
        """What a webhook gets as JSON."""
        return {**self._asdict(), "text": f"{self.headline} ({self.condition})"}


def message_of(alert: Alert, delivery: Delivery, dashboard_url: str) -> Message:
    """Return the message of a delivery, with links to the dashboard at ``dashboard_url``."""
    return Message(
        id=f"{alert.id}-{delivery.id}",
        alert=alert.id,
        rule=alert.rule,
        status=delivery.status.value,
        condition=alert.condition,
        detail=delivery.detail,
        at=delivery.created_at.isoformat(timespec="milliseconds"),
        link=f"{dashboard_url}/{alert.link}",
    )


def dashboard_address(data_dir: DataDir, settings: Alerts) -> str:
    """Return the dashboard's address: that of the settings, else of the running one, else its default."""
    if settings.dashboard_url:
        return settings.dashboard_url
    running = data_dir.running("dashboard")
    default = DashboardSettings()
    return running.url.rstrip("/") if running is not None else f"http://{default.host}:{default.port}"
