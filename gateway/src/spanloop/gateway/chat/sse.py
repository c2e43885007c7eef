r"""Server-sent events: encode data as an event, and decode a stream of bytes into the ``data`` of its events.

Only LF, CRLF and CR end a line (WHATWG HTML, 9.2.6). ``str.splitlines`` also splits at U+2028, U+0085 and others,
which JSON leaves unescaped inside strings, and would split an event in two.
"""

import re
from collections.abc import AsyncIterable, AsyncIterator
from typing import Final

DONE: Final = b"[DONE]"
_EVENT_END: Final = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_LINE_END: Final = re.compile(rb"\r\n|\n|\r")


def encode(data: bytes) -> bytes:
    """Return one event."""
    return b"data: " + data + b"\n\n"


async def decode(stream: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Yield the ``data`` of each event, in order, without comments, other fields and an incomplete last event."""
    pending = b""
    async for chunk in stream:
        *blocks, pending = _EVENT_END.split(pending + chunk)
        for block in blocks:
            if (data := _data(block)) is not None:
                yield data


def _data(block: bytes) -> bytes | None:
    lines = [line[5:].removeprefix(b" ") for line in _LINE_END.split(block) if line.startswith(b"data:")]
    return b"\n".join(lines) if lines else None
