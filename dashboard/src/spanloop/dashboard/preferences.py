"""Choices of each user that outlive a visit: hidden columns and saved views.

Invariant: a file for each user, in the data directory. A file that cannot be read counts as no choice.
"""

import hashlib
import json
from pathlib import Path
from typing import Any, Final, cast

from spanloop.foundation.paths import DataDir
from spanloop.foundation.paths.directory import write_atomically

_FOLDER: Final = "dashboard"
_MAX_VIEWS: Final = 100
_MAX_LENGTH: Final = 4_000


def hidden_columns(directory: DataDir, user: str, table: str) -> list[str] | None:
    """Return the columns that the user hides in a table; None before a choice."""
    hidden: list[Any] | None = _read(directory, user).get("columns", {}).get(table)
    return [str(name) for name in hidden] if isinstance(hidden, list) else None


def hide_columns(directory: DataDir, user: str, table: str, hidden: list[str]) -> None:
    """Store the columns that the user hides in a table."""
    choices = _read(directory, user)
    choices.setdefault("columns", {})[table] = [str(name)[:100] for name in hidden[:100]]
    _write(directory, user, choices)


def saved_views(directory: DataDir, user: str, page: str) -> dict[str, str]:
    """Return the views of a page that the user saved: name to the parameters of the address."""
    views: Any = _read(directory, user).get("views", {}).get(page, {})
    if not isinstance(views, dict):
        return {}
    return {str(name): str(query) for name, query in cast("dict[str, Any]", views).items()}


def save_view(directory: DataDir, user: str, page: str, name: str, query: str | None) -> None:
    """Save a view under a name, or delete it where ``query`` is None."""
    choices = _read(directory, user)
    views = choices.setdefault("views", {}).setdefault(page, {})
    if query is None:
        views.pop(name, None)
    elif len(views) < _MAX_VIEWS or name in views:
        views[name[:60]] = query[:_MAX_LENGTH]
    _write(directory, user, choices)


def _read(directory: DataDir, user: str) -> dict[str, Any]:
    try:
        loaded: Any = json.loads(_path(directory, user).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return cast("dict[str, Any]", loaded) if isinstance(loaded, dict) else {}


def _write(directory: DataDir, user: str, choices: dict[str, Any]) -> None:
    write_atomically(_path(directory, user), json.dumps(choices, ensure_ascii=False, indent=1))


def _path(directory: DataDir, user: str) -> Path:
    return directory.path / _FOLDER / f"{hashlib.sha256(user.encode()).hexdigest()[:24]}.json"
