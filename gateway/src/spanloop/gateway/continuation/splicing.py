"""Put sampled tokens back into a rendering, behind the place where it differs from the conversation.

A template that drops the thinking of an earlier turn renders the rest of that turn from text. Where its text is what
the model sampled, the sampled tokens replace the rendering's, so no word of it has other tokens than before.

Invariant: the text of the rendering stays as it is, except for calls that the client returned as it received them.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from .received_answer import ReceivedAnswer, visible_text
from .token_parts import Spans, common_beginning, common_end, normalise, parts
from .vocabulary import Vocabulary

_WINDOW: Final = 32
"""Parts within which two sequences come together again."""
AnswerAt = Callable[[int], ReceivedAnswer | None]
"""From the index of a sampled range to its answer."""


class Spliced(NamedTuple):
    """The ids behind a difference."""

    token_ids: list[int]
    sampled: Spans


class _Part(NamedTuple):
    begin: int
    end: int
    span: int
    """Index of the sampled range that it overlaps; -1 for none."""
    text: str
    body: str
    """Its text behind the mark that it begins with."""


def splice(
    exact: Sequence[int], sampled: Spans, rendered: Sequence[int], vocabulary: Vocabulary, answer_at: AnswerAt
) -> Spliced:
    """Return ``rendered`` with what was sampled in place of equal texts.

    Args:
        exact: The conversation's ids behind the difference.
        sampled: Which of them were sampled.
        rendered: The rendering's ids behind it.
        vocabulary: Of the model.
        answer_at: Gives the answer of a sampled range.
    """
    result = Spliced([], Spans())
    ours, theirs = _parts(exact, sampled, vocabulary), _parts(rendered, Spans(), vocabulary)
    at = other = 0
    while at < len(ours) and other < len(theirs):
        skipped, other_skipped = _resume(ours, at, theirs, other)
        if skipped or other_skipped:
            gap, other_gap = ours[at : at + skipped], theirs[other : other + other_skipped]
            result = _fill_gap(result, exact, sampled, rendered, (gap, other_gap), vocabulary, answer_at)
            at, other = at + skipped, other + other_skipped
            continue
        result = _add_equal(result, exact, sampled, rendered, (ours[at], theirs[other]), vocabulary)
        at, other = at + 1, other + 1
    rest = rendered[theirs[other].begin :] if other < len(theirs) else ()
    return Spliced([*result.token_ids, *rest], result.sampled)


def _parts(token_ids: Sequence[int], sampled: Spans, vocabulary: Vocabulary) -> list[_Part]:
    result: list[_Part] = []
    for begin, end in parts(token_ids, 0, vocabulary):
        span = sampled.index_after(begin, end - 1)
        text = normalise(vocabulary.text(token_ids[begin:end]))
        is_marked = token_ids[begin] in vocabulary.added
        body = normalise(vocabulary.text(token_ids[begin + is_marked : end]))
        result.append(_Part(begin, end, span, text, body))
    return result


def _resume(ours: list[_Part], at: int, theirs: list[_Part], other: int) -> tuple[int, int]:
    """Return how many parts of each come before the nearest one that both have; one with a text, if there is one."""
    if ours[at].text == theirs[other].text:
        return 0, 0
    nearest: dict[str, int] = {}
    # The last part asks for the next answer, which the conversation has not.
    for distance, part in enumerate(theirs[other : min(other + _WINDOW, len(theirs) - 1)]):
        nearest.setdefault(part.text, distance)
    shared = [each for each in enumerate(ours[at : at + _WINDOW]) if each[1].text in nearest]
    with_text = [each for each in shared if each[1].body]
    pairs = [(distance, nearest[part.text]) for distance, part in with_text or shared]
    skipped, other_skipped = min(pairs, key=sum, default=(len(ours) - at, len(theirs) - other))
    while skipped and other_skipped and ours[at + skipped - 1].text == theirs[other + other_skipped - 1].text:
        skipped, other_skipped = skipped - 1, other_skipped - 1
    return skipped, other_skipped


def _add_equal(  # noqa: PLR0917 - two sequences and the parts of both
    result: Spliced,
    exact: Sequence[int],
    sampled: Spans,
    rendered: Sequence[int],
    both: tuple[_Part, _Part],
    vocabulary: Vocabulary,
) -> Spliced:
    """Add a part that both have; white space counts where the conversation or the answer ends in it."""
    ours, theirs = both
    ids, other_ids = exact[ours.begin : ours.end], rendered[theirs.begin : theirs.end]
    if ours.span < 0:
        return _add(result, other_ids, Spans(), theirs, theirs.begin)
    first, last = sampled.ranges[ours.span]
    if vocabulary.text(ids) == vocabulary.text(other_ids) or (first <= ours.begin and ours.end < last):
        return _add(result, ids, sampled, ours, ours.begin)
    count, other_count = common_beginning(ids, other_ids, vocabulary)
    result = _add(result, ids[:count], sampled, ours, ours.begin)
    return _add(result, other_ids[other_count:], Spans(), theirs, theirs.begin + other_count)


def _fill_gap(  # noqa: PLR0917 - two sequences and the parts of both
    result: Spliced,
    exact: Sequence[int],
    sampled: Spans,
    rendered: Sequence[int],
    gap: tuple[list[_Part], list[_Part]],
    vocabulary: Vocabulary,
    answer_at: AnswerAt,
) -> Spliced:
    ours, theirs = gap
    if not theirs:
        return result
    begin = theirs[0].begin
    last = ours[-1] if ours else None
    calls = _calls_in(exact, rendered, gap, vocabulary, answer_at(last.span)) if last and last.span >= 0 else None
    if last and calls is not None:
        first, other_first = calls
        result = _add(result, rendered[begin:other_first], Spans(), theirs[0], begin)
        return _add(result, exact[first : last.end], sampled, last, first)
    waiting = iter([part for part in ours if part.span >= 0 and part.body])
    part = next(waiting, None)
    for other in theirs:
        ids = rendered[other.begin : other.end]
        match = part if part is not None and other.text.endswith(part.body) else None
        while match is None and part is not None and (following := next(waiting, None)) is not None:
            part = following
            match = part if other.text.endswith(part.body) else None
        count, other_count = common_end(exact[match.begin : match.end], ids, vocabulary) if match else (0, 0)
        result = _add(result, ids[: len(ids) - other_count], Spans(), other, other.begin)
        if match:
            result = _add(result, exact[match.end - count : match.end], sampled, match, match.end - count)
            part = next(waiting, None)
    return result


def _calls_in(
    exact: Sequence[int],
    rendered: Sequence[int],
    gap: tuple[list[_Part], list[_Part]],
    vocabulary: Vocabulary,
    answer: ReceivedAnswer | None,
) -> tuple[int, int] | None:
    """Return where the calls of an answer that was returned as received begin in both; None without such."""
    ours, theirs = gap
    if answer is None or not answer.names:
        return None
    for part in ours:
        mark = exact[part.begin]
        if part.span != ours[-1].span or mark not in vocabulary.added or answer.names[0] not in part.text:
            continue
        other = next((each for each in theirs if rendered[each.begin] == mark), None)
        if other is not None and answer.names[0] in visible_text(rendered[other.begin : other.end], vocabulary):
            return part.begin, other.begin
    return None


def _add(result: Spliced, token_ids: Sequence[int], sampled: Spans, part: _Part, begin: int) -> Spliced:
    """Return the result with ids that begin at ``begin`` of the sequence that ``sampled`` describes."""
    offset = len(result.token_ids)
    result.token_ids.extend(token_ids)
    if part.span < 0 or part.span >= len(sampled.ranges):
        return result
    first, last = sampled.ranges[part.span]
    first, last = max(first, begin), min(last, begin + len(token_ids))
    if first >= last:
        return result
    source, spans = sampled.source(part.span), result.sampled
    place = offset + first - begin
    if spans.ranges and spans.ranges[-1][1] == place and spans.source(len(spans.ranges) - 1) == source:
        joined = (spans.ranges[-1][0], place + last - first)
        return Spliced(result.token_ids, Spans((*spans.ranges[:-1], joined), spans.sources))
    return Spliced(result.token_ids, spans.plus(place, place + last - first, source))
