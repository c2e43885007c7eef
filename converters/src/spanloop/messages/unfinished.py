"""Message lists that an attribute limit cut: text that begins as JSON or as a Python repr and stops inside of it.

Invariant: text that is complete, or that goes on behind a complete value, is not unfinished.
"""

import re
from typing import Final, Self

UNFINISHED: Final = "unfinished_json"
"""The type of a part that holds such text: ``view_message`` refuses it."""

_BEGINS: Final = re.compile(r"""\s*(?:[\[{][\s\[{]*["']|"\s*[\[{][\s\[{]*\\")""")
_CONTENT_BEGINS: Final = re.compile(
    r"""\s*\[\s*\{\s*["'](?:text|toolUse|toolResult|cachePoint|type["']\s*:\s*["'](?:text|input_text|output_text|image"""
    r"""|image_url|input_image|document|file|thinking|reasoning|tool_use|tool_result|tool_call|tool_call_response))["']"""
)
_SKIPPED: Final = re.compile(r"""[^"'\[\]{}]+""")
_STRINGS: Final = {
    '"': re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL),
    "'": re.compile(r"'[^'\\]*(?:\\.[^'\\]*)*'", re.DOTALL),
}


class UnfinishedText(str):
    """Text of an attribute that was cut within a message list; never the words of anybody."""

    __slots__ = ("attribute",)

    def __new__(cls, text: str, attribute: str) -> Self:
        """Keep where the text is from.

        Args:
            text: The text.
            attribute: Name of the attribute.
        """
        made = super().__new__(cls, text)
        made.attribute = attribute
        return made

    attribute: str


def is_unfinished(text: str) -> bool:
    """Whether ``text`` is the beginning of a list, an object, or of one that is encoded as JSON text."""
    begin = _BEGINS.match(text)
    if begin is None:
        return False
    if text.lstrip()[0] == '"':
        return _STRINGS['"'].match(text.lstrip()) is None
    return _is_open(text)


def is_unfinished_content(text: str) -> bool:
    """Whether ``text`` is the beginning of a list of parts: one message's content may be any other JSON."""
    return _CONTENT_BEGINS.match(text) is not None and _is_open(text)


def _is_open(text: str) -> bool:
    """Whether ``text`` ends inside the list or object that it begins with."""
    depth, place = 0, 0
    while place < len(text):
        character = text[place]
        if character in _STRINGS:
            string = _STRINGS[character].match(text, place)
            if string is None:
                return True
            place = string.end()
            continue
        if character in "[{":
            depth += 1
        elif character in "]}":
            depth -= 1
            if depth <= 0:
                return False
        else:
            skipped = _SKIPPED.match(text, place)
            place = skipped.end() if skipped else place + 1
            continue
        place += 1
    return True
