"""Logins of users, in the memory of the dashboard's process.

Invariant: a login ends `LOGIN_S` after the login, at the logout, and as soon as its user is removed or gets another
password. Only the SHA-256 of its id is kept.
"""

import hashlib
import secrets
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from spanloop.foundation.keys.users import User, Users

LOGIN_S: Final = 12 * 3600
_MAX_LOGINS_OF_A_USER: Final = 50


class _Login(NamedTuple):
    user: User
    ends_s: float


class Logins:
    """The logins of one dashboard.

    Args:
        users: Who may have one.
        clock: Seconds, monotonic.
    """

    def __init__(self, users: Users, clock: Callable[[], float] = time.monotonic) -> None:
        self._users = users
        self._clock = clock
        self._logins: dict[str, _Login] = {}

    def begin(self, user: User) -> str:
        """Return the id of a new login, which the browser keeps in a cookie."""
        now_s = self._clock()
        self._logins = {key: session for key, session in self._logins.items() if session.ends_s > now_s}
        of_user = [key for key, session in self._logins.items() if session.user.name == user.name]
        for key in of_user[: len(of_user) - _MAX_LOGINS_OF_A_USER + 1]:
            del self._logins[key]
        identity = secrets.token_urlsafe(32)
        self._logins[_key(identity)] = _Login(user, now_s + LOGIN_S)
        return identity

    def user_of(self, identity: str) -> User | None:
        """Return the user of a login; None when it has ended. DataDirectoryError: the users cannot be read."""
        key = _key(identity)
        session = self._logins.get(key)
        if session is None:
            return None
        if session.ends_s <= self._clock() or self._users.find(session.user.name) != session.user:
            self._logins.pop(key, None)
            return None
        return session.user

    def end(self, identity: str) -> None:
        """End a session, if there is one."""
        self._logins.pop(_key(identity), None)

    @property
    def count(self) -> int:
        """Number of sessions that have not ended by time."""
        now_s = self._clock()
        return sum(session.ends_s > now_s for session in self._logins.values())


def _key(identity: str) -> str:
    return hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()
