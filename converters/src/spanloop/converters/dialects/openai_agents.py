"""OpenTelemetry's instrumentor of OpenAI's Agents SDK (``-openai-agents-v2``).

It writes OpenTelemetry's attributes, but what the model said as the repr of the SDK's objects, in a part of text, and
a name of its own for the agent on every span but the agent's.
"""

from collections.abc import Mapping
from typing import Final

from spanloop.messages.chat_forms import part
from spanloop.messages.hosted_tools import has_hosted_items
from spanloop.messages.json_values import Fields, as_fields, as_list
from spanloop.semconv import attributes as names

from ..reading.python_reprs import value_of_repr
from ..spans import SpanKind
from .base import ColumnValue, Dialect, RawSpan, attr
from .legacy import KIND
from .otel_genai import AGENT_OPERATIONS, sources
from .provider_payloads import canonical_reason, response_columns, response_messages
from .rows import decoded

_NOBODY: Final = "OpenAI Agent"
"""Its default name of an agent."""

_REPR: Final = r"""\{"type":\s?"text",\s?"content":\s?"(?:\{'|Response[A-Z]\w+\()"""


def read(span: RawSpan) -> dict[str, ColumnValue]:
    """The canonical columns of one span."""
    columns = {"kind": span.columns["kind"]}
    is_agent = span.attributes[names.GEN_AI_OPERATION_NAME] in AGENT_OPERATIONS
    if not is_agent and span.columns.get("agent_name") == _NOBODY:
        columns["agent_name"] = ""
        columns["kind"] = SpanKind.OTHER.value if columns["kind"] == SpanKind.AGENT.value else columns["kind"]
    return columns | (_output_columns(span.columns) if columns["kind"] == SpanKind.LLM.value else {})


def _output_columns(columns: Mapping[str, str]) -> dict[str, ColumnValue]:
    output_messages = [as_fields(item) for item in as_list(decoded(columns.get("output_messages", "")))]
    opened = [_opened(item) for item in output_messages]
    if opened == output_messages:
        return {}
    whole = next(
        (value for item in output_messages for piece in as_list(item.get("parts")) if (value := _repr(piece))), None
    )
    response = response_columns(whole)
    return {
        "response_id": columns.get("response_id") or response.get("response_id", ""),
        "finish_reasons": canonical_reason(columns.get("finish_reasons", ""), opened),
        "output_messages": opened,
    }


def _opened(item: Fields) -> Fields:
    parts: list[object] = []
    for piece in as_list(item.get("parts")):
        value = _repr(piece)
        if value is None:
            parts.append(piece)
        elif as_fields(value).get("type") in _ITEMS or has_hosted_items([value]):
            parts.append(part(value))
        else:
            messages = response_messages(value)
            parts += [inner for message in messages for inner in as_list(message["parts"])] if messages else [piece]
    return {**item, "parts": parts}


_ITEMS: Final = frozenset({"function_call", "reasoning"})


def _repr(piece: object) -> object:
    fields = as_fields(piece)
    content = fields.get("content")
    return value_of_repr(content) if fields.get("type") == "text" and isinstance(content, str) else None


OPENAI_AGENTS: Final = Dialect(
    name="openai_agents",
    matches=attr(names.GEN_AI_OPERATION_NAME).is_not_null()
    & (
        (attr(names.GEN_AI_AGENT_NAME) == _NOBODY).fill_null(value=False)
        | attr(names.GEN_AI_OUTPUT_MESSAGES).str.contains(_REPR).fill_null(value=False)
    ),
    columns={**sources(), "kind": KIND},
    read=read,
)
