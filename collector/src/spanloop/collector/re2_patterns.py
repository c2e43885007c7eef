"""The border to RE2, which ships no type information: patterns that take linear time, whatever the text.

Everything that senders choose is searched with these, so that no text can hold up the collector, as a backtracking
engine could be. Texts are UTF-8 bytes; what is no UTF-8 simply does not match.
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
"""Parts of patterns that match the same bytes within JSON, within protobuf and by themselves. Encoders differ in
what they escape: quotes, slashes, ``<``, ``&``, ``=``, ``+`` and whatever is not ASCII are escaped by some."""


class PatternError(ValueError):
    """No pattern of RE2."""


class Pattern:
    """One compiled pattern.

    Args:
        source: In RE2's syntax.

    Raises:
        PatternError: What is wrong with it.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        options = re2.Options()
        options.log_errors = False
        try:
            self._compiled: Any = re2.compile(source.encode(), options)
        except re2.error as error:
            said: object = error.args[0] if error.args else error
            raise PatternError(said.decode(errors="replace") if isinstance(said, bytes) else str(said)) from error

    def matches(self, text: bytes) -> bool:
        """Whether it matches prefilter_pattern."""
        return self._compiled.search(text) is not None

    def spans(self, text: bytes) -> Iterator[tuple[int, int]]:
        """Where it matches: first byte, and the byte behind the last one."""
        return (cast("tuple[int, int]", match.span()) for match in self._compiled.finditer(text))

    def replace(
        self, text: bytes, replacement: bytes, counts: Callable[[bytes, int, int], bool] | None = None
    ) -> tuple[bytes, int]:
        """The text with its matches replaced, and how many.

        Args:
            text: UTF-8.
            replacement: Put as it is.
            counts: Whether a match counts, by the text and where it is; default all do.
        """
        pieces: list[bytes] = []
        at = replaced = 0
        for start, end in self.spans(text):
            if counts is None or counts(text, start, end):
                pieces += (text[at:start], replacement)
                at, replaced = end, replaced + 1
        return b"".join([*pieces, text[at:]]) if replaced else text, replaced


def prefilter_pattern(source: str) -> str | None:
    r"""A pattern that is found in any bytes that hold a text in which ``source`` is found; None when there is none.

    What surrounds a text there is another one, so ``^``, ``$`` and ``\b`` go; and a text may be escaped JSON there, so
    that what can match an escaped character is not among the parts that are known.
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
