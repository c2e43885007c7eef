"""OpenTelemetry's attributes with messages in another form: JSON within JSON, Python's repr, one message, texts.

Read here is only what the form of ``otel_genai`` cannot be; text that is no such thing stays, and is malformed. So are
messages in which a Responses API's call stands twice, as a part and as text with its JSON (OpenLLMetry's LangChain).
"""

from typing import Final

import polars as pl

from spanloop.messages.chat_forms import Fields, as_fields, as_list, messages
from spanloop.messages.unfinished import is_unfinished
from spanloop.semconv import attributes as names

from .base import ColumnValue, Dialect, RawSpan, attr
from .legacy import KIND
from .otel_genai import COMPLETION_TOKENS, PROMPT_TOKENS, sources
from .rows import as_text, decoded, fields_of

_ALTERNATIVES: Final = {"input_tokens": (PROMPT_TOKENS,), "output_tokens": (COMPLETION_TOKENS,)}
_UNEVEN: Final = r"""^\s*(?:"|\{|\[\s*(?:"|'|\{\s*(?:'|"role":\s*"developer")))"""
"""How a text, an object, a list of texts and a repr begin, and messages with a role that is another name of system."""

_ECHO: Final = r"\"type\": \"function_call\""
"""In JSON: text that is the JSON of a call."""


def read(span: RawSpan) -> dict[str, ColumnValue]:
    """The canonical columns of one span."""
    roles = {"input_messages": "user", "output_messages": "assistant"}
    return {column: _evened(span.columns.get(column, ""), role) for column, role in roles.items()}


def _evened(text: str, role: str) -> ColumnValue:
    found = _outermost(text)
    if is_unfinished(text) and isinstance(found, str):
        return text
    items = as_list(found) or [found]
    told = [_without_echoes(item) for item in messages([_opened(item) for item in items], role)]
    return told if told and all(item.get("parts") for item in told) else text


def _outermost(text: str) -> object:
    """The list of messages inside encodings as text and objects around it; the value itself where there is none."""
    found = decoded(text) if text else None
    for _ in range(_MOST_SHELLS):
        if isinstance(found, str) and (inner := decoded(found)) != found:
            found = inner
        elif (listed := _held_messages(as_fields(found))) is not None:
            found = listed
        else:
            break
    return found


_MOST_SHELLS: Final = 4


def _held_messages(fields: Fields) -> object:
    """The one value of an object around messages that is a list of them, or their JSON; None in a message itself."""
    if not fields or not _OF_MESSAGE.isdisjoint(fields):
        return None
    held = [value for value in fields.values() if _are_messages(decoded(value) if isinstance(value, str) else value)]
    return held[0] if len(held) == 1 else None


def _are_messages(value: object) -> bool:
    return bool(as_list(value)) and all("role" in as_fields(item) for item in as_list(value))


_OF_MESSAGE: Final = frozenset({"role", "parts", "content", "choices", "tool_calls", "kwargs"})


def _opened(item: object) -> object:
    return decoded(item) if isinstance(item, str) else item


def _without_echoes(item: Fields) -> Fields:
    """The message without text that only repeats, as JSON, a call which is a part of it."""
    pieces = as_list(item.get("parts"))
    asked = {as_text(piece.get("id")) for piece in map(as_fields, pieces) if piece.get("type") == "tool_call"}
    return {**item, "parts": [piece for piece in pieces if not (asked and _repeated(as_fields(piece)) in asked)]}


def _repeated(piece: Fields) -> str | None:
    content = piece.get("content")
    if piece.get("type") != "text" or not isinstance(content, str) or '"function_call"' not in content:
        return None
    said = fields_of(content)
    return as_text(said.get("call_id")) if said.get("type") == "function_call" else None


UNEVEN: Final = Dialect(
    name="uneven",
    matches=attr(names.GEN_AI_OPERATION_NAME).is_not_null()
    & pl.any_horizontal(
        (attr(key).str.contains(_UNEVEN) | attr(key).str.contains(_ECHO, literal=True)).fill_null(value=False)
        for key in (names.GEN_AI_INPUT_MESSAGES, names.GEN_AI_OUTPUT_MESSAGES)
    ),
    columns={**sources(behind=_ALTERNATIVES), "kind": KIND},
    read=read,
)
