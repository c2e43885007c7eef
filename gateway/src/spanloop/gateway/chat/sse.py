r"""Server-sent events: encode data as an event, and decode parts of a stream into the ``data`` of its events.

Only LF, CRLF and CR end a line (WHATWG HTML, 9.2.6). ``str.splitlines`` also splits at U+2028, U+0085 and others,
which JSON leaves unescaped inside strings, and would split an event in two.
"""

import re
from collections.abc import Iterator
from typing import Final

DONE: Final = b"[DONE]"
_EVENT_END: Final = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_LINE_END: Final = re.compile(rb"\r\n|\n|\r")


def encode(data: bytes) -> bytes:
    """Return one event."""
    return b"data: " + data + b"\n\n"


class Decoder:
    """Decodes one stream."""

    def __init__(self) -> None:
        self._pending = b""

    def feed(self, part: bytes) -> Iterator[bytes]:
        """Yield the ``data`` of each event that ends in the part, in order, without comments and other fields."""
        content = self._pending + part if self._pending else part
        *blocks, self._pending = content.split(b"\n\n") if b"\r" not in content else _EVENT_END.split(content)
        for block in blocks:
            if block.startswith(b"data: ") and b"\n" not in block and b"\r" not in block:
                yield block[6:]
            elif (data := _data(block)) is not None:
                yield data


def _data(block: bytes) -> bytes | None:
    lines = [line[5:].removeprefix(b" ") for line in _LINE_END.split(block) if line.startswith(b"data:")]
    return b"\n".join(lines) if lines else None
