"""What ``/healthz`` says: whether acknowledged spans reach ClickHouse and new ones find room, and if not, why.

A collector that answers is healthy for its senders even while ClickHouse is away: then the status is ``degraded``.
"""

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from spanloop.spool import SpoolStats

from .metrics import Metrics

_LEAST_FREE_BYTES: Final = 16 * 2**20


class Health:
    """Written by writer and receiver, read by the app; all are on one event loop.

    Args:
        spool_directory: Whose disk is looked at for free space; None looks at none.
    """

    def __init__(self, spool_directory: Path | None = None) -> None:
        self._spool_directory = spool_directory
        self._error = "not connected to the store yet"
        self._spool_error = ""
        self._last_insert_at: datetime | None = None
        self.grpc_url = ""
        """Where gRPC answers; empty when it does not."""

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

    def spool_refused(self, error: str) -> None:
        """The spool is full, or its disk refuses."""
        self._spool_error = error

    def spool_accepted(self) -> None:
        """A request is on disk."""
        self._spool_error = ""

    def report(self, spool: SpoolStats, metrics: Metrics) -> dict[str, object]:
        """The JSON body."""
        spool_error = self._spool_error or self._little_room()
        return {
            "status": "degraded" if self._error or spool_error else "ok",
            "store": self._error or "ok",
            "disk": spool_error or "ok",
            "spool": spool._asdict(),
            "last_insert": None if self._last_insert_at is None else self._last_insert_at.isoformat(),
            "grpc": self.grpc_url or None,
            "accepted": metrics.by("accepted_total", "signal"),
            "rejected": metrics.by("rejected_total", "reason"),
            "refused_requests": metrics.by("refused_requests_total", "status"),
            "redacted": metrics.by("redacted_total", "rule"),
            "inserted": int(metrics.get("inserted_total")),
            "insert_failures": int(metrics.get("insert_failures_total")),
            "insert_latency": metrics.latency("insert_seconds"),
        }

    def _little_room(self) -> str:
        """Why the next request may be refused, before one is."""
        if self._spool_directory is None:
            return ""
        disk = os.statvfs(self._spool_directory)
        free_bytes = disk.f_bavail * disk.f_frsize
        if free_bytes >= _LEAST_FREE_BYTES:
            return ""
        return f"the disk of {self._spool_directory} is full: {free_bytes} bytes are free"
