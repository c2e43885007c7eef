r"""Align the exact token ids of a conversation with a new rendering of it.

Both are compared part by part; a part ends before each added token (a mark of a role, a turn, a tool). Parts are equal
when their texts are, whatever their tokens. In a part that the model sampled, white space and JSON's escapes do not
count, because tool parsers and templates write the arguments of a call again; nor do special tokens within an
answer, because parsers drop them, nor bytes that are no UTF-8. Of an answer that the client returned as it was received
nothing counts that the client did not receive: text behind a call, unknown fields of one, a stop sequence. Where the
version keeps thinking, nor does thinking that the rendering drops of such an answer.

Invariant: the result is the longest exact beginning that the rendering repeats, followed by the rendering's own tokens,
or the sampled ones where these have the same text. Its text differs from the rendering's at most in what parsers drop
or write again of what the model sampled.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from .received_answer import ReceivedAnswer, visible_text
from .splicing import splice
from .token_parts import Spans, common_beginning, normalise, part_end
from .vocabulary import Vocabulary

__all__ = ["Alignment", "Spans", "align"]


class Alignment(NamedTuple):
    """Token ids of a prompt that continues a conversation."""

    token_ids: list[int]
    exact: int
    """How many of the conversation's ids it begins with."""
    is_whole: bool
    """Whether these are all of them: nothing of the history was edited or dropped."""
    sampled: Spans = Spans()
    """Which of the token ids were sampled."""


def align(
    exact: Sequence[int],
    sampled: Spans,
    rendered: Sequence[int],
    vocabulary: Vocabulary,
    messages: Sequence[Any] = (),
) -> Alignment:
    """Return the ids of ``rendered`` with the longest exact beginning.

    Args:
        exact: Ids of the conversation: prompts as they were sent, and what was sampled; of the type of ``rendered``.
        sampled: Which of them were sampled, in answers that the client returned as it received them.
        rendered: Ids of the new request's whole rendering.
        vocabulary: Of the model.
        messages: Of the new request.
    """
    aligner = _Aligner(exact, sampled, rendered, vocabulary, messages)
    at, other = aligner.walk()
    if at == len(exact):
        return Alignment([*exact, *rendered[other:]], at, is_whole=True, sampled=sampled)
    rest = Spans(
        tuple((max(0, first - at), last - at) for first, last in sampled.ranges if last > at),
        tuple(sampled.source(index) for index, (_, last) in enumerate(sampled.ranges) if last > at),
    )
    hidden = len(sampled.ranges) - len(rest.ranges)
    spliced = splice(exact[at:], rest, rendered[other:], vocabulary, lambda index: aligner.answer(hidden + index))
    spans = sampled.before(at)
    for index, (first, last) in enumerate(spliced.sampled.ranges):
        spans = spans.plus(at + first, at + last, spliced.sampled.source(index))
    return Alignment([*exact[:at], *spliced.token_ids], at, is_whole=False, sampled=spans)


class _Aligner:
    """Walks over the parts of both as long as they stand for the same."""

    def __init__(
        self,
        exact: Sequence[int],
        sampled: Spans,
        rendered: Sequence[int],
        vocabulary: Vocabulary,
        messages: Sequence[Any],
    ) -> None:
        self._exact = exact
        self._sampled = sampled
        self._rendered = rendered
        self._vocabulary = vocabulary
        self._messages = messages

    def answer(self, span: int) -> ReceivedAnswer | None:
        """Return the answer of a sampled range; None where it is unknown."""
        return ReceivedAnswer.of(self._messages, self._sampled.source(span))

    def walk(self) -> tuple[int, int]:
        """Return the position up to which each stands for the same as the other."""
        exact, rendered, vocabulary, sampled = self._exact, self._rendered, self._vocabulary, self._sampled
        at = other = _part_begin(exact, _equal_ids(exact, rendered), vocabulary)
        # Of the answer that is compared: its range, and where the part begins that it begins in.
        span, begin, other_begin = -1, at, other
        while at < len(exact):
            end, other_end = part_end(exact, at, vocabulary), part_end(rendered, other, vocabulary)
            index = sampled.index_after(at, end)
            if index != span:
                is_inside = index >= 0 and sampled.ranges[index][0] < at
                # Ids that are equal were passed over, so both have the beginning at the same position.
                place = _part_begin(exact, sampled.ranges[index][0], vocabulary) if is_inside and at == other else at
                span, begin, other_begin = index, place, place if is_inside and at == other else other
            part, other_part = exact[at:end], rendered[other:other_end]
            if part != other_part:
                count, other_count = common_beginning(part, other_part, vocabulary)
                is_whole = end == len(exact) and count == len(part)
                if is_whole or not _are_equal(part, other_part, vocabulary, is_sampled=sampled.overlap(at, end)):
                    ends = None if is_whole else self._answer_ends(other, span, begin, other_begin)
                    if ends is None:
                        return at + count, other + other_count
                    end, other_end = ends
            at, other = end, other_end
        return at, other

    def _answer_ends(self, other: int, span: int, begin: int, other_begin: int) -> tuple[int, int] | None:
        """Return the ends of a sampled answer that the rendering repeats as the client received it; None for none."""
        if span < 0:
            return None
        exact, rendered, special = self._exact, self._rendered, self._vocabulary.special
        first, end = self._sampled.ranges[span]
        text = visible_text(exact[begin:end], self._vocabulary)
        is_ended = exact[end - 1] in special
        if is_ended and exact[end - 1] in rendered[other + 1 :]:
            other_end = list(rendered).index(exact[end - 1], other + 1)
            if special.isdisjoint(rendered[other + 1 : other_end]) and text == visible_text(
                rendered[other_begin:other_end], self._vocabulary
            ):
                return end, other_end + 1
        answer = self.answer(span)
        if answer is None or not answer.is_repeated_in(text):
            return None
        marks = {token_id for token_id in exact[first : end - is_ended] if token_id in special}
        call_marks = [self._vocabulary.text([each]).decode() for each in exact[first:end] if self._is_call_mark(each)]
        place = answer.end_in(rendered, other_begin, self._vocabulary, marks)
        is_repeated = place is not None and answer.begins_alike(
            text, visible_text(rendered[other_begin:place], self._vocabulary), next(iter(call_marks), "")
        )
        is_overruled = not is_repeated and self._vocabulary.keeps_thinking
        if is_overruled:
            answer = answer.without_thinking()
            place = answer.end_in(rendered, other_begin, self._vocabulary, marks)
            is_repeated = place is not None and answer.begins_without_thinking(
                text, visible_text(rendered[other_begin:place], self._vocabulary), call_marks
            )
        if place is None or not is_repeated or place < other:
            return None
        if is_ended and rendered[place] != exact[end - 1]:
            # A turn that became history ends with another mark: gpt-oss.
            return (end - 1, place) if is_overruled and place > other else None
        return end, place + is_ended

    def _is_call_mark(self, token_id: int) -> bool:
        return token_id in self._vocabulary.added and token_id not in self._vocabulary.special


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


def _are_equal(part: Sequence[int], other: Sequence[int], vocabulary: Vocabulary, *, is_sampled: bool) -> bool:
    text, other_text = vocabulary.text(part), vocabulary.text(other)
    if text == other_text:
        return True
    return is_sampled and normalise(text) == normalise(other_text)
