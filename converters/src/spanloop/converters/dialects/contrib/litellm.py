"""LiteLLM's raw requests: ``llm.<provider>.*``, what went to the provider and came back, as Python reprs.

Each lies under a ``litellm_request`` span that says the same in OpenTelemetry's attributes, with its tool calls
missing: of the two, the raw one counts.
"""

import re
from typing import Final, cast

import polars as pl

from ...chat_forms import Fields, messages
from ...messages import dump
from ...spans import SpanKind
from ..base import Dialect, RawSpan
from ..rows import as_text, decoded, known, parameters

_KEY: Final = re.compile(r"llm\.[^.]+\.(\w+)$")


def read(span: RawSpan) -> dict[str, str]:
    """The canonical columns of one raw request."""
    told: Fields = {}
    for key, value in span.attributes.items():
        found = _KEY.match(key)
        if found is not None and value:
            told[found.group(1)] = decoded(value)
    usage = cast("Fields", told["usage"]) if isinstance(told.get("usage"), dict) else {}
    said = [item for item in messages(told.get("choices"), "assistant") if item.get("parts")]
    tools = told.get("tools")
    listed = cast("list[object]", tools) if isinstance(tools, list) else []
    return known(
        {
            "kind": str(SpanKind.LLM),
            **parameters(told),
            "request_model": as_text(told.get("model")),
            "response_model": as_text(told.get("model")),
            "response_id": as_text(told.get("id")),
            "input_tokens": as_text(usage.get("prompt_tokens", usage.get("input_tokens"))),
            "output_tokens": as_text(usage.get("completion_tokens", usage.get("output_tokens"))),
            "tools": dump(listed) if listed else "",
            "input_messages": dump(messages(told.get("messages"))) if told.get("messages") else "",
            "output_messages": dump(said) if said else "",
        }
    )


LITELLM: Final = Dialect(
    name="litellm",
    # Not by scope: an exporter in between, such as Agent Lightning's store, may drop it.
    matches=pl.col("SpanName") == "raw_gen_ai_request",
    read=read,
    calls=({"SpanName": ("raw_gen_ai_request",)},),
)
