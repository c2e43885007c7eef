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

from ..reading.arrow_lists import list_column

Ids = npt.NDArray[np.uint32]

_MOST: Final = 2**32 - 1
_BLOCK: Final = 128
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
    return _series(_in_blocks(texts, texts.clear())[0])


def turns(prompts: pl.Series, answers: pl.Series) -> tuple[pl.Series, pl.Series]:
    """``token_lists`` of both; an answer that the next prompt repeats is read there, and once.

    Args:
        prompts: Those of one conversation best in the order of its calls.
        answers: To each of the prompts; or none at all.
    """
    prompt_ids, answer_ids = _in_blocks(prompts, answers)
    rest = [number for number, ids in enumerate(answer_ids) if ids is None]
    alone = answers.gather(rest)
    for number, ids in zip(rest, _in_blocks(alone, alone.clear())[0], strict=True):
        answer_ids[number] = ids
    return _series(prompt_ids), _series(answer_ids)


def _in_blocks(texts: pl.Series, answers: pl.Series) -> tuple[list[Ids | None], list[Ids | None]]:
    """See ``_read``."""
    text_ids: list[Ids | None] = []
    answer_ids: list[Ids | None] = []
    columns = [one.cast(pl.Binary) for one in (texts, answers)]
    for start in range(0, texts.len(), _BLOCK):
        block_ids, known = _read(*(one.slice(start, _BLOCK).to_list() for one in columns))
        text_ids += block_ids
        answer_ids += known
    return text_ids, answer_ids


def _series(lists_of_ids: Sequence[Ids | None]) -> pl.Series:
    known = [_NOTHING if ids is None else ids for ids in lists_of_ids]
    lists = list_column(np.concatenate([_NOTHING, *known]), np.array([len(ids) for ids in known], dtype=np.int64))
    is_read = [ids is not None for ids in lists_of_ids]
    return lists if all(is_read) else pl.select(pl.when(pl.Series(is_read, dtype=pl.Boolean)).then(lists)).to_series()


_NOTHING: Final[Ids] = np.zeros(0, dtype=np.uint32)


def _read(texts: Sequence[bytes | None], answers: Sequence[bytes | None]) -> tuple[list[Ids | None], list[Ids | None]]:
    """The ids of each text, and those of the ``answers`` that the text behind their own repeats; None elsewhere."""
    segments = _segments(texts, answers)
    values = _values([text for text, _, _ in segments])
    if values is None:
        segments = _sound(segments)
        values = _values([text for text, _, _ in segments])
    text_ids: list[Ids | None] = []
    answer_ids: list[Ids | None] = [None] * len(answers)
    begin = end = 0
    for text, goes_on, repeats in segments:
        if text is None or values is None:
            text_ids.append(None)
            continue
        if not goes_on:
            begin = end
        if repeats:
            start = end
            end += text.count(b",", 0, repeats) + 1
            answer_ids[len(text_ids) - 1] = values[start:end]
            end += text.count(b",", repeats)
        elif text:
            end += text.count(b",") + 1
        text_ids.append(values[begin:end])
    return text_ids, answer_ids


_Segment = tuple[bytes | None, bool, int]
"""The new part of a text, without brackets (None where nothing can be read); whether it goes on where the text before
it ended; and how many of its bytes are the answer to the text before it."""

_UNREAD: Final[_Segment] = (None, False, 0)


def _segments(texts: Sequence[bytes | None], answers: Sequence[bytes | None]) -> list[_Segment]:
    """Return the new part of each text."""
    segments: list[_Segment] = []
    before, answer = memoryview(b""), b""
    """The text before, less its last bracket, and the answer to it, without any; empty where nothing goes on there."""
    for text, answered in zip(texts, answers or texts, strict=True):
        length = len(before)
        if text is None or len(text) == 1 or text[:1] != b"[" or text[-1] != _CLOSE:
            segments.append(_UNREAD)
            before = memoryview(b"")
        elif length and text.startswith(before) and (text[length] == _COMMA or length + 1 == len(text)):
            segment = text[length + (2 if text[length + 1 : length + 2] == b" " else 1) : -1]
            repeats = len(answer) if answer and segment.startswith(answer) else 0
            if repeats < len(segment) and segment[repeats : repeats + 1] != b",":
                repeats = 0
            is_sound = bool(segment) or length + 1 == len(text)
            segments.append((segment, True, repeats) if is_sound else (None, True, 0))
            before = memoryview(text)[: -1 if is_sound else 0]
        elif text[1] == _OPEN:
            nested = _NESTED.fullmatch(text)
            segments.append((nested.group(1) if nested else None, False, 0))
            before = memoryview(b"")
        else:
            segments.append((text[1:-1], False, 0))
            before = memoryview(text)[: -1 if len(text) > len(b"[]") else 0]
        is_flat = answers and answered is not None and answered[:1] == b"[" and answered[-1:] == b"]"
        answer = answered[1:-1] if is_flat and answered is not None and answered[1] != _OPEN else b""
    return segments


def _values(segments: Sequence[bytes | None]) -> Ids | None:
    """The ids of all pieces, one behind the other; None when something in them is none."""
    text = b",".join([segment for segment in segments if segment])
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


def _sound(segments: Sequence[_Segment]) -> list[_Segment]:
    """``segments``, less those that hold something else, and those that go on behind such a one."""
    kept: list[_Segment] = []
    for text, goes_on, _ in segments:
        is_sound = text is not None and (not text or _is_sound(text)) and not (goes_on and kept[-1][0] is None)
        kept.append((text, goes_on, 0) if is_sound else _UNREAD)
    return kept


def _is_sound(segment: bytes) -> bool:
    return _NUMBERS.fullmatch(segment) is not None and all(int(number) <= _MOST for number in _LONG.findall(segment))
