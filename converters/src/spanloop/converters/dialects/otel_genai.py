"""OpenTelemetry's generative AI conventions in their current form: messages as JSON in span attributes.

Recognised by ``gen_ai.operation.name``; an operation that nobody has named yet is a model call when a model was asked
for and messages are there. Messages in events are read by ``legacy``. AutoGen's own spans are of this kind: agents and
tools with their call ids; its model calls are the model library's spans.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import polars as pl

from spanloop.messages import dump
from spanloop.messages.json_values import as_fields, as_list
from spanloop.messages.turns import joined_turns
from spanloop.semconv import attributes as names

from ..spans import SpanKind
from .base import Dialect, attr
from .rows import decoded

LLM_OPERATIONS: Final = ("chat", "text_completion", "generate_content")
AGENT_OPERATIONS: Final = ("invoke_agent", "create_agent")

_OTHER_OPERATIONS: Final = (
    *("embeddings", "embedding", "retrieval", "rerank", "invoke_workflow", "execute_task", "count_tokens"),
    *("moderation", "guardrail", "guardrails", "execute_guardrail", "evaluate", "evaluation"),
    *("image_generation", "speech", "text_to_speech", "speech_to_text", "transcription", "translation"),
)
"""Operations that may have messages and are no step of a policy."""
_NO_CALL: Final = (*AGENT_OPERATIONS, "execute_tool", *_OTHER_OPERATIONS)

PROMPT_TOKENS: Final = "gen_ai.usage.prompt_tokens"
COMPLETION_TOKENS: Final = "gen_ai.usage.completion_tokens"
"""Former names of the counts of input and output tokens."""

SEED: Final = "gen_ai.request.seed"

KIND: Final = (
    pl.when(attr(names.GEN_AI_OPERATION_NAME).is_in(LLM_OPERATIONS))
    .then(pl.lit(SpanKind.LLM.value))
    .when(attr(names.GEN_AI_OPERATION_NAME) == "execute_tool")
    .then(pl.lit(SpanKind.TOOL.value))
    .when(attr(names.GEN_AI_OPERATION_NAME).is_in(AGENT_OPERATIONS))
    .then(pl.lit(SpanKind.AGENT.value))
    .when(
        attr(names.GEN_AI_REQUEST_MODEL).is_not_null()
        & (attr(names.GEN_AI_INPUT_MESSAGES).is_not_null() | attr(names.GEN_AI_OUTPUT_MESSAGES).is_not_null())
        & ~attr(names.GEN_AI_OPERATION_NAME).is_in(_OTHER_OPERATIONS)
    )
    .then(pl.lit(SpanKind.LLM.value))
    .otherwise(pl.lit(SpanKind.OTHER.value))
)

SOURCES: Final = {
    "conversation_id": names.GEN_AI_CONVERSATION_ID,
    "agent_name": names.GEN_AI_AGENT_NAME,
    "request_model": names.GEN_AI_REQUEST_MODEL,
    "response_model": names.GEN_AI_RESPONSE_MODEL,
    "response_id": names.GEN_AI_RESPONSE_ID,
    "finish_reasons": names.GEN_AI_RESPONSE_FINISH_REASONS,
    "temperature": names.GEN_AI_REQUEST_TEMPERATURE,
    "top_p": names.GEN_AI_REQUEST_TOP_P,
    "max_tokens": names.GEN_AI_REQUEST_MAX_TOKENS,
    "seed": SEED,
    "input_tokens": names.GEN_AI_USAGE_INPUT_TOKENS,
    "output_tokens": names.GEN_AI_USAGE_OUTPUT_TOKENS,
    "tools": names.GEN_AI_TOOL_DEFINITIONS,
    "system_instructions": names.GEN_AI_SYSTEM_INSTRUCTIONS,
    "input_messages": names.GEN_AI_INPUT_MESSAGES,
    "output_messages": names.GEN_AI_OUTPUT_MESSAGES,
    "tool_name": names.GEN_AI_TOOL_NAME,
    "tool_call_id": names.GEN_AI_TOOL_CALL_ID,
    "tool_arguments": names.GEN_AI_TOOL_CALL_ARGUMENTS,
    "tool_result": names.GEN_AI_TOOL_CALL_RESULT,
}
"""Canonical column → the attribute that holds it."""


def sources(
    before: Mapping[str, Sequence[str]] | None = None, behind: Mapping[str, Sequence[str]] | None = None
) -> dict[str, tuple[str, ...]]:
    """``SOURCES`` as a table of a dialect, with further attributes of its own before and behind them."""
    more, less = before or {}, behind or {}
    columns = dict.fromkeys((*SOURCES, *more, *less))
    standard = {column: (SOURCES[column],) if column in SOURCES else () for column in columns}
    return {column: (*more.get(column, ()), *standard[column], *less.get(column, ())) for column in columns}


_AG2_TYPE: Final = "ag2.span.type"
"""AG2 counts tokens in spans of their own, which have no operation and are no call."""

_HAS_STOPPED: Final = attr(names.GEN_AI_RESPONSE_FINISH_REASONS).is_in(['["stop"]', '["STOP"]', "stop", "STOP"])
RESPONSE_ID: Final = "resp_"
"""Beginning of the ids of OpenAI's Responses API."""

