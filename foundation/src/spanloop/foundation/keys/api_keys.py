"""API keys with scopes, and the check of a request's key that the collector and the gateway share.

Keys are stored in the data directory, so that they are valid while ClickHouse is unavailable.

Invariant: only the SHA-256 of a key is stored, which is sufficient for 256 random bits. From the first key on, every
request needs a key, also after the last one is revoked: revoking keys never grants access. A key is never logged.
"""

import hashlib
import hmac
import secrets
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.paths import DataDir

from .record_file import RecordFile

_PREFIX: Final = "spanloop_"
_SECRET_BYTES: Final = 32
_SCHEME: Final = "bearer "


class Scope(StrEnum):
    """Permission of a key."""

    INGEST = "ingest"
    """Send spans and log records."""
    SCORE = "score"
    """Send scores."""
    SERVE = "serve"
    """Use the served model: the gateway's chat routes."""
    READ = "read"
    """Read the metrics of every service."""
    ASK = "ask"
    """Read stored episodes, failures and scores through the MCP server."""
    TRAIN = "train"
    """Change the served model through the gateway's ``/admin``."""
    ADMIN = "admin"
    """All permissions."""


class Key(NamedTuple):
    """A stored API key."""

    id: str
    name: str
    scopes: tuple[Scope, ...]
    sha256: str
    created_at: str
    """ISO 8601, UTC."""
    revoked_at: str
    """ISO 8601, UTC; empty while the key is valid."""
    services: tuple[str, ...] = ()
    """Services whose rows the scope ``ask`` reads; none means all."""

    def allows(self, scope: Scope) -> bool:
        """Return whether the key is valid and has the scope."""
        return not self.revoked_at and (scope in self.scopes or Scope.ADMIN in self.scopes)


class NewKey(NamedTuple):
    """A new key with its secret, which is not stored."""

    key: Key
    secret: str
    """The client sends it as ``Authorization: Bearer SECRET``."""


class AccessDenied(NamedTuple):
    """Why a request is denied."""

    status: HTTPStatus
    """401 for a key that is unknown or revoked, 403 for a key without the required scope."""
    message: str


class KeyRing:
    """The API keys of an opened data directory. The next call sees changes by other processes."""

    def __init__(self, data_dir: DataDir) -> None:
        self._file = RecordFile(data_dir, data_dir.keys, "keys", _key)

    @property
    def is_required(self) -> bool:
        """Whether requests need a key: always after the first key was created."""
        return self._file.exists

    def create(self, name: str, scopes: Iterable[Scope], services: Iterable[str] = ()) -> NewKey:
        """Create a key.

        Args:
            name: Unique among the valid keys.
            scopes: What it allows.
            services: Limit the scope ``ask`` to the rows of these services.

        Raises:
            ConfigurationError: The name or scopes are empty, a valid key has this name, or there are services and
                another scope than ``ask``, which they would not limit.
            DataDirectoryError: The disk reports an error.
        """
        unique_scopes = tuple(dict.fromkeys(scopes))
        if not name or not unique_scopes:
            raise ConfigurationError(f"A key needs a name and a scope: got {name!r}, {list(unique_scopes)}.")
        unique_services = tuple(dict.fromkeys(services))
        if unique_services and unique_scopes != (Scope.ASK,):
            raise ConfigurationError(
                f"Services limit the scope ask alone: got the scopes {', '.join(unique_scopes)}.",
                next_step="Make a key of its own for the other scopes.",
            )
        with self._file.change() as keys:
            if any(existing.name == name and not existing.revoked_at for existing in keys):
                raise ConfigurationError(
                    f"There is a key named {name} already.", next_step="Use another name, or revoke that key first."
                )
            identity = secrets.token_hex(4)
            secret = f"{_PREFIX}{identity}_{secrets.token_urlsafe(_SECRET_BYTES)}"
            key = Key(identity, name, unique_scopes, _hash(secret), now_text(), "", unique_services)
            keys.append(key)
        return NewKey(key, secret)

    def list(self) -> Sequence[Key]:
        """Return all keys, including revoked ones, in order of creation.

        Raises:
            DataDirectoryError: The file cannot be read.
        """
        return self._file.read()

    def revoke(self, id_or_name: str) -> Key:
        """Revoke a key immediately.

        Raises:
            ConfigurationError: No valid key has this id or name.
            DataDirectoryError: The disk reports an error.
        """
        with self._file.change() as keys:
            for at, key in enumerate(keys):
                if id_or_name in {key.id, key.name} and not key.revoked_at:
                    keys[at] = key._replace(revoked_at=now_text())
                    return keys[at]
        raise ConfigurationError(
            f"There is no valid key {id_or_name} to revoke.", next_step="spanloop keys list shows all keys."
        )

    def find(self, secret: str) -> Key | None:
        """Look a key up by its secret, including revoked keys, in constant time. It raises as `list`."""
        hashed = _hash(secret)
        match = None
        for key in self.list():
            if hmac.compare_digest(key.sha256, hashed):
                match = key
        return match


def bearer_secret(authorization: str) -> str | None:
    """Return the secret in an ``Authorization: Bearer SECRET`` header, None for a header of another form."""
    return authorization[len(_SCHEME) :].strip() if authorization.lower().startswith(_SCHEME) else None


def check_key(keys: KeyRing, secret: str, scope: Scope) -> AccessDenied | None:
    """Look an API key up and check its scope; None grants access. DataDirectoryError: the keys cannot be read."""
    checked = permitted_key(keys, secret, scope)
    return checked if isinstance(checked, AccessDenied) else None


def permitted_key(keys: KeyRing, secret: str, scope: Scope) -> Key | AccessDenied:
    """Return the key of the secret, or why it is denied; it raises as `check_key`."""
    key = keys.find(secret)
    if key is None or key.revoked_at:
        return AccessDenied(HTTPStatus.UNAUTHORIZED, "this API key is unknown or revoked")
    if not key.allows(scope):
        scopes = ", ".join(key.scopes)
        return AccessDenied(HTTPStatus.FORBIDDEN, f"the API key {key.name} has the scopes {scopes}; expected {scope}")
    return key


def _key(item: Mapping[str, Any]) -> Key:
    scopes = tuple(Scope(scope) for scope in item["scopes"])
    # Keys of earlier versions have no services.
    services = tuple(item.get("services", ()))
    return Key(item["id"], item["name"], scopes, item["sha256"], item["created_at"], item["revoked_at"], services)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def now_text() -> str:
    """Return the current time as ISO 8601 in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")
