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

Ids = npt.NDArray[np.uint32]

_MOST: Final = 2**32 - 1
_BLOCK: Final = 96
"""So many texts are read together: few enough to stay near the processor, and one that is odd slows down no others."""

_OPEN, _CLOSE, _COMMA, _SPACE, _ZERO = b"[], 0"
_NUMBERS: Final = re.compile(rb"[0-9]{1,10}(?:, ?[0-9]{1,10})*")
_LONG: Final = re.compile(rb"[0-9]{10}")
_NESTED: Final = re.compile(rb"\[\[([0-9, ]*)\](?:, ?\[[0-9, ]*\])*\]")
"""One list a choice, of which the first counts."""


def token_lists(texts: pl.Series) -> pl.Series:
    """The ids in each of ``texts``, as a list of UInt32; null where a text is no plain JSON list of them.

    Args:
        texts: Lists of ids; those of one conversation best in the order of its calls.
    """
    flat: list[Ids] = [_NOTHING]
    lengths: list[int | None] = []
    for start in range(0, texts.len(), _BLOCK):
        ids, own = _read(texts.slice(start, _BLOCK).cast(pl.Binary).to_list())
        flat += ids
        lengths += own
    known = [length or 0 for length in lengths]
    lists = ragged(np.concatenate(flat), np.array(known, dtype=np.int64))
    if None not in lengths:
        return lists
    is_read = pl.Series([length is not None for length in lengths], dtype=pl.Boolean)
    return pl.select(pl.when(is_read).then(lists)).to_series()


_NOTHING: Final[Ids] = np.zeros(0, dtype=np.uint32)


def _read(texts: Sequence[bytes | None]) -> tuple[list[Ids], list[int | None]]:
    """All ids, in pieces one behind the other, and how many each text has; None for one that is not read."""
    pieces, goes_on = _pieces(texts)
    values = _values(pieces)
    if values is None:
        pieces = _sound(pieces, goes_on)
        values = _values(pieces)
    if values is None:
        return [], [None] * len(texts)
    counts = [piece.count(b",") + 1 if piece else 0 for piece in pieces]
    if True not in goes_on:
        return [values], [None if piece is None else count for piece, count in zip(pieces, counts, strict=True)]
    lengths: list[int | None] = []
    whole: list[Ids] = []
    begin = end = 0
    for piece, count, is_longer in zip(pieces, counts, goes_on, strict=True):
        if piece is None:
            lengths.append(None)
            continue
        if not is_longer:
            begin = end
        end += count
        lengths.append(end - begin)
        whole.append(values[begin:end])
    return whole, lengths


def _pieces(texts: Sequence[bytes | None]) -> tuple[list[bytes | None], list[bool]]:
    """What is new in each text, without brackets, and whether it goes on where the text before it ended."""
    pieces: list[bytes | None] = []
    goes_on: list[bool] = []
    before = memoryview(b"")
    """The text before, less its last bracket; empty where nothing can go on from it."""
    for text in texts:
        piece, is_longer, length = None, False, len(before)
        if text is None or len(text) == 1 or text[:1] != b"[" or text[-1] != _CLOSE:
            before = memoryview(b"")
        elif length and text.startswith(before) and (text[length] == _COMMA or length + 1 == len(text)):
            is_longer = True
            piece = text[length + (2 if text[length + 1 : length + 2] == b" " else 1) : -1]
            if piece or length + 1 == len(text):
                before = memoryview(text)[:-1]
            else:
                piece, before = None, memoryview(b"")
        elif text[1] == _OPEN:
            nested = _NESTED.fullmatch(text)
            piece, before = nested.group(1) if nested else None, memoryview(b"")
        else:
            piece, before = text[1:-1], memoryview(text)[: -1 if len(text) > len(b"[]") else 0]
        pieces.append(piece)
        goes_on.append(is_longer)
    return pieces, goes_on


def _values(pieces: Sequence[bytes | None]) -> Ids | None:
    """The ids of all pieces, one behind the other; None when something in them is none."""
    text = b",".join([piece for piece in pieces if piece])
    if not text:
        return _NOTHING
    codes = np.frombuffer(text, dtype=np.uint8)
    is_digit, is_comma = codes - np.uint8(_ZERO) < np.uint8(10), codes == np.uint8(_COMMA)
    after_digit, after_comma = is_comma[1:] & is_digit[:-1], (codes == np.uint8(_SPACE))[1:] & is_comma[:-1]
    sound = np.count_nonzero(is_digit) + np.count_nonzero(after_digit) + np.count_nonzero(after_comma)
    if sound < len(codes) or not is_digit[-1]:
        return None
    values = np.fromstring(text, dtype=np.int64, sep=",")
    return values.astype(np.uint32) if values.max() <= _MOST else None


def _sound(pieces: Sequence[bytes | None], goes_on: Sequence[bool]) -> list[bytes | None]:
    """``pieces``, less those that hold something else, and those that go on behind such a one."""
    found: list[bytes | None] = []
    for piece, is_longer in zip(pieces, goes_on, strict=True):
        is_sound = piece is not None and (not piece or _is_sound(piece)) and not (is_longer and found[-1] is None)
        found.append(piece if is_sound else None)
    return found


def _is_sound(piece: bytes) -> bool:
    return _NUMBERS.fullmatch(piece) is not None and all(int(number) <= _MOST for number in _LONG.findall(piece))
