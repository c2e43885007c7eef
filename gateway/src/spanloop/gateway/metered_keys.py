"""Keys whose calls stop at a limit of tokens. A loop's agents call the model with one.

Invariant: a call under a metered key begins only while the limit has room for it and for the calls of the key that
run. Each of them is expected to cost as much as the largest call of the key so far. A refusal is an error in the
caller's format, and is counted. Keys live in memory: their holder sets them again after a restart of the gateway.
"""

from collections import OrderedDict
from dataclasses import dataclass
from http import HTTPStatus
from types import TracebackType
from typing import Final, NamedTuple, Self

from spanloop.foundation.keys.local_tokens import METERED_PREFIX

from .api_errors import ApiError

_MOST_KEYS: Final = 1_000
_NO_RETRY: Final = {"x-should-retry": "false"}
"""OpenAI's and Anthropic's clients repeat a 429 without it."""


@dataclass(slots=True)
class _Meter:
    limit: int
    tokens: int = 0
    refused: int = 0
    running: int = 0
    largest: int = 1
    """Tokens of the largest call so far."""


class MeterCounts(NamedTuple):
    """Counts of a key's calls since it was set first."""

    tokens: int
    refused: int
    """Calls that were refused because of the limit."""


class MeteredCall:
    """A running call; it ends with the block.

    Args:
        meter: Of its key; None for another key, whose calls are not counted.
    """

    __slots__ = ("_meter",)

    def __init__(self, meter: _Meter | None = None) -> None:
        self._meter = meter

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._meter is not None:
            self._meter.running -= 1

    def count(self, tokens: int) -> None:
        """Count the tokens of the call, prompt and response."""
        if self._meter is not None:
            self._meter.tokens += tokens
            self._meter.largest = max(self._meter.largest, tokens)


UNMETERED: Final = MeteredCall()


class MeteredKeys:
    """The keys of one gateway, used on one event loop."""

    def __init__(self) -> None:
        self._meters: OrderedDict[str, _Meter] = OrderedDict()

    def set(self, key: str, limit: int) -> MeterCounts:
        """Set the limit of a key, which is new or known; return its counts.

        Args:
            key: The secret.
            limit: Most tokens of all its calls together.
        """
        meter = self._meters.setdefault(key, _Meter(limit))
        meter.limit = limit
        self._meters.move_to_end(key)
        if len(self._meters) > _MOST_KEYS:
            self._meters.popitem(last=False)
        return MeterCounts(meter.tokens, meter.refused)

    def __contains__(self, key: str) -> bool:
        return key in self._meters

    def begin(self, secret: str) -> MeteredCall:
        """Begin a call.

        Raises:
            ApiError: 429 where the limit has no room for the call; 503 for a metered key that is not known.
        """
        if not secret.startswith(METERED_PREFIX):
            return UNMETERED
        meter = self._meters.get(secret)
        if meter is None:
            raise ApiError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "This metered key is not known: its loop has ended, or the gateway was restarted. The loop sets it "
                "again with its next attempt.",
                code="metered_key_unknown",
            )
        if meter.tokens + (meter.running + 1) * meter.largest > meter.limit:
            meter.refused += 1
            raise ApiError(
                HTTPStatus.TOO_MANY_REQUESTS,
                f"The loop's budget has no room for this call: {meter.tokens:,} of {meter.limit:,} tokens are spent, "
                f"{meter.running} calls run, and a call has cost up to {meter.largest:,}. Raise [budget] in the "
                "loop's file.",
                code="insufficient_quota",
                headers=_NO_RETRY,
            )
        meter.running += 1
        return MeteredCall(meter)
