"""The audit log: who did what in the dashboard, with which result. JSON lines in ``audit.jsonl``.

Invariant: an action is on disk before it begins, and its result when it ends. An entry that says ``begun`` belongs to
an action that still runs, or whose process ended. No entry holds a password or a key.
"""

import json
import os
import secrets
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, cast

from spanloop.foundation.errors import DataDirectoryError
from spanloop.foundation.paths import DataDir, disk_error, sync_directory

BEGUN: Final = "begun"
OK: Final = "ok"
FAILED: Final = "failed"
DENIED: Final = "denied"
_MAX_TEXT: Final = 500


class AuditEntry(NamedTuple):
    """One action."""

    id: str
    at: str
    """When it began; ISO 8601, UTC."""
    user: str
    role: str
    """Empty for a login that failed."""
    address: str
    """The client's address."""
    action: str
    """Such as ``job.cancel``."""
    object: str
    """What it was done to, such as a job's id."""
    result: str
    """``begun``, ``ok``, ``failed`` or ``denied``."""
    detail: str = ""
    """What it made, or why it failed."""


class AuditLog:
    """The audit log of an opened data directory; safe to share between threads and processes."""

    def __init__(self, data_dir: DataDir) -> None:
        self._data_dir = data_dir
        self._path = data_dir.audit

    def add(
        self, *, user: str, role: str, address: str, action: str, object_: str, result: str, detail: str = ""
    ) -> AuditEntry:
        """Append an entry durably. DataDirectoryError: it cannot be written."""
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        entry = AuditEntry(
            secrets.token_hex(8), at, _short(user), role, address, action, _short(object_), result, _short(detail)
        )
        self._append(entry)
        return entry

    def finish(self, begun: AuditEntry, result: str, detail: str = "") -> None:
        """Append the result of an action; it raises as `add`."""
        self._append(begun._replace(result=result, detail=_short(detail)))

    def read(self) -> list[AuditEntry]:
        """Return the actions in order of their begin, each with its last known result.

        Raises:
            DataDirectoryError: The file cannot be read.
        """
        try:
            lines = self._path.read_text(encoding="utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise disk_error(self._data_dir.path, error) from error
        entries: dict[str, AuditEntry] = {}
        for line in lines:
            try:
                fields = cast("dict[str, Any]", json.loads(line))
                entry = AuditEntry(**{name: str(fields[name]) for name in AuditEntry._fields})
            except (ValueError, TypeError, KeyError):
                # A crash in the middle of a write leaves a torn line, whose action did not begin.
                continue
            entries[entry.id] = entry
        return list(entries.values())

    def _append(self, entry: AuditEntry) -> None:
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                size_bytes = os.fstat(descriptor).st_size
                is_torn = size_bytes > 0 and os.pread(descriptor, 1, size_bytes - 1) != b"\n"
                line = json.dumps(entry._asdict(), ensure_ascii=False).encode("utf-8", "replace") + b"\n"
                content = b"\n" + line if is_torn else line
                if os.write(descriptor, content) != len(content):
                    raise DataDirectoryError(
                        f"The audit log {self._path} was not written completely.", next_step="Free disk space."
                    )
                os.fsync(descriptor)
                if size_bytes == 0:
                    sync_directory(self._path.parent)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise disk_error(self._data_dir.path, error) from error


def _short(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}…"
