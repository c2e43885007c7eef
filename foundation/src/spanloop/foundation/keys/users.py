"""Users of the dashboard: names, roles and hashed passwords.

Invariant: only the argon2id hash of a password is stored. From the first user on the dashboard needs a login, also
after the last one is removed: removing users never grants access. A password is never logged.
"""

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.paths import DataDir

from .api_keys import now_text
from .record_file import RecordFile

MIN_PASSWORD_CHARACTERS: Final = 12
_MAX_PASSWORD_CHARACTERS: Final = 1024
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_HASHER: Final = PasswordHasher()


class Role(StrEnum):
    """What a user of the dashboard may do."""

    VIEWER = "viewer"
    """Read every page."""
    OPERATOR = "operator"
    """Act too: start jobs, serve models, end canaries."""


class User(NamedTuple):
    """A stored user."""

    name: str
    role: Role
    password_hash: str
    """Argon2id, in the PHC string format."""
    created_at: str
    """ISO 8601, UTC."""
    changed_at: str
    """When the password was set last; ISO 8601, UTC."""


class Users:
    """The users of an opened data directory. The next call sees changes by other processes."""

    def __init__(self, data_dir: DataDir) -> None:
        self._file = RecordFile(data_dir, data_dir.users, "users", _user)

    @property
    def is_required(self) -> bool:
        """Whether the dashboard needs a login: always after the first user was created."""
        return self._file.exists

    def list(self) -> Sequence[User]:
        """Return all users in order of creation. DataDirectoryError: the file cannot be read."""
        return self._file.read()

    def find(self, name: str) -> User | None:
        """Return the user of this name; it raises as `list`."""
        return next((user for user in self.list() if user.name == name), None)

    def create(self, name: str, role: Role, password: str) -> User:
        """Create a user.

        Raises:
            ConfigurationError: The name is taken or malformed, or the password too short or too long.
            DataDirectoryError: The disk reports an error.
        """
        if _NAME.fullmatch(name) is None:
            raise ConfigurationError(
                f"{name!r} is no user name: expected 1 to 64 letters, digits, '.', '_', '@' or '-', not first a sign."
            )
        user = User(name, role, _hash(password), now_text(), now_text())
        with self._file.change() as users:
            if any(existing.name == name for existing in users):
                raise ConfigurationError(
                    f"There is a user named {name} already.",
                    next_step=f"spanloop users password {name} sets a new password; spanloop users remove {name}.",
                )
            users.append(user)
        return user

    def set_password(self, name: str, password: str) -> User:
        """Replace a password, which ends the user's sessions; it raises as `create`, and for an unknown name."""
        password_hash = _hash(password)
        with self._file.change() as users:
            for at, user in enumerate(users):
                if user.name == name:
                    users[at] = user._replace(password_hash=password_hash, changed_at=now_text())
                    return users[at]
        raise _unknown(name)

    def remove(self, name: str) -> None:
        """Remove a user, which ends the user's sessions. ConfigurationError: there is none of this name."""
        with self._file.change() as users:
            kept = [user for user in users if user.name != name]
            if len(kept) == len(users):
                raise _unknown(name)
            users[:] = kept

    def verify(self, name: str, password: str) -> User | None:
        """Return the user if the password is right; it takes as long for an unknown name. It raises as `list`."""
        user = self.find(name)
        try:
            _HASHER.verify(
                _DUMMY_HASH if user is None else user.password_hash, password[: _MAX_PASSWORD_CHARACTERS + 1]
            )
        except (VerificationError, InvalidHashError):
            return None
        return user


def _hash(password: str) -> str:
    if not MIN_PASSWORD_CHARACTERS <= len(password) <= _MAX_PASSWORD_CHARACTERS:
        raise ConfigurationError(
            f"The password has {len(password)} characters, expected {MIN_PASSWORD_CHARACTERS} to "
            f"{_MAX_PASSWORD_CHARACTERS}.",
            next_step="Choose a longer one, such as four random words.",
        )
    return _HASHER.hash(password)


# Of no password, with the parameters of every other hash.
_DUMMY_HASH: Final = "$argon2id$v=19$m=65536,t=3,p=4$c3Bhbmxvb3BzcGFubG9vcA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"


def _unknown(name: str) -> ConfigurationError:
    return ConfigurationError(f"There is no user named {name}.", next_step="spanloop users list shows all users.")


def _user(item: Mapping[str, Any]) -> User:
    return User(
        str(item["name"]),
        Role(item["role"]),
        str(item["password_hash"]),
        str(item["created_at"]),
        str(item["changed_at"]),
    )
