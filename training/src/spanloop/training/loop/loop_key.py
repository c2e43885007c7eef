"""The key under which a loop's agents call the model, so that the gateway refuses the call that exceeds the budget.

Invariant: the gateway's limit is set before each attempt, so a restart of the gateway loses at most what the running
calls cost. The key belongs to one process; it is never written to disk.
"""

import time
from collections.abc import Callable
from typing import Final

import httpx

from spanloop.foundation.errors import NotRunningError, ServiceError
from spanloop.foundation.keys.local_tokens import metered_key
from spanloop.foundation.paths import DataDir
from spanloop.training.promotion.deploy import GatewayAdmin, response_text

_TIMEOUT_S: Final = 10.0
_WAIT_S: Final = 600.0
_POLL_S: Final = 0.5


class LoopKey:
    """A metered key of the running gateway.

    Args:
        data_dir: Of the gateway.
    """

    def __init__(self, data_dir: DataDir) -> None:
        self._data_dir = data_dir
        self.secret: Final = metered_key()
        self._of_earlier_gateways = self._tokens = self._refused = 0

    @property
    def tokens(self) -> int:
        """Tokens of all calls under the key, as of the last `limit`."""
        return self._of_earlier_gateways + self._tokens

    def limit(self, tokens: int, should_stop: Callable[[], bool]) -> bool:
        """Limit all calls under the key together to ``tokens``; return whether one was refused since the last time.

        Args:
            tokens: Since the key was made.
            should_stop: Ends the wait for a gateway that is away.

        Raises:
            ServiceError: The gateway does not answer for ten minutes, or not as expected.
            ConfigurationError: It rejects this process.
        """
        deadline_s = time.monotonic() + _WAIT_S
        while True:
            try:
                return self._set(tokens)
            except (NotRunningError, httpx.HTTPError) as error:
                if time.monotonic() > deadline_s or should_stop():
                    raise ServiceError(
                        f"The gateway does not take the loop's limit of tokens: {error}.",
                        next_step="See spanloop status; the same command continues the loop.",
                    ) from error
            time.sleep(_POLL_S)

    def _set(self, tokens: int) -> bool:
        counted, refused = self._post(tokens)
        if counted < self._tokens or refused < self._refused:  # another gateway, which counts from 0
            self._of_earlier_gateways += self._tokens
            self._tokens = self._refused = 0
            counted, refused = self._post(tokens)
        was_refused = refused > self._refused
        self._tokens, self._refused = counted, refused
        return was_refused

    def _post(self, tokens: int) -> tuple[int, int]:
        body = {"key": self.secret, "limit": max(0, tokens - self._of_earlier_gateways)}
        response = GatewayAdmin.find(self._data_dir.path).post("metered", body, timeout_s=_TIMEOUT_S)
        if not response.is_success:
            raise ServiceError(
                f"The gateway does not limit the loop's tokens: got {response.status_code}: {response_text(response)}",
                next_step="Run the gateway in the same version as the loop, or leave tokens and money out of [budget].",
            )
        counts = response.json()
        return int(counts["tokens"]), int(counts["refused"])