_IS_RESPONSE: Final = attr(names.GEN_AI_RESPONSE_ID).str.starts_with(RESPONSE_ID).fill_null(value=False)

_ANTHROPIC_REASON: Final = "anthropic.message.stop_reason"
"""Attribute of the spans that Anthropic's SDK writes itself."""

_MIRASCOPE: Final = "mirascope.response.content"
_IS_MIRASCOPE: Final = attr(_MIRASCOPE).is_not_null()

_IS_GEMINI: Final = attr(names.GEN_AI_OPERATION_NAME) == "generate_content"
_MAY_CALL: Final = pl.when(_IS_RESPONSE | ((_IS_MIRASCOPE | _IS_GEMINI) & _HAS_STOPPED)).then(
    attr(names.GEN_AI_OUTPUT_MESSAGES)
)
"""The output of the calls whose finish reason hides that they ask for a tool; the others are not searched."""

_HAS_CALL: Final = _MAY_CALL.str.count_matches(r'"type":\s?"tool_call"') > _MAY_CALL.str.count_matches(
    r'"type":\s?"tool_call_response"'
)
"""A call that the client is to answer; the answer of one that the provider ran stands beside it."""

FINISH_REASONS: Final = (
    pl.when(_HAS_CALL)
    .then(pl.lit("tool_call"))
    .otherwise(pl.coalesce(attr(names.GEN_AI_RESPONSE_FINISH_REASONS), attr(_ANTHROPIC_REASON)))
)
"""As it was said; Gemini says that it stopped where it asks for a tool, a Responses API of each item by itself.

Mirascope does so of any API.
"""


def _joined(text: str) -> str:
    """Messages with the model's words that follow each other as one: a Responses API lists items."""
    value = decoded(text) if text.count('"assistant"') > 1 else None
    listed = [as_fields(item) for item in as_list(value)]
    return dump(joined_turns(listed)) if listed and all("parts" in item for item in listed) else text


def _turns(key: str) -> pl.Expr:
    items = pl.when(_IS_RESPONSE).then(attr(key)).map_elements(_joined, return_dtype=pl.String, skip_nulls=True)
    return pl.coalesce(items, attr(key))


_PYDANTIC_REQUEST: Final = "model_request_parameters"

TOOLS: Final = pl.coalesce(
    attr(names.GEN_AI_TOOL_DEFINITIONS), attr(_PYDANTIC_REQUEST).str.json_path_match("$.function_tools")
)
"""Pydantic AI 1 had its tools in an attribute of its own."""

_IS_UNRECORDED: Final = (
    attr(names.GEN_AI_OUTPUT_MESSAGES).str.contains(r'^\[\{"role":\s?"assistant",\s?"parts":\s?\[\]\}\]$')
    & attr(names.GEN_AI_RESPONSE_FINISH_REASONS).is_null()
).fill_null(value=False)
"""An answer of nothing that ended for no reason is one that nobody recorded: Weave leaves out tool calls so."""

OTEL_GENAI: Final = Dialect(
    name="otel_genai",
    matches=attr(names.GEN_AI_OPERATION_NAME).is_not_null() | attr(_AG2_TYPE).is_not_null(),
    columns={
        **sources(behind={"input_tokens": (PROMPT_TOKENS,), "output_tokens": (COMPLETION_TOKENS,)}),
        "kind": KIND,
        "finish_reasons": FINISH_REASONS,
        "input_messages": _turns(names.GEN_AI_INPUT_MESSAGES),
        "output_messages": pl.when(~_IS_UNRECORDED).then(_turns(names.GEN_AI_OUTPUT_MESSAGES)),
        "tools": TOOLS,
    },
    calls=(
        {names.GEN_AI_OPERATION_NAME: LLM_OPERATIONS},
        *(
            {names.GEN_AI_REQUEST_MODEL: ".", "!" + names.GEN_AI_OPERATION_NAME: _NO_CALL, key: ""}
            for key in (names.GEN_AI_INPUT_MESSAGES, names.GEN_AI_OUTPUT_MESSAGES)
        ),
    ),
)
