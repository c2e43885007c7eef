"""The reader and the writer of messages' JSON: ``msgspec``, and ``json`` for what it refuses (``NaN``, surrogates).

Invariant: no text that is read or written here has an unpaired surrogate; it is U+FFFD
(`spanloop.foundation.surrogates`). Tables, ClickHouse's JSON functions, tokenizers and readers of exports refuse one.
``NaN`` and infinity stay.
"""

from collections.abc import Callable
from math import isfinite
from typing import Final, cast

import msgspec

from spanloop.foundation.surrogates import dump_json, load_json

_DECODE: Final[Callable[[str | bytes], object]] = msgspec.json.Decoder().decode
_ENCODE: Final = msgspec.json.Encoder().encode


class MalformedMessagesError(ValueError):
    """Text that should be a list of messages and is not."""

    cut_text: str = ""
    """The text, where an attribute limit cut it within a value; empty otherwise."""


def dump(value: object) -> str:
    """Compact JSON."""
    try:
        data = _ENCODE(value)
    except (UnicodeEncodeError, TypeError):
        return dump_json(value)
    # ``msgspec`` writes ``null`` for a number that JSON has no word for.
    return dump_json(value) if b"null" in data and not _is_finite(value) else data.decode()


def text_of(value: object) -> str:
    """A value as text: empty for None, JSON for any other value that is no text."""
    if value is None:
        return ""
    return value if isinstance(value, str) else dump(value)


def parse_json(text: str | bytes) -> object:
    """The decoded JSON value.

    Raises:
        MalformedMessagesError: When ``text`` is not JSON, or is nested deeper than the decoder goes.
    """
    try:
        return _DECODE(text)
    except (ValueError, RecursionError):
        pass
    try:
        return load_json(text if isinstance(text, str) else text.decode())
    except (ValueError, RecursionError) as error:
        raise MalformedMessagesError(f"not JSON: {error}; got {_shown(text)!r}") from error


def parse_json_or_none(text: str) -> object:
    """The decoded JSON value; None when ``text`` is not JSON."""
    try:
        return parse_json(text)
    except MalformedMessagesError:
        return None


def _shown(text: str | bytes) -> str:
    return (text if isinstance(text, str) else text.decode("utf-8", "replace"))[:80]


def _is_finite(value: object) -> bool:
    waiting = [value]
    for item in waiting:
        if isinstance(item, dict):
            waiting += cast("dict[object, object]", item).values()
        elif isinstance(item, list):
            waiting += cast("list[object]", item)
        elif isinstance(item, float) and not isfinite(item):
            return False
    return True
