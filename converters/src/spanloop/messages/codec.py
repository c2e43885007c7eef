"""The reader and the writer of messages' JSON: ``msgspec``, and ``json`` for what it refuses (``NaN``, surrogates).

Invariant: no text that is read or written here has an unpaired surrogate; it is U+FFFD
(`spanloop.foundation.surrogates`). Tables, ClickHouse's JSON functions, tokenizers and readers of exports refuse one.
``NaN`` and infinity stay.
"""

import re
from math import isfinite
from typing import Final, cast

import msgspec

from spanloop.foundation.surrogates import dump_json, load_json

_DECODE: Final = msgspec.json.Decoder().decode
_ENCODE: Final = msgspec.json.Encoder().encode
_ITEMS: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode
_MARKS: Final = re.compile(r'"(?:[^"\\]++|\\.)*+"|[\[\]{},]', re.DOTALL)


class MalformedMessagesError(ValueError):
    """Text that should be a list of messages and is not."""


def dump(value: object) -> str:
    """Compact JSON."""
    try:
        data = _ENCODE(value)
    except (UnicodeEncodeError, TypeError):
        return dump_json(value)
    # ``msgspec`` writes ``null`` for a number that JSON has no word for.
    return dump_json(value) if b"null" in data and not _is_finite(value) else data.decode()


def parse_json(text: str | bytes) -> object:
    """The decoded JSON value.

    Raises:
        MalformedMessagesError: When ``text`` is not JSON, or is nested deeper than the decoder goes.
    """
    try:
        return cast("object", _DECODE(text))
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


def list_items(text: str) -> list[str]:
    """The JSON of each item of a JSON list, as it stands in ``text``.

    What `msgspec` refuses is cut where the brackets say so, at any depth.

    Raises:
        MalformedMessagesError: ``text`` is no list.
    """
    try:
        return [str(raw, "utf-8") for raw in _ITEMS(text)]
    except (ValueError, RecursionError):
        return _items_by_brackets(text)


def _items_by_brackets(text: str) -> list[str]:
    depth, begin, items = 0, 0, list[str]()
    for mark in _MARKS.finditer(text):
        if mark[0] in {"[", "{"}:
            depth += 1
            begin = mark.end() if depth == 1 else begin
        elif depth == 1 and mark[0] in {",", "]"}:
            items.append(text[begin : mark.start()].strip())
            begin = mark.end()
        depth -= mark[0] in {"]", "}"}
        if depth == 0:
            break
    is_list = text.lstrip()[:1] == "[" and items and depth == 0 and not text[begin:].strip()
    if not is_list or ("" in items and items != [""]):
        raise MalformedMessagesError(f"not a JSON list; got {_shown(text)!r}")
    return [item for item in items if item]


def _shown(text: str | bytes) -> str:
    return (text if isinstance(text, str) else text.decode("utf-8", "replace"))[:80]


def _is_finite(value: object) -> bool:
    waiting = [value]
    for found in waiting:
        if isinstance(found, dict):
            waiting += cast("dict[object, object]", found).values()
        elif isinstance(found, list):
            waiting += cast("list[object]", found)
        elif isinstance(found, float) and not isfinite(found):
            return False
    return True
