r"""Align the exact token ids of a conversation with a new rendering of it.

Both are compared part by part; a part ends before each added token (a mark of a role, a turn, a tool). Parts are equal
when their texts are, whatever their tokens. In a part that the model sampled, white space and JSON's escapes do not
count, because tool parsers and templates write the arguments of a call again; nor do special tokens within an
answer, because parsers drop them, nor bytes that are no UTF-8.

Invariant: the result is the longest exact beginning that the rendering repeats, followed by the rendering's own tokens.
Its text differs from the rendering's at most in the white space, escapes and special tokens of what the model sampled.
"""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from .vocabulary import Vocabulary

_UNCOUNTED: Final = re.compile("[\\s\ufffd]+")
"""White space, and what replaces bytes that are no UTF-8, which a text cannot return."""
_ESCAPE: Final = re.compile(r"\\u([0-9a-fA-F]{4})")


class Spans(NamedTuple):
    """Which positions of a sequence of ids were sampled: half-open ranges in order."""

    ranges: tuple[tuple[int, int], ...] = ()

    def overlap(self, begin: int, end: int) -> bool:
        """Return whether a position from ``begin`` to before ``end`` was sampled."""
        return any(first < end and begin < last for first, last in self.ranges)

    def end_after(self, at: int, limit: int) -> int:
        """Return the end of the range that ends after ``at`` and begins up to ``limit``; 0 for none."""
        return next((last for first, last in self.ranges if at < last and first <= limit), 0)

    def before(self, end: int) -> "Spans":
        """Return the part before a position."""
        return Spans(tuple((first, min(last, end)) for first, last in self.ranges if first < end))


class Alignment(NamedTuple):
    """Token ids of a prompt that continues a conversation."""

    token_ids: list[int]
    exact: int
    """How many of the conversation's ids it begins with."""
    is_whole: bool
    """Whether these are all of them: nothing of the history was edited or dropped."""


def align(exact: Sequence[int], sampled: Spans, rendered: Sequence[int], vocabulary: Vocabulary) -> Alignment:
    """Return the ids of ``rendered`` with the longest exact beginning.

    Args:
        exact: Ids of the conversation: prompts as they were sent, and what was sampled; of the type of ``rendered``.
        sampled: Which of them were sampled.
        rendered: Ids of the new request's whole rendering.
        vocabulary: Of the model.
    """
    at = other = _part_begin(exact, _equal_ids(exact, rendered), vocabulary)
    while at < len(exact):
        end, other_end = _part_end(exact, at, vocabulary), _part_end(rendered, other, vocabulary)
        part, other_part = exact[at:end], rendered[other:other_end]
        if part != other_part:
            count, other_count = _common(part, other_part, vocabulary)
            is_whole = end == len(exact) and count == len(part)
            if is_whole or not _are_equal(part, other_part, vocabulary, is_sampled=sampled.overlap(at, end)):
                answer = None if is_whole else _answer_end(exact, at, sampled, rendered[other:], vocabulary)
                if answer is None:
                    at, other = at + count, other + other_count
                    break
                end, other_end = answer[0], other + answer[1]
        at, other = end, other_end
    return Alignment([*exact[:at], *rendered[other:]], at, is_whole=at == len(exact))


def _equal_ids(first: Sequence[int], second: Sequence[int]) -> int:
    """Return how many ids both begin with."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _part_begin(token_ids: Sequence[int], equal: int, vocabulary: Vocabulary) -> int:
    """Return the begin of the last part that begins within the first ``equal`` ids; the end where all are equal."""
    if equal == len(token_ids):
        return equal
    at = max(0, equal - 1)
    while at and token_ids[at] not in vocabulary.added:
        at -= 1
    return at


def _part_end(token_ids: Sequence[int], begin: int, vocabulary: Vocabulary) -> int:
    """Return the position of the next added token after ``begin``."""
    end, added = begin + 1, vocabulary.added
    while end < len(token_ids) and token_ids[end] not in added:
        end += 1
    return min(end, len(token_ids))


def _are_equal(part: Sequence[int], other: Sequence[int], vocabulary: Vocabulary, *, is_sampled: bool) -> bool:
    text, other_text = vocabulary.text(part), vocabulary.text(other)
    if text == other_text:
        return True
    return is_sampled and _normalise(text) == _normalise(other_text)


def _answer_end(
    exact: Sequence[int], at: int, sampled: Spans, rendered: Sequence[int], vocabulary: Vocabulary
) -> tuple[int, int] | None:
    """Return the ends of a sampled answer that the rendering repeats without its special tokens: parsers drop them."""
    end = sampled.end_after(at, _part_end(exact, at, vocabulary))
    special = vocabulary.special
    if not end or exact[end - 1] not in special or exact[end - 1] not in rendered[1:]:
        return None
    other_end = list(rendered).index(exact[end - 1], 1) + 1
    if not special.isdisjoint(rendered[1 : other_end - 1]):
        return None
    text = vocabulary.text(token_id for token_id in exact[at + 1 : end] if token_id not in special)
    other_text = vocabulary.text(rendered[1 : other_end - 1])
    return (end, other_end) if _normalise(text) == _normalise(other_text) else None


def _normalise(text: bytes) -> str:
    unescaped = _ESCAPE.sub(lambda match: chr(int(match[1], 16)), text.decode(errors="replace"))
    return _UNCOUNTED.sub("", unescaped)


def _common(part: Sequence[int], other: Sequence[int], vocabulary: Vocabulary) -> tuple[int, int]:
    """Return how many tokens of each have the same text, at the last border that both have."""
    border = (0, 0)
    at, other_at, length, other_length = 0, 0, 0, 0
    text, other_text = vocabulary.text(part), vocabulary.text(other)
    while True:
        if length == other_length:
            if text[:length] != other_text[:length]:
                return border
            border = (at, other_at)
        if length <= other_length and at < len(part):
            length += len(vocabulary.pieces.get(part[at], b""))
            at += 1
        elif length >= other_length and other_at < len(other):
            other_length += len(vocabulary.pieces.get(other[other_at], b""))
            other_at += 1
        else:
            return border
