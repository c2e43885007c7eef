"""LiteLLM's raw requests: ``llm.<provider>.*``, what went to the provider and came back, as Python reprs.

Each lies under a ``litellm_request`` span that says the same in OpenTelemetry's attributes, with its tool calls
missing: of the two, the raw one counts.
"""

import re
from typing import Final

import polars as pl

from spanloop.messages import dump
from spanloop.messages.chat_forms import messages
from spanloop.messages.json_values import Fields, as_fields, as_list

from ...spans import SpanKind
from ..base import ColumnValue, Dialect, RawSpan
from ..rows import as_text, decoded, decoded_messages, known, parameters

_KEY: Final = re.compile(r"llm\.[^.]+\.(\w+)$")

_MESSAGES: Final = frozenset({"messages", "choices"})


def read(span: RawSpan) -> dict[str, ColumnValue]:
    """The canonical columns of one raw request."""
    items = span.attributes.items()
    raw: Fields = {
        match[1]: (decoded_messages(value, key) if match[1] in _MESSAGES else decoded(value))
        for key, value in items
        if value and (match := _KEY.match(key))
    }
    usage, tools = as_fields(raw.get("usage")), as_list(raw.get("tools"))
    output_messages = [item for item in messages(raw.get("choices"), "assistant") if item.get("parts")]
    return known(
        {
            "kind": str(SpanKind.LLM),
            **parameters(raw),
            "request_model": as_text(raw.get("model")),
            "response_model": as_text(raw.get("model")),
            "response_id": as_text(raw.get("id")),
            "input_tokens": as_text(usage.get("prompt_tokens", usage.get("input_tokens"))),
            "output_tokens": as_text(usage.get("completion_tokens", usage.get("output_tokens"))),
            "tools": dump(tools) if tools else "",
            "input_messages": messages(raw.get("messages")),
            "output_messages": output_messages,
        }
    )


LITELLM: Final = Dialect(
    name="litellm",
    # Not by scope: an exporter in between, such as Agent Lightning's store, may drop it.
    matches=pl.col("SpanName") == "raw_gen_ai_request",
    read=read,
    calls=({"SpanName": ("raw_gen_ai_request",)},),
)
