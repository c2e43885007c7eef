"""Parts of a sequence of token ids, spans of sampled ids, and the comparison of their texts.

A part begins with an added token (a mark of a role, a turn, a tool) and ends before the next one.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from .vocabulary import Vocabulary

_UNCOUNTED: Final = re.compile("[\\s\ufffd]+")
"""White space, and what replaces bytes that are no UTF-8, which a text cannot return."""
_ESCAPES: Final = re.compile(r"(?:\\u[0-9a-fA-F]{4})+")
"""Of UTF-16: JSON writes a character beyond its 16 bits as two."""


class AnswerSource(NamedTuple):
    """The message of a conversation that an answer became."""

    message: int
    """Index of its message in the request's; -1 where it is unknown."""
    has_reasoning: bool
    """Whether the client received reasoning with it."""


UNKNOWN_SOURCE: Final = AnswerSource(-1, has_reasoning=False)


class Spans(NamedTuple):
    """Which positions of a sequence of ids were sampled: half-open ranges in order."""

    ranges: tuple[tuple[int, int], ...] = ()
    sources: tuple[AnswerSource, ...] = ()
    """Sources of the answers in the ranges, parallel to them; missing ones are unknown."""

    def source(self, at: int) -> AnswerSource:
        """Return the source of the range with an index."""
        return self.sources[at] if at < len(self.sources) else UNKNOWN_SOURCE

    def overlap(self, begin: int, end: int) -> bool:
        """Return whether a position from ``begin`` to before ``end`` was sampled."""
        return any(first < end and begin < last for first, last in self.ranges)

    def index_after(self, at: int, limit: int) -> int:
        """Return the index of the range that ends after ``at`` and begins up to ``limit``; -1 for none."""
        ranges = enumerate(self.ranges)
        return next((index for index, (first, last) in ranges if at < last and first <= limit), -1)

    def before(self, end: int) -> "Spans":
        """Return the part before a position."""
        ranges = tuple((first, min(last, end)) for first, last in self.ranges if first < end)
        return Spans(ranges, self.sources[: len(ranges)])

    def plus(self, first: int, last: int, source: AnswerSource) -> "Spans":
        """Return the spans with one more range behind them."""
        sources = (*(self.source(at) for at in range(len(self.ranges))), source)
        is_known = any(each != UNKNOWN_SOURCE for each in sources)
        return Spans((*self.ranges, (first, last)), sources if is_known else ())


def part_end(token_ids: Sequence[int], begin: int, vocabulary: Vocabulary) -> int:
    """Return the position of the next added token after ``begin``."""
    end, added = begin + 1, vocabulary.added
    while end < len(token_ids) and token_ids[end] not in added:
        end += 1
    return min(end, len(token_ids))


def parts(token_ids: Sequence[int], begin: int, vocabulary: Vocabulary) -> Iterator[tuple[int, int]]:
    """Yield the begin and the end of each part from a position on."""
    added = vocabulary.added
    begins = [begin, *(at for at in range(begin + 1, len(token_ids)) if token_ids[at] in added), len(token_ids)]
    yield from (each for each in pairwise(begins) if each[0] < each[1])


def normalise(text: bytes) -> str:
    """Return a text without what does not count in one that the model sampled."""
    unescaped = _ESCAPES.sub(_unescape, text.decode(errors="replace"))
    return _UNCOUNTED.sub("", unescaped)


def _unescape(escapes: re.Match[str]) -> str:
    return bytes.fromhex(escapes[0].replace("\\u", "")).decode("utf-16-be", errors="replace")


def common_beginning(part: Sequence[int], other: Sequence[int], vocabulary: Vocabulary) -> tuple[int, int]:
    """Return how many first tokens of each have the same text, at the last border that both have."""
    return _common([vocabulary.piece(each) for each in part], [vocabulary.piece(each) for each in other])


def common_end(part: Sequence[int], other: Sequence[int], vocabulary: Vocabulary) -> tuple[int, int]:
    """Return how many last tokens of each have the same text, at the first border that both have."""
    pieces = [vocabulary.piece(each)[::-1] for each in reversed(part)]
    return _common(pieces, [vocabulary.piece(each)[::-1] for each in reversed(other)])


def _common(pieces: Sequence[bytes], others: Sequence[bytes]) -> tuple[int, int]:
    text, other_text = b"".join(pieces), b"".join(others)
    border = (0, 0)
    at, other_at, length, other_length = 0, 0, 0, 0
    while True:
        if length == other_length:
            if text[:length] != other_text[:length]:
                return border
            border = (at, other_at)
        if length <= other_length and at < len(pieces):
            length += len(pieces[at])
            at += 1
        elif length >= other_length and other_at < len(others):
            other_length += len(others[other_at])
            other_at += 1
        else:
            return border
