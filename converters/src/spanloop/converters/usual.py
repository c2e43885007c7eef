"""Messages in OpenTelemetry's own form with nothing unusual in them: checked by their type while they are decoded.

Invariant: what passes here is what the encoders of ``json`` and ``msgspec`` write alike, to the byte.
"""

from typing import Final, Literal

import msgspec

Scalar = str | int | bool | None
"""Values that both encoders write alike; numbers with a point they do not."""


class Text(msgspec.Struct, tag_field="type", tag="text", forbid_unknown_fields=True, gc=False):
    """A part that is text."""

    content: str


class Call(msgspec.Struct, tag_field="type", tag="tool_call", forbid_unknown_fields=True):
    """A part that asks for a tool."""

    id: str
    name: str
    arguments: dict[str, Scalar]


class Response(msgspec.Struct, tag_field="type", tag="tool_call_response", forbid_unknown_fields=True, gc=False):
    """A part with what a tool answered."""

    id: str
    response: str


class Typed(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """A message as it is written most often."""

    role: Literal["system", "user", "assistant", "tool"]
    parts: list[Text | Call | Response]
    finish_reason: str = ""


Fields = dict[str, object]

_DECODE: Final = msgspec.json.Decoder(list[Fields]).decode
_DECODE_TYPED: Final = msgspec.json.Decoder(list[Typed]).decode
_ENCODE: Final = msgspec.json.Encoder().encode


def decoded(text: str) -> tuple[list[Typed], list[Fields]] | None:
    """The messages of a JSON list, and the same as they were written; None when something in it is unusual."""
    try:
        return _DECODE_TYPED(text), _DECODE(text)
    except (ValueError, RecursionError):
        return None


def encoded(fields: object) -> str:
    """Compact JSON of what was ``decoded``."""
    return _ENCODE(fields).decode()
