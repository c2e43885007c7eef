"""The dashboard's metrics."""

from typing import Final

from spanloop.dashboard import visits
from spanloop.foundation.telemetry import metrics

from .logins import Logins

FAMILIES: Final[metrics.Families] = {
    "logins_total": ("counter", "Attempts to log in, by result: ok, failed or limited."),
    "refused_requests_total": ("counter", "Requests to pages that were refused, by HTTP status."),
    "sessions": ("gauge", "Sessions of users who logged in."),
    "open_pages": ("gauge", "Pages that browsers have open."),
}


class FrontMetrics(metrics.Metrics):
    """Counts logins and refused requests.

    Args:
        sessions: The sessions to count.
    """

    def __init__(self, logins: Logins) -> None:
        super().__init__("spanloop_dashboard_", FAMILIES)
        self._logins = logins

    def measure(self) -> None:
        """Set the gauges."""
        self.set("sessions", self._logins.count)
        self.set("open_pages", visits.open_visits())
