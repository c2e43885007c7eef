"""One reading client for each set of services that a key may see.

Invariant: a restarted ClickHouse (another process, another port) is found by the next question.
"""

import threading
from collections.abc import Sequence

from spanloop.client import Client, ReadLimits
from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.paths import DataDir
from spanloop.semconv.environment import CLICKHOUSE_URL_ENV, read_setting


class Clients:
    """Opens clients on first use; safe to share between threads.

    Args:
        data_dir: Its store is read.
        limits: Of each statement.
        services: That the process may see; none means all.
    """

    def __init__(self, data_dir: DataDir, limits: ReadLimits, services: Sequence[str]) -> None:
        self._data_dir = data_dir
        self._limits = limits
        self._services = tuple(services)
        self._lock = threading.Lock()
        self._clients: dict[tuple[str, ...], tuple[str, Client]] = {}

    def of(self, services: Sequence[str]) -> Client:
        """Return the client of a key.

        Args:
            services: That the key may see; none means all that the process may see.

        Raises:
            ConfigurationError: The key and the process have no service in common.
            SpanloopError: The store cannot be opened.
        """
        visible = self._visible(tuple(services))
        place = read_setting(CLICKHOUSE_URL_ENV) or str(self._data_dir.running("clickhouse"))
        with self._lock:
            known = self._clients.get(visible)
            if known is not None and known[0] == place:
                return known[1]
            client = Client(self._data_dir, services=visible, limits=self._limits)
            self._clients[visible] = place, client
        if known is not None:
            known[1].close()
        return client

    def close(self) -> None:
        """Close all clients."""
        with self._lock:
            for _, client in self._clients.values():
                client.close()
            self._clients.clear()

    def _visible(self, services: tuple[str, ...]) -> tuple[str, ...]:
        if not (services and self._services):
            return services or self._services
        visible = tuple(service for service in services if service in self._services)
        if not visible:
            raise ConfigurationError(
                f"The key sees the services {', '.join(services)}, this server {', '.join(self._services)}: none is in "
                "both.",
                next_step="Make a key with spanloop keys create NAME --scope ask --service SERVICE.",
            )
        return visible
