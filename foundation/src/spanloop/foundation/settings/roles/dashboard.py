"""Settings of the dashboard's process."""

from spanloop.semconv.environment import DASHBOARD_PORT

from .base import ListeningSettings, Port


class DashboardSettings(ListeningSettings):
    """``[serve.dashboard]``: serve the web pages."""

    role = "dashboard"
    module = "spanloop.dashboard"

    host: str = "127.0.0.1"
    """Address to listen on; beyond the loopback only with users, or behind a trusted proxy."""
    port: Port = DASHBOARD_PORT
    """Port of the web pages."""
