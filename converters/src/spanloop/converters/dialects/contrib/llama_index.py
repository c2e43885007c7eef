"""LlamaIndex's own tracing (``llama-index-observability-otel``): its events as the span's, flattened to attributes.

``LLMChatStartEvent`` has what went to the model, ``LLMChatEndEvent`` what came back; a stream ends after its span, and
leaves no answer. Steps of a workflow are described by reprs, which are cut.
"""

import re
from collections.abc import Mapping
from typing import Final

import polars as pl

from spanloop.messages import dump
from spanloop.messages.chat_forms import messages
from spanloop.messages.json_values import Fields, as_fields, as_list, text_of_repr
from spanloop.messages.tool_definitions import tool_definitions

from ...reading.python_reprs import value_of_repr
from ...spans import SpanKind
from ..base import ColumnValue, Dialect, RawSpan, attr
from ..provider_payloads import response_columns, response_messages
from ..rows import as_text, as_unfinished, decoded, first_messages, known, parameters

_RUN: Final = "llamaindex.run_id"
_STEP: Final = "llamaindex.step.input_event"
_GIVEN: Final = "llamaindex.step.input_summary"
_STARTS: Final = ("LLMChatStartEvent", "LLMCompletionStartEvent")
_ENDS: Final = ("LLMChatEndEvent", "LLMCompletionEndEvent")
_AGENT: Final = re.compile(r"current_agent_name='([^']+)'")
_RESPONSES: Final = ("choices", "content", "candidates", "output")
"""Keys of which an API's own response has one."""


def read(span: RawSpan) -> dict[str, ColumnValue]:
    """The canonical columns of one span."""
    events = dict(span.events)
    start = next((events[name] for name in _STARTS if name in events), None)
    if start is not None:
        end = next((events[name] for name in _ENDS if name in events), None)
        columns = {} if end is None else _response_columns(end)
        return known({**_request_columns(start), **columns, "kind": str(SpanKind.LLM)})
    given, kind = span.attributes.get(_GIVEN, ""), SpanKind.OTHER
    if span.attributes.get(_STEP) == "ToolCall":
        return known(_tool(as_fields(value_of_repr(given)), events.get("step.output", {}).get("output", "")))
    named = _AGENT.search(given)
    if named and span.name.endswith(".run_agent_step"):
        kind = SpanKind.AGENT
    return known({"kind": str(kind), "agent_name": named.group(1) if named else ""})


def _request_columns(event: Mapping[str, str]) -> dict[str, ColumnValue]:
    model, settings = _nested(event, "model_dict."), _nested(event, "additional_kwargs.")
    given = first_messages(event, "messages")
    listed = [_with_id(as_fields(item)) or item for item in as_list(given)]
    seen = messages(listed or as_unfinished(given) or event.get("prompt"))
    tools = tool_definitions(as_list(settings.get("tools")))
    return {
        **parameters({**model, **settings}),
        "request_model": as_text(model.get("model_name") or model.get("model")),
        "tools": dump(tools) if tools else "",
        "input_messages": seen,
    }


def _with_id(item: Fields) -> Fields:
    """A message with what LlamaIndex keeps of OpenAI's form beside its blocks."""
    beside = as_fields(item.get("additional_kwargs"))
    blocks = [as_fields(block) for block in as_list(item.get("blocks"))]
    kept: Fields = {key: beside[key] for key in ("tool_call_id", "name") if key in beside}
    if "tool_calls" in beside and not any(block.get("block_type") == "tool_call" for block in blocks):
        kept["tool_calls"] = beside["tool_calls"]
    return {**item, **kept}


def _response_columns(event: Mapping[str, str]) -> dict[str, ColumnValue]:
    response = _nested(event, "response.")
    raw, answer = as_fields(response.get("raw")), as_fields(response.get("message"))
    columns = response_columns(raw)
    if not any(raw.get(key) for key in _RESPONSES):
        output_messages = (
            messages(_with_id(answer), "assistant") if answer else response_messages({"text": response.get("text")})
        )
        columns["output_messages"] = output_messages if any(item.get("parts") for item in output_messages) else []
    return columns


def _nested(event: Mapping[str, str], prefix: str) -> Fields:
    """The object that was flattened to the event's attributes below ``prefix``."""
    nested: Fields = {}
    for key, value in event.items():
        if key.startswith(prefix):
            *path, last = key.removeprefix(prefix).split(".")
            place = nested
            for name in path:
                inner: Fields = {}
                place[name] = inner = as_fields(place.get(name)) or inner
                place = inner
            place[last] = None if value == "null" else decoded(value)
    return nested


def _tool(call: Fields, output: str) -> dict[str, str]:
    answer = text_of_repr(output)
    return {
        "kind": str(SpanKind.TOOL),
        "tool_name": as_text(call.get("tool_name")),
        "tool_call_id": as_text(call.get("tool_id")),
        "tool_arguments": as_text(call.get("tool_kwargs")),
        "tool_result": answer if answer != output else "",
    }


LLAMA_INDEX: Final = Dialect(
    name="llama_index",
    matches=attr(_RUN).is_not_null()
    | pl.col("Events.Name").list.contains(_STARTS[0]).fill_null(value=False)
    | pl.col("Events.Name").list.contains(_STARTS[1]).fill_null(value=False),
    read=read,
    calls=({_RUN: "", "Events.Name": _STARTS},),
)
