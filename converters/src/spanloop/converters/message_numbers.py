"""Numbers for the messages of an episode: each message is stored once, and a state is a list of ranges of numbers.

Invariant: ``text(add(state)) == state``, and a JSON list is never one message. Numbers begin at 0 and have no gaps, so
the messages of an episode are a list. A state that extends an earlier one repeats its ranges; only messages behind
them get new numbers.
"""

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from spanloop.messages import MalformedMessagesError, list_items

Ranges: TypeAlias = tuple[int, ...]
"""Half-open ranges of message numbers, flattened: from, to, from, to, …"""

NO_STATE: Final[Ranges] = (0, 0)
"""Of an empty text: there is no state."""
_NEW_MESSAGES: Final = 8
"""Up to so many messages behind an earlier state are new messages, even if they repeat known text: ranges stay few."""
_RECENT: Final = 4
"""States that an edited history is compared with, and texts that are parsed once."""


def message_texts(state: str) -> list[str]:
    """Split the JSON list of a state into its messages' JSON. A text that is no JSON list is one message."""
    try:
        return list_items(state)
    except MalformedMessagesError:
        return [state]


class MessageNumbers:
    """The messages of one episode, numbered in the order in which its states show them."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        """JSON by number."""
        self._last: dict[str, int] = {}
        self._canonical: dict[str, str] = {}
        self._by_end: dict[tuple[int, str], Ranges] = {}
        self._recent: list[Ranges] = []
        self._parsed: dict[str, Ranges] = {}

    def add_text(self, state: str) -> Ranges:
        """Number a state given as JSON; see `add`. An empty text is `NO_STATE`."""
        if not state:
            return NO_STATE
        if (ranges := self._parsed.get(state)) is None:
            ranges = self._parsed[state] = self.add(message_texts(state))
            if len(self._parsed) > _RECENT:
                del self._parsed[next(iter(self._parsed))]
        return ranges

    def add(self, state: Sequence[str]) -> Ranges:
        """Number a state given as the JSON of its messages, and return its ranges."""
        texts = [self._canonical.setdefault(text, text) for text in state]
        ranges = self._extended(texts) or self._edited(texts)
        if texts:
            self._by_end[len(texts), texts[-1]] = ranges
            self._recent = [*(each for each in self._recent if each != ranges), ranges][-_RECENT:]
        return ranges

    def text(self, ranges: Sequence[int]) -> list[str]:
        """Return the messages of a state."""
        return [text for start, end in _pairs(ranges) for text in self.messages[start:end]]

    def _extended(self, texts: list[str]) -> Ranges | None:
        for length in range(len(texts), max(0, len(texts) - _NEW_MESSAGES - 1), -1):
            known = self._by_end.get((length, texts[length - 1]))
            if known is not None and self.text(known) == texts[:length]:
                return self._append(list(known), texts[length:], reuse=False)
        return None

    def _edited(self, texts: list[str]) -> Ranges:
        ranges, length = Ranges(), 0
        for recent in self._recent:
            common = _common_prefix(self.text(recent), texts)
            if common > length:
                ranges, length = recent, common
        return self._append(_head(ranges, length), texts[length:], reuse=True)

    def _append(self, ranges: list[int], texts: Sequence[str], *, reuse: bool) -> Ranges:
        """Continue the ranges with ``texts``: known messages where they follow, new ones else."""
        for text in texts:
            at = ranges[-1] if ranges else 0
            if at == len(self.messages) or self.messages[at] != text:
                at = self._last.get(text, len(self.messages)) if reuse else len(self.messages)
            if at == len(self.messages):
                self.messages.append(text)
                self._last[text] = at
            if ranges and ranges[-1] == at:
                ranges[-1] = at + 1
            else:
                ranges += (at, at + 1)
        return tuple(ranges)


def _pairs(ranges: Sequence[int]) -> Iterator[tuple[int, int]]:
    return zip(ranges[::2], ranges[1::2], strict=True)


def _head(ranges: Ranges, length: int) -> list[int]:
    """Cut the ranges after ``length`` messages."""
    head: list[int] = []
    for start, end in _pairs(ranges):
        if length <= 0:
            break
        head += (start, min(end, start + length))
        length -= end - start
    return head


def _common_prefix(one: list[str], other: list[str]) -> int:
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[low:middle] == other[low:middle] else (low, middle - 1)
    return low
