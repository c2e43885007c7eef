"""Values of decoded JSON, and JSON values that were turned into Python text on the way."""

import ast
import re
from collections.abc import Iterator
from typing import Final, cast

from spanloop.foundation.surrogates import load_json, replace_in_json, replace_surrogates

Fields = dict[str, object]

_REPR_BEGINS: Final = "TextBlock("
_TEXT_IN_REPR: Final = re.compile(
    r"""\bTextBlock\((?:type='text',\s*)?text=('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")""", re.DOTALL
)
_MAX_LITERAL: Final = 1_000_000


def as_fields(value: object) -> Fields:
    """The object that ``value`` is; empty when it is none."""
    return value if isinstance(value, dict) else {}  # pyright: ignore[reportUnknownVariableType]


def as_list(value: object) -> list[object]:
    """The list that ``value`` is; empty when it is none."""
    return value if isinstance(value, list) else []  # pyright: ignore[reportUnknownVariableType]


def python_object(text: object) -> object:
    """The dict or list that ``text`` is the Python repr of; None when it is none."""
    if not isinstance(text, str) or len(text) > _MAX_LITERAL or text.strip()[:1] not in {"{", "["}:
        return None
    try:
        value = cast("object", ast.literal_eval(text.strip()))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    return replace_in_json(value) if _is_json(value) else None


def python_or_json(text: str) -> object:
    """The JSON value or the Python literal that ``text`` is; None when it is neither."""
    try:
        return load_json(text)
    except (ValueError, RecursionError):
        return python_object(text)


def _is_json(value: object) -> bool:
    """Whether the literal is one that JSON can carry; deeper than that is none."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            if not all(isinstance(key, str) for key in cast("dict[object, object]", item)):
                return False
            waiting.extend(cast("dict[str, object]", item).values())
        elif isinstance(item, list):
            waiting.extend(cast("list[object]", item))
        elif item is not None and not isinstance(item, (str, int, float, bool)):
            return False
    return True


def scalar_texts(value: object) -> Iterator[str]:
    """The texts and numbers in a decoded value, at any depth."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        waiting += [*as_fields(item).values(), *as_list(item)]
        if isinstance(item, str) or (isinstance(item, (int, float)) and not isinstance(item, bool)):
            yield str(item)


def text_of_repr(text: str) -> str:
    """The text inside a Python repr of text blocks; the text itself when it is no such thing."""
    if _REPR_BEGINS not in text:
        return text
    texts = cast("list[str]", _TEXT_IN_REPR.findall(text))
    return replace_surrogates("".join(str(ast.literal_eval(literal)) for literal in texts)) if texts else text
