"""Numbers for the messages of an episode: each message is stored once, and a state is a list of ranges of numbers.

Invariant: ``messages(add(history)) == history.messages``. Numbers begin at 0 and have no gaps, so the messages of an
episode are a list. A state that extends an earlier one repeats its ranges; only messages behind them get new numbers.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import polars as pl

from spanloop.messages import History

Ranges: TypeAlias = tuple[int, ...]
"""Half-open ranges of message numbers, flattened: from, to, from, to, …"""

NO_STATE: Final[Ranges] = (0, 0)
"""The ranges of ``next_state`` behind the last step."""
_NEW_MESSAGES: Final = 8
"""Up to so many messages behind an earlier state are new messages, even if they repeat known text: ranges stay few."""
_RECENT: Final = 4
"""States that an edited history is compared with."""


class MessageNumbers:
    """The messages of one episode, numbered in the order in which its states show them."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        """JSON by number."""
        self._last: dict[str, int] = {}
        self._by_history: dict[History, Ranges] = {}
        self._recent: list[Ranges] = []

    def add(self, history: History) -> Ranges:
        """Number a state and return its ranges."""
        known = self._by_history.get(history)
        if known is not None and known is self._recent[-1]:
            return known
        ranges = self._extended(history)
        if ranges is None:
            ranges = self._edited([message.json for message in history.messages])
        if history.length:
            self._by_history[history] = ranges
            if ranges in self._recent:
                self._recent.remove(ranges)
            self._recent.append(ranges)
            del self._recent[:-_RECENT]
        return ranges

    def text(self, ranges: Sequence[int]) -> list[str]:
        """Return the messages of a state."""
        return [text for start, end in _pairs(ranges) for text in self.messages[start:end]]

    def _extended(self, history: History) -> Ranges | None:
        new: list[str] = []
        earlier: History | None = history
        while earlier is not None and earlier.message is not None and len(new) <= _NEW_MESSAGES:
            known = self._by_history.get(earlier)
            if known is not None:
                return self._append(list(known), new[::-1], reuse=False) if new else known
            new.append(earlier.message.json)
            earlier = earlier.before
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
        count = len(self.messages)
        if ranges and ranges[-1] == count and not reuse:
            self.messages += texts
            self._last.update(zip(texts, range(count, len(self.messages)), strict=True))
            return (*ranges[:-1], len(self.messages))
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


def with_state_texts(transitions: pl.DataFrame, messages: pl.DataFrame) -> pl.DataFrame:
    """``transitions`` with ``state`` and ``next_state`` as the JSON lists that the view ``transitions`` shows.

    Args:
        transitions: With ranges of message numbers.
        messages: The columns of ``frames.MESSAGES``, by episode and number.
    """
    episodes = messages.group_by("episode_id", maintain_order=True).agg(pl.col("message").sort_by("number"))
    by_episode: Mapping[str, list[str]] = dict(episodes.iter_rows())
    return transitions.with_columns(
        pl.Series(name, _texts(transitions["episode_id"], transitions[name], by_episode), dtype=pl.String)
        for name in ("state", "next_state")
    )


def _texts(episode_ids: pl.Series, states: pl.Series, messages: Mapping[str, list[str]]) -> Iterator[str]:
    for episode_id, ranges in zip(episode_ids, states.to_list(), strict=True):
        texts = [text for start, end in _pairs(ranges) for text in messages.get(episode_id, [])[start:end]]
        yield "" if tuple(ranges) == NO_STATE else "[" + ",".join(texts) + "]"


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
