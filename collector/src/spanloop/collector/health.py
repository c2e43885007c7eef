"""What ``/healthz`` says: whether acknowledged spans reach ClickHouse, and if not, why.

A collector that answers is healthy for its senders even while ClickHouse is away: then the status is ``degraded``.
"""

from datetime import UTC, datetime

from spanloop.store.spool import SpoolStats


class Health:
    """Written by the writer, read by the app; both are on one event loop."""

    def __init__(self) -> None:
        self._error = "not connected to the store yet"
        self._last_insert_at: datetime | None = None

    @property
    def error(self) -> str:
        """Why ClickHouse gets nothing right now; empty when it does."""
        return self._error

    def connected(self) -> None:
        """The store answers."""
        self._error = ""

    def inserted(self) -> None:
        """A block was confirmed."""
        self._error = ""
        self._last_insert_at = datetime.now(UTC)

    def failed(self, error: str) -> None:
        """The store cannot be reached or refuses blocks."""
        self._error = error

    def report(self, spool: SpoolStats) -> dict[str, object]:
        """The JSON body."""
        return {
            "status": "degraded" if self._error else "ok",
            "store": self._error or "ok",
            "spool": spool._asdict(),
            "last_insert": None if self._last_insert_at is None else self._last_insert_at.isoformat(),
        }
