"""The report of ``/healthz``: whether acknowledged spans reach ClickHouse and the spool has room, and if not, why.

A collector that responds is healthy for its clients; while ClickHouse is unavailable its status is ``degraded``.
"""

import os
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Final

from spanloop.spool import SpoolStats

from .metrics import Metrics

_MIN_FREE_BYTES: Final = 16 * 2**20


class Health:
    """Updated by the writer and the receiver, read by the app; all run on one event loop.

    Args:
        spool_directory: Its disk is checked for free space; None skips the check.
    """

    def __init__(self, spool_directory: Path | None = None) -> None:
        self._spool_directory = spool_directory
        self._version = version("spanloop")
        self._error = "not connected to the store yet"
        self._spool_error = ""
        self._last_insert_at: datetime | None = None
        self.grpc_url = ""
        """The URL of the gRPC server; empty without one."""

    @property
    def error(self) -> str:
        """Why ClickHouse receives no blocks; empty when it does."""
        return self._error

    def mark_connected(self) -> None:
        """Record that the store responds."""
        self._error = ""

    def mark_inserted(self) -> None:
        """Record that ClickHouse confirmed a block."""
        self._error = ""
        self._last_insert_at = datetime.now(UTC)

    def mark_failed(self, error: str) -> None:
        """Record that the store is unreachable or refuses blocks."""
        self._error = error

    def mark_spool_failed(self, error: str) -> None:
        """Record that the spool is full or its disk fails."""
        self._spool_error = error

    def mark_spool_ok(self) -> None:
        """Record that a request is on disk."""
        self._spool_error = ""

    def report(self, spool: SpoolStats, metrics: Metrics) -> dict[str, object]:
        """Return the JSON body."""
        spool_error = self._spool_error or self._disk_full_error()
        return {
            "status": "degraded" if self._error or spool_error else "ok",
            "spanloop": self._version,
            "store": self._error or "ok",
            "disk": spool_error or "ok",
            "spool": spool._asdict(),
            "last_insert": None if self._last_insert_at is None else self._last_insert_at.isoformat(),
            "grpc": self.grpc_url or None,
            "accepted": metrics.sum_by("accepted_total", "signal"),
            "rejected": metrics.sum_by("rejected_total", "reason"),
            "refused_requests": metrics.sum_by("refused_requests_total", "status"),
            "redacted": metrics.sum_by("redacted_total", "rule"),
            "inserted": int(metrics.get("inserted_total")),
            "insert_failures": int(metrics.get("insert_failures_total")),
            "insert_latency": metrics.latency("insert_seconds"),
        }

    def _disk_full_error(self) -> str:
        """Return why the next request may be refused; empty when the disk has space."""
        if self._spool_directory is None:
            return ""
        disk = os.statvfs(self._spool_directory)
        free_bytes = disk.f_bavail * disk.f_frsize
        if free_bytes >= _MIN_FREE_BYTES:
            return ""
        return f"the disk of {self._spool_directory} is full: {free_bytes} bytes are free"
