"""Neatlogs' own wrappers of a model's client: numbered attributes, with the answer's calls in a list of their own.

The calls of the history are not written: of a message that only made calls ``null`` is left. Agents and tools are
spans of OpenInference's form.
"""

from collections.abc import Callable, Mapping
from typing import Final

import polars as pl

from spanloop.messages import dump
from spanloop.messages.chat_forms import message, tool_call
from spanloop.messages.json_values import Fields, as_list
from spanloop.semconv import attributes as names

from ...spans import SpanKind
from ..base import ColumnValue, Dialect, IndexedList, RawSpan, attr
from ..legacy import flat_message
from ..legacy_tools import tool_definition
from ..rows import known

_KIND: Final = "neatlogs.span.kind"
_PREFIX: Final = "neatlogs.llm."
_COLUMNS: Final = {
    "request_model": ("model_name",),
    "response_model": ("model_name",),
    "response_id": ("response_id",),
    "finish_reasons": ("finish_reason", "choices.0.finish_reason"),
    "is_streaming": ("is_streaming",),
    "temperature": ("temperature",),
    "top_p": ("top_p",),
    "max_tokens": ("max_tokens",),
    "input_tokens": ("token_count.prompt",),
    "output_tokens": ("token_count.completion",),
}


def read(span: RawSpan) -> dict[str, ColumnValue]:
    """The canonical columns of one model call."""
    seen, choices, calls, tools = (span.lists.get(name, ()) for name in _LISTS)
    nothing: Fields = {}
    answers: list[Fields] = [*choices[:1]] or [nothing]
    requested_calls: list[object] = [tool_call(call) for call in calls if call.get("choice_index", "0") == "0"]
    output = [_with_calls(message(item, "assistant"), requested_calls) for item in answers]
    output = [item for item in output if item["parts"]]
    return known(
        {
            "kind": str(SpanKind.LLM),
            "tools": dump(tools) if tools else "",
            "input_messages": seen,
            "output_messages": output,
        }
    )


def _seen(item: Fields) -> Fields:
    if item.get("role") == "assistant" and item.get("content") == "null":
        item = {**item, "content": None}
    return flat_message(item, "user")


def _with_calls(answer: Fields, calls: list[object]) -> Fields:
    return {**answer, "parts": [*as_list(answer["parts"]), *calls]}


_LISTS: Final[Mapping[str, Callable[[Fields], object]]] = {
    "input_messages": _seen,
    "output_messages": lambda fields: fields,
    "tool_calls": lambda fields: fields,
    "tools": tool_definition,
}

NEATLOGS: Final = Dialect(
    name="neatlogs",
    # It marks spans of others, too.
    matches=(attr(_KIND) == pl.lit("llm"))
    & attr(names.GEN_AI_OPERATION_NAME).is_null()
    & attr(names.GEN_AI_INPUT_MESSAGES).is_null(),
    columns={column: tuple(_PREFIX + key for key in keys) for column, keys in _COLUMNS.items()},
    read=read,
    calls=({_KIND: ("llm",)},),
    lists={name: IndexedList((_PREFIX + name,), read) for name, read in _LISTS.items()},
)
