"""Whether an id names one thing in the whole store.

Frameworks, mocks and some servers count their ids (``call_0001``), so the same id names other things in other runs.
UUIDs, ids of providers and other ids of at least 64 random bits do not repeat by accident.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from itertools import pairwise
from math import log2
from typing import TYPE_CHECKING, Final

from ..spans import Span

if TYPE_CHECKING:
    from spanloop.messages import ToolCall

RANDOM_BITS: Final = 64
"""Fewest random bits of an id that is unique by construction."""

_RUN: Final = re.compile(r"[0-9A-Za-z]+")
_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)
_HEX: Final = frozenset("0123456789abcdef")
_FEWEST_CHANGES: Final = 0.15
"""Least share of neighbouring characters in random text that differ in kind (digit, upper or lower case); in words and
numbers, such as ``weather2026``, fewer do."""


@lru_cache(maxsize=1 << 16)
def is_unique(identifier: str) -> bool:
    """Whether the id is unique by construction: a UUID, or at least ``RANDOM_BITS`` random bits."""
    uuid = _UUID.search(identifier)
    if uuid is not None:
        return len(set(uuid[0])) > len("00-01")
    return sum(map(_random_bits, _RUN.findall(identifier))) >= RANDOM_BITS


def _random_bits(run: str) -> float:
    kinds = ["9" if sign.isdigit() else "A" if sign.isupper() else "a" for sign in run]
    changes = sum(one != other for one, other in pairwise(kinds))
    if "9" not in kinds or changes < max(2.0, _FEWEST_CHANGES * len(run)) or len(set(run)) * 3 < len(run):
        return 0.0
    present = set(kinds)
    signs = 16 if set(run) <= _HEX else 10 + 26 * len(present - {"9"})
    return len(run) * log2(signs)


def contradicted_ids(calls: Iterable[Span]) -> frozenset[str]:
    """Ids of tool calls that the store contradicts: several model calls used one of them for different tool calls."""
    first: dict[str, ToolCall] = {}
    tool_calls = [tool_call for call in calls for message in call.output for tool_call in message.tool_calls]
    return frozenset(
        call.id
        for call in tool_calls
        if (known := first.setdefault(call.id, call)) is not call
        and call.id
        and (known.name, known.arguments) != (call.name, call.arguments)
    )
