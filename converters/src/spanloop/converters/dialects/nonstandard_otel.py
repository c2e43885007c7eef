"""OpenTelemetry's attributes with messages in another form: JSON within JSON, Python's repr, one message, texts.

Read here is only what the form of ``otel_genai`` cannot be; text that is no such thing stays, and is malformed. So are
messages in which a Responses API's call stands twice, as a part and as text with its JSON (OpenLLMetry's LangChain).
"""

from typing import Final

import polars as pl

from spanloop.messages.chat_forms import messages
from spanloop.messages.json_values import Fields, as_fields, as_list
from spanloop.messages.unfinished import is_unfinished
from spanloop.semconv import attributes as names

from .base import ColumnValue, Dialect, RawSpan, attr
from .legacy import KIND
from .otel_genai import COMPLETION_TOKENS, PROMPT_TOKENS, sources
from .rows import as_text, decoded, fields_of

_ALTERNATIVES: Final = {"input_tokens": (PROMPT_TOKENS,), "output_tokens": (COMPLETION_TOKENS,)}
_NONSTANDARD: Final = r"""^\s*(?:"|\{|\[\s*(?:"|'|\{\s*(?:'|"role":\s*"developer")))"""
"""Beginnings of a text, an object, a list of texts, a repr, and messages with another name of the role system."""

_REPEATED_CALL: Final = r"\"type\": \"function_call\""
"""In JSON: text that is the JSON of a call."""


def read(span: RawSpan) -> dict[str, ColumnValue]:
    """The canonical columns of one span."""
    roles = {"input_messages": "user", "output_messages": "assistant"}
    return {column: _canonical_messages(span.columns.get(column, ""), role) for column, role in roles.items()}


def _canonical_messages(text: str, role: str) -> ColumnValue:
    value = _outermost(text)
    if is_unfinished(text) and isinstance(value, str):
        return text
    items = as_list(value) or [value]
    canonical = [_without_repeated_calls(item) for item in messages([_opened(item) for item in items], role)]
    return canonical if canonical and all(item.get("parts") for item in canonical) else text


def _outermost(text: str) -> object:
    """The list of messages inside encodings as text and objects around it; the value itself where there is none."""
    value = decoded(text) if text else None
    for _ in range(_MOST_SHELLS):
        if isinstance(value, str) and (inner := decoded(value)) != value:
            value = inner
        elif (listed := _held_messages(as_fields(value))) is not None:
            value = listed
        else:
            break
    return value


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


def _without_repeated_calls(item: Fields) -> Fields:
    """The message without text that only repeats, as JSON, a call which is a part of it."""
    parts = as_list(item.get("parts"))
    call_ids = {as_text(part.get("id")) for part in map(as_fields, parts) if part.get("type") == "tool_call"}
    return {**item, "parts": [part for part in parts if not (call_ids and _repeated(as_fields(part)) in call_ids)]}


def _repeated(part: Fields) -> str | None:
    content = part.get("content")
    if part.get("type") != "text" or not isinstance(content, str) or '"function_call"' not in content:
        return None
    call = fields_of(content)
    return as_text(call.get("call_id")) if call.get("type") == "function_call" else None


NONSTANDARD_OTEL: Final = Dialect(
    name="nonstandard_otel",
    matches=attr(names.GEN_AI_OPERATION_NAME).is_not_null()
    & pl.any_horizontal(
        (attr(key).str.contains(_NONSTANDARD) | attr(key).str.contains(_REPEATED_CALL, literal=True)).fill_null(
            value=False
        )
        for key in (names.GEN_AI_INPUT_MESSAGES, names.GEN_AI_OUTPUT_MESSAGES)
    ),
    columns={**sources(behind=_ALTERNATIVES), "kind": KIND},
    read=read,
)
