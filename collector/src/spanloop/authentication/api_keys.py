"""API keys with scopes, and the check of a request's key that the collector and the gateway share.

Keys are stored in the data directory, so that they are valid while ClickHouse is unavailable.

Invariant: only the SHA-256 of a key is stored, which is sufficient for 256 random bits. From the first key on, every
request needs a key, also after the last one is revoked: revoking keys never grants access. A key is never logged.
"""

import fcntl
import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from http import HTTPStatus
from typing import Final, NamedTuple, TypeAlias, cast

from spanloop.datadir import DataDir, disk_error
from spanloop.semconv.errors import ConfigurationError, DataDirectoryError

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
    """Read the metrics of collector and gateway."""
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


_Keys: TypeAlias = list[Key]


class KeyRing:
    """The API keys of an opened data directory. The next call sees changes by other processes."""

    def __init__(self, data_dir: DataDir) -> None:
        self._data_dir = data_dir
        self._path = data_dir.keys
        self._stamp: tuple[int, int, int] | None = None
        self._keys: tuple[Key, ...] = ()

    @property
    def is_required(self) -> bool:
        """Whether requests need a key: always after the first key was created."""
        return self._path.exists()

    def create(self, name: str, scopes: Iterable[Scope]) -> NewKey:
        """Create a key.

        Raises:
            ConfigurationError: The name or scopes are empty, or a valid key has this name.
            DataDirectoryError: The disk reports an error.
        """
        unique_scopes = tuple(dict.fromkeys(scopes))
        if not name or not unique_scopes:
            raise ConfigurationError(f"A key needs a name and a scope: got {name!r}, {list(unique_scopes)}.")
        with self._locked_keys() as keys:
            if any(existing.name == name and not existing.revoked_at for existing in keys):
                raise ConfigurationError(
                    f"There is a key named {name} already.", next_step="Use another name, or revoke that key first."
                )
            identity = secrets.token_hex(4)
            secret = f"{_PREFIX}{identity}_{secrets.token_urlsafe(_SECRET_BYTES)}"
            key = Key(identity, name, unique_scopes, _hash(secret), _now(), "")
            keys.append(key)
        return NewKey(key, secret)

    def list(self) -> Sequence[Key]:
        """Return all keys, including revoked ones, in order of creation.

        Raises:
            DataDirectoryError: The file cannot be read.
        """
        try:
            stat = self._path.stat()
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise disk_error(self._data_dir.path, error) from error
        stamp = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
        if stamp != self._stamp:
            self._keys = self._read()
            self._stamp = stamp
        return self._keys

    def revoke(self, id_or_name: str) -> Key:
        """Revoke a key immediately.

        Raises:
            ConfigurationError: No valid key has this id or name.
            DataDirectoryError: The disk reports an error.
        """
        with self._locked_keys() as keys:
            for at, key in enumerate(keys):
                if id_or_name in {key.id, key.name} and not key.revoked_at:
                    keys[at] = key._replace(revoked_at=_now())
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

    @contextmanager
    def _locked_keys(self) -> Generator[_Keys]:
        """Yield the keys under an exclusive lock, and store them if the caller changed them."""
        try:
            descriptor = os.open(self._path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise disk_error(self._data_dir.path, error) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            keys = [*self.list()]
            before = [*keys]
            yield keys
            if keys != before:
                self._data_dir.write(self._path, json.dumps({"keys": [key._asdict() for key in keys]}, indent=1))
        finally:
            os.close(descriptor)

    def _read(self) -> tuple[Key, ...]:
        try:
            content = json.loads(self._path.read_text(encoding="utf-8"))
            return tuple(_key(cast("dict[str, str]", item)) for item in content["keys"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataDirectoryError(
                f"The keys in {self._path} cannot be read: {error}.",
                next_step="Restore the file from a backup. While it is damaged, no key is valid.",
            ) from error


def bearer_secret(authorization: str) -> str | None:
    """Return the secret in an ``Authorization: Bearer SECRET`` header, None for a header of another form."""
    return authorization[len(_SCHEME) :].strip() if authorization.lower().startswith(_SCHEME) else None


def check_key(keys: KeyRing, secret: str, scope: Scope) -> AccessDenied | None:
    """Look an API key up and check its scope; None grants access. DataDirectoryError: the keys cannot be read."""
    key = keys.find(secret)
    if key is None or key.revoked_at:
        return AccessDenied(HTTPStatus.UNAUTHORIZED, "this API key is unknown or revoked")
    if not key.allows(scope):
        scopes = ", ".join(key.scopes)
        return AccessDenied(HTTPStatus.FORBIDDEN, f"the API key {key.name} has the scopes {scopes}; expected {scope}")
    return None


def _key(item: "dict[str, str]") -> Key:
    scopes = tuple(Scope(scope) for scope in item["scopes"])
    return Key(item["id"], item["name"], scopes, item["sha256"], item["created_at"], item["revoked_at"])


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
