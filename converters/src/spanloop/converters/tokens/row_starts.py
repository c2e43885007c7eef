"""Why a step's prompt does not go on where the step before it ended.

Invariant: the messages decide first, because they are what the program said; only where they do go on are the tokens
asked. Nothing here knows a tokenizer: what was taken out of tokens that otherwise come back, or put between them, is
the template's doing (the server's, where it is the beginning that is gone); a piece that came back as other tokens was
spelled otherwise.
"""

from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

from spanloop.converters.enums import RowStart

from ..linking.continuation import continues
from ..spans import Span

_RESUMED: Final = 4
"""Tokens that show that two sequences go on together; one or two may be equal by chance."""
_Item = TypeVar("_Item", int, str, tuple[str, ...])


def by_messages(before: Span, after: Span) -> RowStart | None:
    """Return the change of the messages between two model calls; None when the second goes on where the first ended.

    Args:
        before: The earlier call.
        after: The later one.
    """
    if not before.input or not before.output or not after.input:
        return RowStart.PROMPT_DIVERGED
    if continues(before, after).choice == 0:
        return None
    whole = [*(message.content for message in before.input), before.output[0].content]
    now = [message.content for message in after.input]
    shared = common(whole, now)
    if shared == len(now):
        return RowStart.BRANCH
    return RowStart.CONTEXT_TRUNCATED if _lacks_a_piece(whole, now, shared) else RowStart.HISTORY_EDITED


def by_tokens(prompt: Sequence[int], response: Sequence[int], following: Sequence[int]) -> RowStart:
    """Return the change of the tokens of a call whose messages did go on.

    Args:
        prompt: Of the earlier call.
        response: What was sampled then.
        following: Prompt of the later call, which does not start with the two.
    """
    whole = [*prompt, *response]
    shared = common(whole, following)
    lacks_a_piece = shared == len(following) or _lacks_a_piece(whole, following, shared)
    if shared < len(prompt):
        return RowStart.CONTEXT_TRUNCATED if lacks_a_piece else RowStart.TEMPLATE_CHANGED
    # The same question the other way round: what was sampled comes back whole, behind something new.
    if lacks_a_piece or _comes_later(whole[shared:], following, shared) or _lacks_several(whole, following, shared):
        return RowStart.TEMPLATE_CHANGED
    return RowStart.RETOKENISED


def common(one: Sequence[_Item], other: Sequence[_Item]) -> int:
    """Return the number of items at the beginning that are the same."""
    shared, differ = 0, min(len(one), len(other)) + 1
    while differ - shared > 1:  # slices are compared without a step of Python for each item
        middle = (shared + differ) // 2
        if one[shared:middle] == other[shared:middle]:
            shared = middle
        else:
            differ = middle
    return shared


def _lacks_a_piece(whole: Sequence[_Item], now: Sequence[_Item], shared: int) -> bool:
    """Whether ``now`` goes on after the ``shared`` items with an end of ``whole``, so that only a piece is missing."""
    return any(
        whole[place:] == now[shared : shared + len(whole) - place] for place in _places(whole, now[shared], shared + 1)
    )


def _lacks_several(whole: Sequence[int], now: Sequence[int], shared: int) -> bool:
    """Whether only pieces of ``whole`` are missing in ``now``: the thinking of several calls.

    After each piece at least `_RESUMED` tokens come back. Behind a piece the last token may come back as another one: a
    template can end an earlier turn with another mark than the one that the model samples.
    """
    place, now_place, last, lacks_a_piece = shared, shared, len(whole) - 1, False
    while place <= last and now_place < len(now):
        if whole[place] == now[now_place]:
            place, now_place = place + 1, now_place + 1
            continue
        if place == last:
            return lacks_a_piece
        resumed = (
            at
            for at in _places(whole, now[now_place], place + 1)
            if whole[at : at + _RESUMED] == now[now_place : now_place + len(whole[at : at + _RESUMED])]
            or whole[at:last] == now[now_place : now_place + last - at] != whole[at:at]
        )
        place = next(resumed, -1)
        if place < 0:
            return False
        lacks_a_piece = True
    return place > last


def _comes_later(rest: Sequence[_Item], now: Sequence[_Item], shared: int) -> bool:
    """Whether ``rest`` stands in ``now`` as it is, behind what comes after the ``shared`` items."""
    return any(now[place : place + len(rest)] == rest for place in _places(now, rest[0], shared + 1))


def _places(items: Sequence[_Item], item: _Item, start: int) -> Iterator[int]:
    """Positions of ``item``, from ``start`` on."""
    try:
        while True:
            start = items.index(item, start)
            yield start
            start += 1
    except ValueError:
        return
