"""Limits of attempts to log in: by user and address, by address, and by user.

Invariant: an attempt counts before its password is checked, so that attempts at the same time are no way around. A
login that succeeds forgets the attempts of this user from this address.
"""

import ipaddress
import math
import time
from collections import deque
from collections.abc import Callable
from typing import Final

WINDOW_S: Final = 300.0
USER_AND_ADDRESS: Final = 5
"""Attempts in a window for one user from one address."""
ADDRESS: Final = 30
"""Attempts in a window from one address."""
USER: Final = 100
"""Attempts in a window for one user from all addresses; few enough against guessing, and hard to lock a user out by."""
_MAX_KEYS: Final = 20_000


class LoginLimits:
    """Counts attempts over a sliding window.

    Args:
        clock: Seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._times_s: dict[tuple[str, str], deque[float]] = {}

    def begin(self, user: str, address: str) -> int:
        """Count an attempt; return 0, or the seconds to wait when it is one too many, which then does not count."""
        now_s = self._clock()
        network = _network(address)
        limits = {(user, network): USER_AND_ADDRESS, ("", network): ADDRESS, (user, ""): USER}
        if len(self._times_s) > _MAX_KEYS:
            self._forget_old(now_s)
        wait_s = 0.0
        for key, limit in limits.items():
            times_s = self._times_s.get(key, deque[float]())
            while times_s and times_s[0] <= now_s - WINDOW_S:
                times_s.popleft()
            if len(times_s) >= limit:
                wait_s = max(wait_s, times_s[0] + WINDOW_S - now_s)
        if wait_s:
            return math.ceil(wait_s)
        for key in limits:
            self._times_s.setdefault(key, deque[float]()).append(now_s)
        return 0

    def succeed(self, user: str, address: str) -> None:
        """Forget the attempts of a user from an address."""
        self._times_s.pop((user, _network(address)), None)

    def _forget_old(self, now_s: float) -> None:
        kept = {key: times_s for key, times_s in self._times_s.items() if times_s and times_s[-1] > now_s - WINDOW_S}
        self._times_s = kept


def _network(address: str) -> str:
    """Return what counts as one address: a holder of IPv6 addresses has a /64 of them."""
    try:
        client = ipaddress.ip_address(address)
    except ValueError:
        return address or "unknown"
    return str(client) if client.version == 4 else str(ipaddress.ip_network((client, 64), strict=False))
