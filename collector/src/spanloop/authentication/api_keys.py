"""API keys: who may send and read, kept in the data directory so that they hold while ClickHouse is away.

Invariant: a key itself is nowhere but with its owner; here is its SHA-256, which is enough for 256 random bits. Once a
first key was made, every request needs one, also when the last was revoked: taking keys away never opens a door.
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
from typing import Final, NamedTuple, TypeAlias, cast

from spanloop.datadir import DataDir, disk_error
from spanloop.semconv.errors import ConfigurationError, DataDirectoryError

_PREFIX: Final = "spanloop_"
_SECRET_BYTES: Final = 32


class Scope(StrEnum):
    """What a key is good for."""

    INGEST = "ingest"
    """Send spans and log records."""
    SCORE = "score"
    """Send scores."""
    READ = "read"
    """Read the collector's metrics."""
    TRAIN = "train"
    """Change what is served, over the gateway's ``/admin``."""
    ADMIN = "admin"
    """Everything."""


class Key(NamedTuple):
    """What is known of a key."""

    id: str
    name: str
    scopes: tuple[Scope, ...]
    sha256: str
    created_at: str
    """ISO 8601, UTC."""
    revoked_at: str
    """Empty while it is good."""

    def allows(self, scope: Scope) -> bool:
        """Whether it is good for that."""
        return not self.revoked_at and (scope in self.scopes or Scope.ADMIN in self.scopes)


class NewKey(NamedTuple):
    """A key at its only moment in the open."""

    key: Key
    secret: str
    """What its owner sends as ``Authorization: Bearer SECRET``."""


_Keys: TypeAlias = list[Key]


class KeyRing:
    """The keys of one data directory. Changes by other processes are seen at the next call.

    Args:
        data_dir: Opened.
    """

    def __init__(self, data_dir: DataDir) -> None:
        self._data_dir = data_dir
        self._path = data_dir.keys
        self._stamp: tuple[int, int, int] | None = None
        self._keys: tuple[Key, ...] = ()

    @property
    def is_required(self) -> bool:
        """Whether requests need a key: from the first key on, for good."""
        return self._path.exists()

    def create(self, name: str, scopes: Iterable[Scope]) -> NewKey:
        """Make a key.

        Raises:
            ConfigurationError: No name, no scope, or a good key of that name is there.
            DataDirectoryError: The disk refuses.
        """
        wanted = tuple(dict.fromkeys(scopes))
        if not name or not wanted:
            raise ConfigurationError(f"A key needs a name and a scope: got {name!r}, {list(wanted)}.")
        with self._changing() as keys:
            if any(key.name == name and not key.revoked_at for key in keys):
                raise ConfigurationError(
                    f"There is a key named {name} already.", next_step="Take another name, or revoke that one first."
                )
            identity = secrets.token_hex(4)
            secret = f"{_PREFIX}{identity}_{secrets.token_urlsafe(_SECRET_BYTES)}"
            made = Key(identity, name, wanted, _hash(secret), _now(), "")
            keys.append(made)
        return NewKey(made, secret)

    def list(self) -> Sequence[Key]:
        """All keys, revoked ones too, in the order in which they were made.

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
        """Make a key worthless, at once.

        Raises:
            ConfigurationError: There is no such key that is still good.
            DataDirectoryError: The disk refuses.
        """
        with self._changing() as keys:
            for at, key in enumerate(keys):
                if id_or_name in {key.id, key.name} and not key.revoked_at:
                    keys[at] = key._replace(revoked_at=_now())
                    return keys[at]
        raise ConfigurationError(
            f"There is no key {id_or_name} that could be revoked.", next_step="spanloop keys list shows all."
        )

    def find(self, secret: str) -> Key | None:
        """The key whose secret that is, revoked ones too; takes equally long whichever it is.

        Raises:
            DataDirectoryError: The file cannot be read.
        """
        hashed = _hash(secret)
        found = None
        for key in self.list():
            if hmac.compare_digest(key.sha256, hashed):
                found = key
        return found

    @contextmanager
    def _changing(self) -> Generator[_Keys]:
        """The keys, to be changed by one process at a time; written back at the end."""
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
                next_step="Restore the file from a backup. While it is there and broken, no key is good.",
            ) from error


def _key(item: "dict[str, str]") -> Key:
    scopes = tuple(Scope(scope) for scope in item["scopes"])
    return Key(item["id"], item["name"], scopes, item["sha256"], item["created_at"], item["revoked_at"])


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
