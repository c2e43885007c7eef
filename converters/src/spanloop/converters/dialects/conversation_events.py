"""One event with the whole content of a span: ``{"input": {"messages"}, "output": {"messages"}}``.

AWS's distribution of OpenTelemetry (ADOT) takes the content out of the attributes of any instrumentor and sends it so,
as a log record under the span's ids. Invariant: what a span's own attributes hold counts before it.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from spanloop.messages.chat_forms import message, plain
from spanloop.messages.json_values import Fields, as_fields, as_list
from spanloop.messages.turns import split_answers

from ..spans import SpanKind
from .base import BODY, ColumnValue
from .rows import as_text, decoded, decoded_content, decoded_messages

CONVERSATION: Final = "gen_ai.conversation.content"
"""The name that such an event gets, whatever its record is called."""

_MOST_SHELLS: Final = 4


def with_conversation(
    columns: Mapping[str, ColumnValue], kind: str, events: Sequence[tuple[str, Mapping[str, str]]]
) -> Mapping[str, ColumnValue]:
    """``columns`` with the content of the span's events of this kind where they have none."""
    bodies = [as_fields(decoded(values.get(BODY, ""))) for name, values in events if name == CONVERSATION]
    if not bodies or kind not in {SpanKind.LLM.value, SpanKind.TOOL.value}:
        return columns
    completed = dict(columns)
    names = _MESSAGES if kind == SpanKind.LLM.value else _TOOL
    for column, side in names.items():
        listed = [item for body in bodies for item in as_list(as_fields(body.get(side)).get("messages"))]
        if completed.get(column) or not listed:
            continue
        if kind == SpanKind.LLM.value:
            read = [_message(as_fields(item), "assistant" if side == "output" else "user") for item in listed]
            completed[column] = [one for one in split_answers(read) if one["parts"]] if side == "input" else read
        else:
            completed[column] = "".join(as_text(plain(_content(as_fields(item).get("content")))) for item in listed)
    return completed


_MESSAGES: Final = {"input_messages": "input", "output_messages": "output"}
_TOOL: Final = {"tool_arguments": "input", "tool_result": "output"}


def _message(item: Fields, role: str) -> Fields:
    """One message; its content may be JSON, or an object around it."""
    content = _content(item.get("content"))
    inner = as_fields(content)
    if "role" in inner or "tool_calls" in inner or "parts" in inner:
        return message({"role": item.get("role", role), **inner}, role)
    return message({**item, "content": content}, role)


def _content(content: object) -> object:
    """The content inside objects of one entry and JSON text; other text, and a tool's data, stay as they are."""
    for _ in range(_MOST_SHELLS):
        if isinstance(content, str) and content.lstrip()[:2] in {"[{", '["'}:
            parts = decoded_content(content, "content of a log record")
            return parts if _are_parts(parts) else content
        inner = as_fields(decoded_messages(content, "content of a log record") if isinstance(content, str) else content)
        if not inner or not (inner.keys() <= _SHELLS or "role" in inner):
            return content
        if "role" in inner and "content" not in inner:
            return inner
        content = (
            inner if "tool_calls" in inner else next(iter(inner[key] for key in ("content", "message") if key in inner))
        )
        if content is inner:
            return inner
    return content


_SHELLS: Final = frozenset({"content", "message", "finish_reason", "stop_reason"})


def _are_parts(value: object) -> bool:
    """Whether the value is a list of parts of content, or text that was cut within one."""
    items = as_list(value)
    is_cut = isinstance(value, str) and not items and type(value) is not str
    return is_cut or (bool(items) and all(not _PART_KEYS.isdisjoint(as_fields(item)) for item in items))


_PART_KEYS: Final = frozenset({"type", "text", "toolUse", "toolResult", "reasoningContent"})
