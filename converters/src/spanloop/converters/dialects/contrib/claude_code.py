"""Claude Code's own spans: which requests it made, how they ended, and its tools with what they answered.

What a request and its response held is in log records, if the user has them sent; without them, or where they were cut
off, a call has no messages. A request that Claude Code makes for itself, a session's title for example, is no step.
"""

from typing import Final

import polars as pl

from spanloop.messages.chat_forms import message
from spanloop.semconv import attributes as names

from ...reading.request_bodies import REQUEST, RESPONSE
from ...spans import SpanKind
from ..base import ColumnValue, Dialect, RawSpan, attr
from ..provider_payloads import request_columns, response_columns
from ..rows import fields_of, known

_TYPE: Final = "span.type"
_KINDS: Final = {
    "llm_request": SpanKind.LLM,
    "tool": SpanKind.TOOL,
    "tool.execution": SpanKind.TOOL,
    "interaction": SpanKind.AGENT,
}

_SUB_AGENT: Final = "agent:"


def read(span: RawSpan) -> dict[str, ColumnValue]:
    """The canonical columns of one of Claude Code's spans."""
    attributes = span.attributes
    if attributes.get("llm_request.context") == "standalone":
        return known({"kind": str(SpanKind.OTHER)})
    kind = _KINDS.get(attributes[_TYPE], SpanKind.OTHER)
    columns: dict[str, ColumnValue] = {
        "kind": str(kind),
        "conversation_id": attributes.get(names.GEN_AI_CONVERSATION_ID, ""),
    }
    if kind is SpanKind.LLM:
        words = attributes.get("response.model_output", "")
        call: dict[str, ColumnValue] = {
            "request_model": attributes.get(names.GEN_AI_REQUEST_MODEL, ""),
            "finish_reasons": attributes.get("stop_reason", ""),
            "input_tokens": attributes.get("input_tokens", ""),
            "output_tokens": attributes.get("output_tokens", ""),
            "error_type": attributes.get("status_code", ""),
            "output_messages": [message({"role": "assistant", "content": words})] if words else [],
        }
        columns |= call | _bodies(span)
    elif kind is SpanKind.TOOL:
        columns |= {
            "tool_name": attributes.get("tool_name", ""),
            "tool_call_id": attributes.get("tool_use_id", ""),
            "tool_arguments": _below(attributes.get("tool_input", "")),
            "tool_result": _below(attributes.get("new_context", "")) or _output(span),
        }
    return known(columns)


def _bodies(span: RawSpan) -> dict[str, ColumnValue]:
    """Return the columns of the request and the response that the span has records of."""
    columns: dict[str, ColumnValue] = {}
    for name, record in span.events:
        if name not in {REQUEST, RESPONSE}:
            continue
        source = record.get("query_source", "")
        if source.startswith(_SUB_AGENT):
            columns["agent_name"] = source.rpartition(":")[2]
        if record.get("body_truncated") != "true":
            read = request_columns if name == REQUEST else response_columns
            columns |= read(fields_of(record.get("body", "")))
    return columns


def _output(span: RawSpan) -> str:
    return next((event.get("output", "") for name, event in span.events if name == "tool.output"), "")


def _below(text: str) -> str:
    """Return the text below the line ``[TOOL INPUT: name]`` or ``[TOOL RESULT: name]``."""
    return text.partition("\n")[2] if text.startswith("[TOOL ") else text


CLAUDE_CODE: Final = Dialect(
    name="claude_code",
    matches=attr(_TYPE).is_not_null() & pl.col("SpanName").str.starts_with("claude_code."),
    read=read,
    calls=({_TYPE: ("llm_request",), "SpanName": r"^claude_code\."},),
)
