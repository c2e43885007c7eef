"""RE2 patterns, which match in linear time.

Every text that clients choose is searched with these patterns, so no text can stall the collector as it could with a
backtracking engine. Texts are UTF-8 bytes; bytes that are not UTF-8 do not match. The only module that imports re2,
which ships no type information.
"""
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

import re
from collections.abc import Callable, Iterator
from typing import Any, Final, cast

import re2

_TOKEN: Final = re.compile(
    r"""(?P<zero_width> \\[bB] | [$^] )
    | \\[dw] | \\[.*?(){}\[\]|^$-]
    | \[ (?!\^) (?: \\[dw.-] | [\w .%+@:#,;~-] )+ \]
    | [A-Za-z0-9 @_:\#%,;~!-]
    | \(\?: | \(\?i\) | [()|?*+] | \{ \d+ (?: ,\d* )? \}""",
    re.VERBOSE | re.ASCII,
)
"""Tokens of patterns that match the same bytes in JSON, in protobuf and in plain text. Encoders differ in what they
escape: some escape quotes, slashes, ``<``, ``&``, ``=``, ``+`` and non-ASCII characters."""


class PatternError(ValueError):
    """Raised when RE2 cannot compile a pattern."""


class Pattern:
    """One compiled pattern.

    Args:
        source: In RE2's syntax.

    Raises:
        PatternError: RE2 cannot compile it; the message is RE2's.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        options = re2.Options()
        options.log_errors = False
        try:
            self._compiled: Any = re2.compile(source.encode(), options)
        except re2.error as error:
            text: object = error.args[0] if error.args else error
            raise PatternError(text.decode(errors="replace") if isinstance(text, bytes) else str(text)) from error

    def matches(self, text: bytes) -> bool:
        """Return whether the pattern matches anywhere in the text."""
        return self._compiled.search(text) is not None

    def match_ranges(self, text: bytes) -> Iterator[tuple[int, int]]:
        """Yield the start and the exclusive end of each match, in bytes."""
        return (cast("tuple[int, int]", match.span()) for match in self._compiled.finditer(text))

    def replace(
        self, text: bytes, replacement: bytes, is_match: Callable[[bytes, int, int], bool] | None = None
    ) -> tuple[bytes, int]:
        """Replace the matches; return the new text and the number of replacements.

        Args:
            text: UTF-8.
            replacement: Inserted literally.
            is_match: Confirms a match by the text, start and end; None confirms every match.
        """
        parts: list[bytes] = []
        at = replaced = 0
        for start, end in self.match_ranges(text):
            if is_match is None or is_match(text, start, end):
                parts += (text[at:start], replacement)
                at, replaced = end, replaced + 1
        return b"".join([*parts, text[at:]]) if replaced else text, replaced


def make_prefilter(source: str) -> str | None:
    r"""Return a pattern that matches every encoded request with a match of ``source``; None when there is none.

    In a request a text has other surroundings, so ``^``, ``$`` and ``\b`` are removed. It may also be escaped JSON, so
    a token that can match an escaped character has no prefilter.
    """
    parts: list[str] = []
    at = 0
    while at < len(source):
        token = _TOKEN.match(source, at)
        if token is None:
            return None
        if token["zero_width"] is None:
            parts.append(token[0])
        at = token.end()
    return "".join(parts)
