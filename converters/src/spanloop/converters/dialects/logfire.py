"""Logfire's instrumentors where they do not follow OpenTelemetry: ``request_data`` and ``response_data`` as JSON.

Its OpenAI Agents integration names what a span stands for in the message template: ``Function: {name}``,
``Agent run: {name!r}``; ``input`` and ``output`` are the call's.
"""

from typing import Final

import polars as pl

from spanloop.messages.json_values import as_fields
from spanloop.semconv import attributes as names

from ..spans import SpanKind
from .base import ColumnValue, Dialect, RawSpan, attr
from .otel_genai import sources
from .provider_payloads import request_columns, response_columns
from .rows import as_text, decoded, decoded_messages, fields_of, first, first_messages, known, parameters

_TEMPLATE: Final = "logfire.msg_template"
_REQUEST: Final = "request_data"
_RESPONSE: Final = "response_data"


def read(span: RawSpan) -> dict[str, ColumnValue]:
    """The canonical columns of one of Logfire's own spans."""
    attributes = span.attributes
    template = attributes[_TEMPLATE]
    if template.startswith("Function: "):
        return known(
            {
                "kind": str(SpanKind.TOOL),
                "tool_name": attributes.get("name", ""),
                "tool_arguments": attributes.get("input", ""),
                "tool_result": attributes.get("output", ""),
            }
        )
    if template.startswith("Agent run: "):
        return {"kind": str(SpanKind.AGENT), "agent_name": attributes.get("name", "")}
    if attributes.get("error") and _REQUEST not in attributes:
        return {"kind": str(SpanKind.LLM)}
    answer = first(attributes, _RESPONSE, "output")
    request, key = fields_of(attributes.get(_REQUEST, "")), _RESPONSE if attributes.get(_RESPONSE) else "output"
    response = None if answer == "null" else decoded_messages(answer, key)
    requested = request_columns(first_messages(attributes, "input", _REQUEST))
    answered = response_columns(response)
    if not requested.get("input_messages") or not span.columns.get("request_model"):
        return known({"kind": str(SpanKind.OTHER)})
    settings = {**fields_of(attributes.get("model_config", "")), **request}
    usage = as_fields(decoded(attributes.get("usage", "")))
    return known(
        {
            **parameters(settings),
            **request_columns(request),
            **requested,
            **response_columns({"usage": usage}),
            **answered,
            **span.columns,
            "kind": str(SpanKind.LLM),
            "is_streaming": as_text(request.get("stream")),
        }
    )


LOGFIRE: Final = Dialect(
    name="logfire",
    matches=attr(_TEMPLATE).is_not_null()
    & attr(names.GEN_AI_INPUT_MESSAGES).is_null()
    & attr("events").is_null()
    & (
        (attr(_REQUEST).is_not_null() & attr(_REQUEST).str.contains("messages|input|contents"))
        | attr(_TEMPLATE).str.contains(r"^(?:Function: |Agent run: )")
        | (attr("error").is_not_null() & attr(names.GEN_AI_REQUEST_MODEL).is_not_null())
    ),
    columns=sources(),
    read=read,
)

_ANSWERS: Final = (
    names.GEN_AI_OUTPUT_MESSAGES,
    names.GEN_AI_USAGE_OUTPUT_TOKENS,
    _RESPONSE,
    "response",
    "events",
    "error",
)

LOGFIRE_STREAM: Final = Dialect(
    name="logfire_stream",
    matches=attr(_TEMPLATE)
    .str.contains(r"^(?:Chat Completion|Completion|Message|Responses API) with ")
    .fill_null(value=False)
    & attr(_REQUEST).is_not_null()
    & pl.all_horizontal(attr(key).is_null() for key in _ANSWERS)
    & ~pl.col("StatusCode").fill_null("").str.to_lowercase().str.ends_with("error"),
    columns={"kind": pl.lit(SpanKind.OTHER.value)},
)
"""The request of a stream: the call is the span ``streaming response``, which has all of it and comes at its end."""
