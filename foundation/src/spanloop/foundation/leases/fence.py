"""Fencing tokens: whose writes count.

A token grows with each holder of a lease. A process that hung and comes back has an older one, and what it then writes
is refused.
"""

from collections.abc import Callable


class Fence:
    """The newest token of one resource, wherever it is kept.

    Args:
        load: Returns the newest token; None where there is none.
        stale: Makes the error for a token that is refused, from it and the newest.
        save: Stores a token durably; a fence that only checks has none.
    """

    def __init__(
        self,
        load: Callable[[], int | None],
        stale: Callable[[int | None, int | None], Exception],
        save: Callable[[int], None] | None = None,
    ) -> None:
        self._load = load
        self._stale = stale
        self._save = save

    def claim(self, token: int) -> None:
        """Let only the holder of ``token`` write from now on; the token is stored before anything is written.

        Raises:
            Exception: What ``stale`` makes: a newer token is known.
        """
        newest = self._load()
        if newest is not None and newest > token:
            raise self._stale(token, newest)
        if newest != token and self._save is not None:
            self._save(token)

    def check(self, token: int | None) -> None:
        """Check that ``token`` is the newest; None never is.

        Raises:
            Exception: What ``stale`` makes: another token is the newest, or there is none.
        """
        newest = self._load()
        if token is None or token != newest:
            raise self._stale(token, newest)
