r"""Server-sent events: encode data as an event, and decode parts of a stream into the ``data`` of its events.

Only LF, CRLF and CR end a line (WHATWG HTML, 9.2.6). ``str.splitlines`` also splits at U+2028, U+0085 and others,
which JSON leaves unescaped inside strings, and would split an event in two.
"""

from typing import Final

DONE: Final = b"[DONE]"


def encode(data: bytes) -> bytes:
    """Return one event."""
    return b"data: " + data + b"\n\n"


class Decoder:
    """Decodes one stream."""

    def __init__(self) -> None:
        self._pending = b""
        """The line that has not ended."""
        self._data: list[bytes] = []
        """The lines of data in the event that has not ended."""
        self._is_after_cr = False

    def feed(self, part: bytes) -> list[bytes]:
        """Return the ``data`` of each event that ends in the part, in order, without comments and other fields."""
        if b"\r" in part or self._is_after_cr:
            part = self._with_line_feeds(part)
        *lines, self._pending = (self._pending + part).split(b"\n")
        events: list[bytes] = []
        data = self._data
        for line in lines:
            if not line:
                if data:
                    events.append(data[0] if len(data) == 1 else b"\n".join(data))
                    data.clear()
            elif line.startswith(b"data: "):
                data.append(line[6:])
            elif line.startswith(b"data:"):
                data.append(line[5:])
        return events

    def _with_line_feeds(self, part: bytes) -> bytes:
        """Return the part with lines that end with LF; a CR at its end may be half of a CRLF."""
        rest = part.removeprefix(b"\n") if self._is_after_cr else part
        if part:
            self._is_after_cr = part.endswith(b"\r")
        return rest.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
