"""Messages: OpenTelemetry's JSON form in frozen values, and the digests that identify messages.

Invariant: ``Message.json`` carries every part that came in, known or not; the other fields are views on it. A
message's content covers what the model sees, not how an instrumentor spells it: ids of tool calls, empty text and
the order of object keys do not count, so that an output equals its later appearance in an input.
"""

from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b

import msgspec


class ToolCall(msgspec.Struct, frozen=True, gc=False):
    """One call that an action asks for."""

    id: str
    name: str
    arguments: str
    """The JSON text of the arguments; the text as it came when ``is_valid`` is false."""
    is_valid: bool
    """Whether the arguments are a JSON object (or absent)."""


class ToolResponse(msgspec.Struct, frozen=True, gc=False):
    """A tool's answer, as the model was shown it."""

    id: str
    content: str


class Message(msgspec.Struct, frozen=True, gc=False):
    """One message of a conversation."""

    role: str
    text: str
    tool_calls: tuple[ToolCall, ...]
    tool_responses: tuple[ToolResponse, ...]
    finish_reason: str
    json: str
    content: tuple[str, ...]
    """The role, then a label and a value for each part that the model sees, the text last."""
    is_redacted: bool

    @property
    def digest(self) -> bytes:
        """16 bytes that identify ``content`` outside of a batch."""
        return _content_digest(self.content)


@lru_cache(maxsize=1024)
def _content_digest(content: tuple[str, ...]) -> bytes:
    role, *parts = content
    return digest([role, *map("".join, zip(parts[::2], parts[1::2], strict=True))])


def digest(texts: Iterable[str]) -> bytes:
    """16 bytes that stand for the texts in their order."""
    framed: list[bytes] = []
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        framed += len(data).to_bytes(8, "big"), data
    return blake2b(b"".join(framed), digest_size=16).digest()


def chain(messages: Iterable[Message], running: bytes = b"") -> tuple[bytes, ...]:
    """The running digest after each message: two conversations share a prefix exactly when they share its digest.

    Args:
        messages: One after another.
        running: The digest before the first of them.
    """
    digests: list[bytes] = []
    for message in messages:
        running = blake2b(running + message.digest, digest_size=16).digest()
        digests.append(running)
    return tuple(digests)
