"""AgentScope's own spans, in OpenTelemetry's message JSON (1.0.2 to 2.0) and in the form of its first release.

Its JSON needs taking apart: an agent's whole reply, calls and answers together, is one assistant message, which is
there, empty, before the first call; text blocks and tool answers are Python reprs in text; the finish reason is always
``stop``; ids that it does not know are spelled out (``[no_session_id]``, ``unknown_id``). A tool that fails leaves its
span OK, and says ``ToolResultState.ERROR`` in the answer.
"""

import re
from typing import Final

import polars as pl

from spanloop.messages import dump
from spanloop.messages.chat_forms import messages
from spanloop.messages.json_values import Fields, as_fields, as_list, text_of_repr
from spanloop.messages.turns import split_answers
from spanloop.semconv import attributes as names

from ...reading.python_reprs import value_of_repr
from ...spans import SpanKind
from ..base import ColumnValue, Dialect, RawSpan, attr
from ..otel_genai import AGENT_OPERATIONS, LLM_OPERATIONS, sources
from ..rows import as_text, decoded, decoded_messages, fields_of, known

_FIRST_KIND: Final = "span.kind"
_UNKNOWN: Final = frozenset({"[no_session_id]", "unknown_id", "unknown_agent", "unknown"})
_FAILED: Final = re.compile(r"ToolResultState\.(ERROR|DENIED|INTERRUPTED)")
_STOPPED: Final = "interrupted"
"""The finish reason of a call whose program was stopped; its span is OK."""

_KINDS: Final = {"LLM": SpanKind.LLM, "TOOL": SpanKind.TOOL, "AGENT": SpanKind.AGENT}


def read(span: RawSpan) -> dict[str, ColumnValue]:
    """The canonical columns of one AgentScope span."""
    if names.GEN_AI_OPERATION_NAME not in span.attributes:
        return known(_first_release(span))
    columns = {column: "" if value in _UNKNOWN else value for column, value in span.columns.items()}
    operation = span.attributes[names.GEN_AI_OPERATION_NAME]
    if operation in LLM_OPERATIONS:
        return {**columns, **_call(columns)}
    if operation == "execute_tool":
        columns |= _tool(columns)
    elif operation in AGENT_OPERATIONS:
        columns["kind"] = str(SpanKind.AGENT)
    return {**columns}


def _call(columns: dict[str, str]) -> dict[str, ColumnValue]:
    seen = split_answers(messages(decoded_messages(columns.get("input_messages", ""), "gen_ai.input.messages")))
    for item in seen:
        for part in map(as_fields, as_list(item["parts"])):
            if part.get("type") == "tool_call_response":
                part["response"] = answer(as_text(part.get("response")))
        item.pop("finish_reason", None)
    answered = columns.get("output_messages", "")
    output = messages(decoded_messages(answered, "gen_ai.output.messages"), "assistant") if answered else []
    reasons = decoded(columns.get("finish_reasons", ""))
    first = as_text(next(iter(as_list(reasons)), None if isinstance(reasons, list) else reasons))
    reason = "tool_call" if _asks(output) and first == "stop" else first
    for item in output:
        item["finish_reason"] = reason
    return {
        **({"error_type": reason} if reason == _STOPPED else {}),
        "kind": str(SpanKind.LLM),
        "finish_reasons": reason,
        "input_messages": seen,
        "output_messages": output,
    }


def _asks(output: list[Fields]) -> bool:
    return any(as_fields(part).get("type") == "tool_call" for item in output for part in as_list(item["parts"]))


def _tool(columns: dict[str, str]) -> dict[str, str]:
    result = columns.get("tool_result", "")
    failed = _FAILED.search(result)
    tool_columns = {"kind": str(SpanKind.TOOL), "tool_result": answer(result)}
    return tool_columns | ({"error_type": f"ToolResultState.{failed.group(1)}"} if failed else {})


def answer(text: str) -> str:
    """Return a tool's answer, out of the repr of text blocks that AgentScope writes, at times as JSON text."""
    value = decoded(text)
    if listed := as_list(value):
        texts = [as_text(item) for item in listed]
        return "".join(map(text_of_repr, texts)) if any("TextBlock(" in part for part in texts) else text
    return text_of_repr(value) if isinstance(value, str) else text


def _first_release(span: RawSpan) -> dict[str, ColumnValue]:
    """Release 1.0.0: ``span.kind``, ``input``, ``output`` and ``metadata``, each JSON."""
    attributes = span.attributes
    kind = _KINDS.get(as_text(decoded(attributes[_FIRST_KIND])), SpanKind.OTHER)
    metadata, given = fields_of(attributes.get("metadata", "")), fields_of(attributes.get("input", ""))
    columns: dict[str, ColumnValue] = {"kind": str(kind)}
    if kind is SpanKind.AGENT:
        columns["agent_name"] = as_text(metadata.get("name"))
    elif kind is SpanKind.TOOL:
        columns |= {
            "tool_name": as_text(metadata.get("name")),
            "tool_call_id": as_text(metadata.get("id")),
            "tool_arguments": as_text(metadata.get("input")),
            "tool_result": answer(as_text(decoded(attributes.get("output", "")))),
        }
    elif kind is SpanKind.LLM:
        columns |= _first_call(given, metadata, as_text(decoded(attributes.get("output", ""))))
    return columns


def _first_call(given: Fields, metadata: Fields, output: str) -> dict[str, ColumnValue]:
    keywords, listed = as_fields(given.get("kwargs")), as_list(given.get("args"))
    seen = messages(keywords.get("messages") or next(iter(listed), None))
    tools = as_list(keywords.get("tools") or next(iter(listed[1:]), None))
    response = as_fields(value_of_repr(output))
    usage = as_fields(response.get("usage"))
    blocks = as_list(response.get("content"))
    output_messages = messages([{"role": "assistant", "content": blocks}]) if blocks else []
    return {
        "request_model": as_text(metadata.get("model_name")),
        "is_streaming": as_text(metadata.get("stream")),
        "tools": dump(tools) if tools else "",
        "input_messages": seen,
        "output_messages": output_messages,
        "finish_reasons": ("tool_call" if _asks(output_messages) else "stop") if output_messages else "",
        **{name: as_text(usage.get(name)) for name in ("input_tokens", "output_tokens")},
    }


_REPLY: Final = "agentscope.agent.reply_id"
_HAS_NO_SCOPE_AND_AN_AGENT: Final = (pl.col("ScopeName") == "") & attr(_REPLY).is_not_null().any().over("TraceId")
"""Exports may lack scopes (the SDK's ``to_json``); then an agent's span tells whose trace it is."""

AGENTSCOPE: Final = Dialect(
    name="agentscope",
    matches=(pl.col("ScopeName").str.starts_with("agentscope") | _HAS_NO_SCOPE_AND_AN_AGENT)
    & (attr(names.GEN_AI_OPERATION_NAME).is_not_null() | attr(_FIRST_KIND).is_not_null()),
    columns=sources(),
    read=read,
    calls=({_FIRST_KIND: ("llm",)},),
)
