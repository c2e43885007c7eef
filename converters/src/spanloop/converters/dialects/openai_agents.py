"""OpenTelemetry's instrumentor of OpenAI's Agents SDK (``-openai-agents-v2``).

It writes OpenTelemetry's attributes, but what the model said as the repr of the SDK's objects, in a part of text, and
a name of its own for the agent on every span but the agent's.
"""

from typing import Final

from spanloop.semconv import attributes as names

from ..chat_forms import Fields, as_fields, as_list, part
from ..messages import dump
from ..reprs import value_of_repr
from ..spans import SpanKind
from .base import attr
from .exchange import reason_said, response_columns, response_messages
from .legacy import kind_of
from .otel_genai import AGENT_OPERATIONS, SOURCES
from .rows import RawSpan, RowDialect, decoded, known

_NOBODY: Final = "OpenAI Agent"
"""What it calls an agent by default."""

_REPR: Final = r"""\{"type":\s?"text",\s?"content":\s?"(?:\{'|Response[A-Z]\w+\()"""


def read(span: RawSpan) -> dict[str, str]:
    """The canonical columns of one span."""
    columns = {column: span.attributes.get(key, "") for column, key in SOURCES.items()}
    kind, operation = kind_of(span), span.attributes[names.GEN_AI_OPERATION_NAME]
    if operation not in AGENT_OPERATIONS and columns["agent_name"] == _NOBODY:
        columns["agent_name"] = ""
        kind = SpanKind.OTHER if kind is SpanKind.AGENT else kind
    if kind is SpanKind.LLM:
        columns |= _said(columns)
    return known({**columns, "kind": str(kind)})


def _said(columns: dict[str, str]) -> dict[str, str]:
    said = [as_fields(item) for item in as_list(decoded(columns["output_messages"]))]
    opened = [_opened(item) for item in said]
    if opened == said:
        return {}
    whole = next((found for item in said for piece in as_list(item.get("parts")) if (found := _repr(piece))), None)
    told = response_columns(whole)
    return {
        "response_id": columns["response_id"] or told.get("response_id", ""),
        "finish_reasons": reason_said(columns["finish_reasons"], opened),
        "output_messages": dump(opened),
    }


def _opened(item: Fields) -> Fields:
    found: list[object] = []
    for piece in as_list(item.get("parts")):
        value = _repr(piece)
        if value is None:
            found.append(piece)
        elif as_fields(value).get("type") in _ITEMS:
            found.append(part(value))
        else:
            messages = response_messages(value)
            found += [inner for message in messages for inner in as_list(message["parts"])] if messages else [piece]
    return {**item, "parts": found}


_ITEMS: Final = frozenset({"function_call", "reasoning"})


def _repr(piece: object) -> object:
    fields = as_fields(piece)
    content = fields.get("content")
    return value_of_repr(content) if fields.get("type") == "text" and isinstance(content, str) else None


OPENAI_AGENTS: Final = RowDialect(
    name="openai_agents",
    attributes=frozenset({names.GEN_AI_OPERATION_NAME, names.GEN_AI_AGENT_NAME, names.GEN_AI_OUTPUT_MESSAGES}),
    matches=attr(names.GEN_AI_OPERATION_NAME).is_not_null()
    & (
        (attr(names.GEN_AI_AGENT_NAME) == _NOBODY).fill_null(value=False)
        | attr(names.GEN_AI_OUTPUT_MESSAGES).str.contains(_REPR).fill_null(value=False)
    ),
    read=read,
)
