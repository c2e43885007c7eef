"""OpenTelemetry's spans whose messages stand under names of the tracer's own.

Sentry, Cloudflare's AI gateway, Langtrace, Scorecard and Pipecat: request, answer, tool calls and tools each in an
attribute, as JSON or as text. A server's own span of a request (vLLM's) has no words at all, and is no call: its
client's is.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import polars as pl

from spanloop.messages import dump
from spanloop.messages.chat_forms import tool_call
from spanloop.messages.json_values import Fields, as_fields, as_list
from spanloop.messages.tool_definitions import tool_definitions
from spanloop.semconv import attributes as names

from ...spans import SpanKind
from ..base import ColumnValue, Dialect, RawSpan, attr
from ..otel_genai import COMPLETION_TOKENS, PROMPT_TOKENS, sources
from ..provider_payloads import request_columns, response_columns
from ..rows import decoded, first, first_messages, known

_REQUESTS: Final = ("gen_ai.request.messages", "gen_ai.prompt_json", "llm.prompts", "gen_ai.prompt.messages")
_ANSWERS: Final = ("gen_ai.completion_json", "llm.responses", "gen_ai.response.text", "gen_ai.completion.choices")
_CALLS: Final = "gen_ai.response.tool_calls"
_TOOLS: Final = ("gen_ai.request.available_tools", "gen_ai.request.tools", "tools")
_PLAIN: Final = ("input", "output")
"""Pipecat's, beside an operation; an answer without words has no output, and its tool calls are nowhere."""

_ALTERNATIVES: Final = {
    "input_tokens": (PROMPT_TOKENS,),
    "output_tokens": (COMPLETION_TOKENS,),
    "finish_reasons": ("gen_ai.response.finish_reason",),
}


def read(span: RawSpan) -> dict[str, ColumnValue]:
    """The canonical columns of one model call."""
    attributes = span.attributes
    requested = request_columns(_messages(attributes, (*_REQUESTS, "input")))
    answered = response_columns(_messages(attributes, (*_ANSWERS, "output")))
    calls = [tool_call(item) for item in as_list(_value(attributes.get(_CALLS, "")))]
    if calls:
        answer = as_fields(next(iter(answered.get("output_messages", ())), None))
        whole: Fields = {"role": "assistant", **answer, "parts": [*as_list(answer.get("parts")), *calls]}
        answered["output_messages"] = [whole]
    tools = tool_definitions(as_list(_value(first(attributes, *_TOOLS))))
    return known(
        {
            **({"tools": dump(tools)} if tools else {}),
            **requested,
            **answered,
            **span.columns,
            "kind": str(SpanKind.LLM),
        }
    )


def _messages(attributes: Mapping[str, str], keys: Sequence[str]) -> object:
    value = first_messages(attributes, *keys)
    return decoded(value) if type(value) is str else value


def _value(text: str) -> object:
    value = decoded(text) if text else None
    return decoded(value) if isinstance(value, str) else value


_HAS_NO_MESSAGES: Final = attr(names.GEN_AI_INPUT_MESSAGES).is_null() & attr(names.GEN_AI_OUTPUT_MESSAGES).is_null()
_HAS_REQUEST: Final = pl.any_horizontal(attr(key).is_not_null() for key in _REQUESTS)
_HAS_PLAIN: Final = attr(_PLAIN[0]).is_not_null() & (attr(names.GEN_AI_OPERATION_NAME) == "chat")

OTHER_NAMES: Final = Dialect(
    name="other_names",
    matches=attr(names.GEN_AI_REQUEST_MODEL).is_not_null()
    & _HAS_NO_MESSAGES
    & (_HAS_REQUEST | _HAS_PLAIN)
    & ~pl.col("Events.Name").list.eval(pl.element().str.starts_with("gen_ai.")).list.any().fill_null(value=False),
    columns=sources(behind=_ALTERNATIVES),
    read=read,
)

_LATENCY: Final = "gen_ai.latency.e2e"

SERVER: Final = Dialect(
    name="server",
    matches=attr(_LATENCY).is_not_null() & attr(names.GEN_AI_OPERATION_NAME).is_null() & _HAS_NO_MESSAGES,
    columns={"kind": pl.lit(SpanKind.OTHER.value)},
)
