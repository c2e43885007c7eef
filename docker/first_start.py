"""Generate what the containers need before their first start: passwords, API keys, and a user of the dashboard.

Every start runs it. What is there stays: a password is never replaced, and a key only after it was revoked. An
interrupted start is completed by the next one. Nothing secret is printed.

Folders, each a volume of its own, and their files (mode 0600):

- ``/run/spanloop/services``: ``clickhouse-url``, ``control-url`` and a key for each role that calls another one;
  all roles read it.
- ``/run/spanloop/databases``: the passwords of the databases, which their own images read.
- ``/run/spanloop/operator``: ``app.key`` for apps, ``assistant.key`` for assistants that ask the MCP server,
  ``admin.key`` for commands and ``dashboard-password``; no running role reads it.
"""

import argparse
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from spanloop.foundation.errors import SpanloopError
from spanloop.foundation.keys.api_keys import KeyRing, Scope
from spanloop.foundation.keys.users import Role, Users
from spanloop.foundation.paths import DataDir, write_atomically

ROOT: Final = Path("/run/spanloop")
DASHBOARD_USER: Final = "operator"
ROLE_SCOPES: Final = {
    "scheduler": (Scope.SERVE, Scope.TRAIN),
    "runner": (Scope.INGEST, Scope.SCORE, Scope.SERVE, Scope.TRAIN),
    "gateway": (Scope.TRAIN,),
    "dashboard": (Scope.READ, Scope.TRAIN),
}
"""The key of each role that calls others, by the role's name."""

OPERATOR_SCOPES: Final = {
    "app": (Scope.INGEST, Scope.SCORE, Scope.SERVE),
    "assistant": (Scope.ASK,),
    "admin": (Scope.ADMIN,),
}
_SECRET_BYTES: Final = 32


def main(arguments: Sequence[str] | None = None) -> int:
    """Complete every file; return the exit status."""
    parser = argparse.ArgumentParser(description="Generate passwords, API keys and the dashboard's first user.")
    parser.add_argument("--clickhouse", required=True, metavar="HOST:PORT", help="where the roles reach ClickHouse")
    parser.add_argument(
        "--postgres", metavar="HOST:PORT", help="control database; default: SQLite, on the shared volume"
    )
    options = parser.parse_args(arguments)
    try:
        _write_addresses(DataDir().open(), options.clickhouse, options.postgres)
        _complete_keys(DataDir())
        _complete_user(DataDir())
    except (SpanloopError, OSError) as error:
        sys.stderr.write(f"first start: {error}\n")
        return 1
    return 0


def _write_addresses(data_dir: DataDir, clickhouse: str, postgres: str | None) -> None:
    password = _kept(ROOT / "databases" / "clickhouse-password")
    _write(ROOT / "services" / "clickhouse-url", f"http://spanloop:{password}@{clickhouse}/spanloop")
    if postgres is None:
        control = f"sqlite:///{data_dir.shared / 'control.db'}"
    else:
        control = f"postgresql://spanloop:{_kept(ROOT / 'databases' / 'postgres-password')}@{postgres}/spanloop"
    _write(ROOT / "services" / "control-url", control)


def _complete_keys(data_dir: DataDir) -> None:
    keys = KeyRing(data_dir)
    for folder, scopes_by_name in (("services", ROLE_SCOPES), ("operator", OPERATOR_SCOPES)):
        for name, scopes in scopes_by_name.items():
            _complete_key(keys, name, scopes, ROOT / folder / f"{name}.key")


def _complete_key(keys: KeyRing, name: str, scopes: tuple[Scope, ...], path: Path) -> None:
    secret = _content(path)
    key = keys.find(secret) if secret else None
    if key is not None and not key.revoked_at:
        return
    # A start that ended between the two steps below left a key whose secret nobody has.
    if any(each.name == name and not each.revoked_at for each in keys.list()):
        keys.revoke(name)
    _write(path, keys.create(name, scopes).secret)
    sys.stderr.write(f"first start: created the key {name}\n")


def _complete_user(data_dir: DataDir) -> None:
    users = Users(data_dir)
    if users.is_required:
        return  # also after somebody removed the first user: it must not come back
    users.create(DASHBOARD_USER, Role.OPERATOR, _kept(ROOT / "operator" / "dashboard-password"))
    sys.stderr.write(f"first start: created the user {DASHBOARD_USER} of the dashboard\n")


def _kept(path: Path) -> str:
    """Return the password in the file; the first call generates it."""
    if not (password := _content(path)):
        password = secrets.token_urlsafe(_SECRET_BYTES)
        _write(path, password)
    return password


def _content(path: Path) -> str:
    return path.read_text(encoding="ascii").strip() if path.exists() else ""


def _write(path: Path, text: str) -> None:
    if _content(path) != text:
        write_atomically(path, text + "\n", mode=0o600)


if __name__ == "__main__":
    sys.exit(main())
