"""Monocle: ``span.type`` says what a span is, events what went in and came out, one JSON object a message.

A framework's call has the library's below it, without content. Monocle leaves tool calls out of the history where
the model said something with them, and out of the answers that a framework saw.
"""

from collections.abc import Mapping
from typing import Final

import polars as pl

from spanloop.messages.chat_forms import message
from spanloop.messages.json_values import Fields, as_fields, as_list

from ...reading.finish_reasons import TOOL_CALL, canonical_finish_reason
from ...spans import SpanKind
from ..base import ColumnValue, Dialect, RawSpan, attr
from ..rows import as_text, decoded, decoded_messages, first, known, parameters

_TYPE: Final = "span.type"
_TOOL_TYPES: Final = ("agentic.tool.invocation", "agentic.mcp.invocation")
_AGENT_TYPE: Final = "agentic.invocation"


def read(span: RawSpan) -> dict[str, ColumnValue]:
    """The canonical columns of one of Monocle's spans."""
    attributes = span.attributes
    events = {name: values for name, values in span.events if name in {"data.input", "data.output", "metadata"}}
    given, answered = (events.get(name, {}) for name in ("data.input", "data.output"))
    kind = attributes[_TYPE]
    columns: dict[str, ColumnValue] = {"kind": str(SpanKind.OTHER)}
    if kind == "inference" or kind.startswith("inference."):
        columns = _call(attributes, events)
    elif kind in _TOOL_TYPES:
        columns = {
            "kind": str(SpanKind.TOOL),
            "tool_name": attributes.get("entity.1.name", ""),
            "tool_arguments": given.get("input", ""),
            "tool_result": answered.get("response", ""),
        }
    elif kind == _AGENT_TYPE:
        columns = {"kind": str(SpanKind.AGENT), "agent_name": attributes.get("entity.1.name", "")}
    return known({**columns, "conversation_id": attributes.get("scope.agentic.session", "")})


def _call(attributes: Mapping[str, str], events: Mapping[str, Mapping[str, str]]) -> dict[str, ColumnValue]:
    given, answered = (events.get(name, {}) for name in ("data.input", "data.output"))
    meta = events.get("metadata", {})
    listed = decoded_messages(given.get("input", ""), "input of data.input")
    seen = [_message(item) for item in (as_list(listed) or [listed]) if item]
    response = answered.get("response", "")
    output = [_message(response, "assistant")] if response and not _has_failed(answered) else []
    reason = meta.get("finish_reason", "")
    if canonical_finish_reason(reason) == TOOL_CALL and not any(_calls(item) for item in output):
        output = []
    return {
        "kind": str(SpanKind.LLM),
        "request_model": attributes.get("entity.2.name", ""),
        "finish_reasons": reason,
        "input_tokens": first(meta, "prompt_tokens", "input_tokens"),
        "output_tokens": first(meta, "completion_tokens", "output_tokens"),
        "input_messages": seen,
        "output_messages": [item for item in output if item["parts"]],
        **parameters(dict(meta)),
    }


def _has_failed(answered: Mapping[str, str]) -> bool:
    return answered.get("error_code", "success") not in {"", "success"}


def _calls(item: Fields) -> bool:
    """Whether the message asks for tools with all that it takes: a stream's arguments are left out."""
    calls = [part for part in map(as_fields, as_list(item["parts"])) if part.get("type") == "tool_call"]
    return bool(calls) and all(part.get("arguments") not in (None, "") for part in calls)


def _message(item: object, role: str = "user") -> Fields:
    """``{"user": …}``; the model's tool calls stand as a list in the place of its words."""
    if isinstance(item, str):
        item = decoded_messages(item, "input of data.input")
    fields = as_fields(item)
    if len(fields) != 1:
        return message(item, role)
    ((name, content),) = fields.items()
    entries = [as_fields(decoded(item) if isinstance(item, str) else item) for item in as_list(content)]
    calls = [
        {"id": as_text(call.get("tool_id")), "name": called, "arguments": call.get("tool_arguments")}
        for call in entries
        if (called := call.get("tool_name") or call.get("tool_function"))
    ]
    return message({"type": name, "role": name, **({"tool_calls": calls} if calls else {"content": content})})


MONOCLE: Final = Dialect(
    name="monocle",
    matches=attr("monocle_apptrace.version").is_not_null() & attr(_TYPE).is_not_null() & (pl.col("SpanName") != ""),
    read=read,
    calls=({"monocle_apptrace.version": "", _TYPE: r"^inference($|\.)"},),
)
