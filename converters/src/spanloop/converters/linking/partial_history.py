"""A call behind an earlier one whose words an instrumentor did not write down, in the answer or in the history.

What is left: the input is the earlier call's input, perhaps words of the model, and then answers without ids, so many
as that call asked for tools; or that call's words, to which the history adds calls; or that call worked and nobody
recorded its answer. That is little, so a call continues
another this way only where no second one could be meant: interleaved loops that begin alike stay apart.
"""

from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Final

from ..spans import Span
from .base import Call, IsUnique, Key, StitchRule, source
from .continuation import Evidence, is_recorded

_ANY_WORDS: Final = "*"
_UNRECORDED: Final = "?"
_WORDS_ONLY: Final = "!"
_MOST_ANSWERS: Final = 16
"""So many answers in succession are looked at: without the words between them, they may be of several calls."""


def _produced(call: Call) -> Iterator[Key]:
    span = call.span
    if not span.history.length or span.has_failed:
        return
    place = (span.history.number, span.service_name)
    if not is_recorded(span):
        yield (*place, _UNRECORDED)
    elif span.output[0].tool_calls:
        count, text = str(len(span.output[0].tool_calls)), span.output[0].text.strip()
        yield (*place, count, text)
        yield (*place, count, _ANY_WORDS if not text else "")
    elif text := span.output[0].text.strip():
        yield (*place, _WORDS_ONLY, text)


def _awaited(call: Call) -> Iterator[Key]:
    span, seen = call.span, call.span.input
    spoke = len(seen) - len(call.newest_messages)
    yield from _after_silence(span, spoke)
    if not spoke:
        return
    first = spoke - 1
    while first and seen[first - 1].role == "assistant":
        first -= 1
    if not first:
        return
    place = (span.history.first(first).number, span.service_name)
    answers = [answer for message in seen[spoke:] for answer in message.tool_responses]
    words = seen[first:spoke]
    text = "".join([message.text for message in words]).strip()
    if any(message.tool_calls for message in words):
        if text:
            yield (*place, _WORDS_ONLY, text)
    elif answers and not any(answer.id for answer in answers):
        for expected in dict.fromkeys((text, _ANY_WORDS if text else "")):
            yield (*place, str(len(answers)), expected)
    yield (*place, _UNRECORDED)


def _after_silence(span: Span, spoke: int) -> Iterator[Key]:
    """Where the last answers are to a call of which the history has no word; the fewest of them first."""
    seen, end = span.input, len(span.input)
    first = end
    while first > spoke and end - first < _MOST_ANSWERS and _is_anonymous_answer(span, first - 1):
        first -= 1
    if first == spoke:
        first += 1  # at least one follows words that are in the history
    counts = accumulate(len(message.tool_responses) for message in reversed(seen[first:]))
    for begins, count in zip(range(end - 1, first - 1, -1), counts, strict=True):
        if begins:
            place = (span.history.first(begins).number, span.service_name)
            yield (*place, str(count), "")
            yield (*place, _UNRECORDED)


def _is_anonymous_answer(span: Span, position: int) -> bool:
    answers = span.input[position].tool_responses
    return bool(answers) and not any(answer.id for answer in answers)


def _with_source(call: Call, keys: Iterable[Key]) -> list[Key]:
    return [(number, source(call.span), *others) for number, *others in keys]


def _produced_across(call: Call, _: IsUnique) -> list[Key]:
    return _with_source(call, _produced(call))


def _awaited_across(call: Call, _: IsUnique) -> list[Key]:
    return _with_source(call, _awaited(call))


PARTIAL_HISTORY: Final = StitchRule(
    Evidence.UNRECORDED_OUTPUT, _produced, _awaited, _produced_across, _awaited_across, needs_only_one=True
)
