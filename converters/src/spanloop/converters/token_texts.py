"""Lists of token ids out of their text, without a Python number for each id.

Invariant: a text that is read here has exactly the ids that ``span_tokens`` reads in it by polars' own splitting; any
other text is null, and is left to that. A prompt repeats what came before: of a text that goes on where the one before
it ended, only the rest is read.
"""

import re
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from .ragged import ragged

_MOST: Final = 2**32 - 1
_NUMBERS: Final = re.compile(r"[0-9]{1,10}(?:, ?[0-9]{1,10})*")
_LONG: Final = re.compile(r"[0-9]{10}")
_NESTED: Final = re.compile(r"\[\[([0-9, ]*)\](?:, ?\[[0-9, ]*\])*\]")
"""One list a choice, of which the first counts."""


def token_lists(texts: Sequence[str | None]) -> pl.Series:
    """The ids in each of ``texts``, as a list of UInt32; null where a text is no plain JSON list of them.

    Args:
        texts: Lists of ids; those of one conversation best in the order of its calls.
    """
    pieces, goes_on = _pieces(texts)
    values = _values(pieces)
    if values is None:
        pieces = _sound(pieces, goes_on)
        values = _values(pieces)
    if values is None:
        return pl.Series([None] * len(pieces), dtype=pl.List(pl.UInt32))
    found: list[npt.NDArray[np.uint32]] = []
    begin = end = 0
    for piece, is_longer in zip(pieces, goes_on, strict=True):
        if not is_longer:
            begin = end
        if piece:
            end += piece.count(",") + 1
        found.append(values[begin:end] if piece is not None else values[:0])
    lists = ragged(np.concatenate([values[:0], *found]), np.fromiter(map(len, found), np.int64, len(found)))
    if None not in pieces:
        return lists
    is_read = pl.Series([piece is not None for piece in pieces], dtype=pl.Boolean)
    return pl.select(pl.when(is_read).then(lists)).to_series()


def _pieces(texts: Sequence[str | None]) -> tuple[list[str | None], list[bool]]:
    """What is new in each text, without brackets, and whether it goes on where the text before it ended."""
    pieces: list[str | None] = []
    goes_on: list[bool] = []
    before, length = "", 0
    """The text before, less its last bracket; empty where nothing can go on from it."""
    for text in texts:
        piece, is_longer = None, False
        if text is None or text[:1] != "[" or text[-1] != "]" or len(text) == 1:
            before = ""
        elif before and text.startswith(before) and (text[length] == "," or length + 1 == len(text)):
            piece, is_longer = text[length + 1 : -1].lstrip(" "), True
            if not piece and length + 1 < len(text):
                piece = None
            before = text[:-1] if piece is not None else ""
        elif text[1] == "[":
            nested = _NESTED.fullmatch(text)
            piece, before = nested.group(1) if nested else None, ""
        else:
            piece, before = text[1:-1], text[:-1] if text != "[]" else ""
        length = len(before)
        pieces.append(piece)
        goes_on.append(is_longer)
    return pieces, goes_on


def _values(pieces: Sequence[str | None]) -> npt.NDArray[np.uint32] | None:
    """The ids of all pieces, one behind the other; None when something in them is none."""
    text = ",".join([piece for piece in pieces if piece]).encode()
    if not text:
        return np.zeros(0, dtype=np.uint32)
    codes = np.frombuffer(text, dtype=np.uint8)
    is_digit, is_comma, is_space = codes - np.uint8(48) < 10, codes == 44, codes == 32
    is_sound = (
        bool(is_digit[0] & is_digit[-1])
        and bool((is_digit | is_comma | is_space).all())
        and bool((is_comma[1:] <= is_digit[:-1]).all())
        and bool((is_space[1:] <= is_comma[:-1]).all())
    )
    if not is_sound:
        return None
    values = np.fromstring(text, dtype=np.int64, sep=",")
    return values.astype(np.uint32) if values.max() <= _MOST else None


def _sound(pieces: Sequence[str | None], goes_on: Sequence[bool]) -> list[str | None]:
    """``pieces``, less those that hold something else, and those that go on behind such a one."""
    found: list[str | None] = []
    for piece, is_longer in zip(pieces, goes_on, strict=True):
        is_sound = piece is not None and (not piece or _is_sound(piece)) and not (is_longer and found[-1] is None)
        found.append(piece if is_sound else None)
    return found


def _is_sound(piece: str) -> bool:
    return _NUMBERS.fullmatch(piece) is not None and all(int(number) <= _MOST for number in _LONG.findall(piece))
