r"""Server-sent events as bytes: split an upstream's stream into the ``data`` of its events, and frame ours.

Only LF, CRLF and CR end a line (WHATWG HTML, 9.2.6). ``str.splitlines`` also splits at U+2028, U+0085 and others,
which JSON leaves unescaped inside strings, and would tear an event in two.
"""

import re
from collections.abc import AsyncIterable, AsyncIterator
from typing import Final

DONE: Final = b"[DONE]"
_EVENT_END: Final = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_LINE_END: Final = re.compile(rb"\r\n|\n|\r")


def event(data: bytes) -> bytes:
    """One event."""
    return b"data: " + data + b"\n\n"


async def events(stream: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """The ``data`` of each event, in order; comments and other fields are skipped, an unended last event is dropped."""
    pending = b""
    async for piece in stream:
        *whole, pending = _EVENT_END.split(pending + piece)
        for block in whole:
            if (data := _data(block)) is not None:
                yield data


def _data(block: bytes) -> bytes | None:
    lines = [line[5:].removeprefix(b" ") for line in _LINE_END.split(block) if line.startswith(b"data:")]
    return b"\n".join(lines) if lines else None
