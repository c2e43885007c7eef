"""The Vercel AI SDK's telemetry: ``ai.operationId``, the prompt as JSON, the answer as text and tool calls apart.

``ai.generateText`` and ``ai.streamText`` stand for a whole run; the calls to the model are the ``.do…`` spans below.
"""

from typing import Final, cast

from spanloop.messages import dump
from spanloop.messages.chat_forms import messages, parts, plain
from spanloop.messages.json_values import Fields
from spanloop.semconv import attributes as names

from ..spans import SpanKind
from .base import ColumnValue, Dialect, RawSpan, attr
from .rows import as_text, decoded, first, first_messages, known

_OPERATION: Final = "ai.operationId"
_CALLS: Final = (".doGenerate", ".doStream")


def read(span: RawSpan) -> dict[str, ColumnValue]:
    """The canonical columns of one span of the Vercel AI SDK."""
    attributes = span.attributes
    operation = attributes[_OPERATION]
    if operation.endswith(_CALLS):
        return known(_call(span, operation))
    if operation == "ai.toolCall":
        result = plain(decoded(attributes.get("ai.toolCall.result", "")))
        return known(
            {
                "kind": str(SpanKind.TOOL),
                "tool_name": attributes.get("ai.toolCall.name", ""),
                "tool_call_id": attributes.get("ai.toolCall.id", ""),
                "tool_arguments": first(attributes, "ai.toolCall.args", "ai.toolCall.input"),
                "tool_result": as_text(result),
            }
        )
    is_run = operation in {"ai.generateText", "ai.streamText", "ai.generateObject", "ai.streamObject"}
    agent = attributes.get("ai.telemetry.functionId", "")
    return known({"kind": str(SpanKind.AGENT if is_run else SpanKind.OTHER), "agent_name": agent if is_run else ""})


def _call(span: RawSpan, operation: str) -> dict[str, ColumnValue]:
    attributes = span.attributes
    answer_parts = parts(attributes.get("ai.response.text", "") or attributes.get("ai.response.object", ""))
    answer_parts += parts(first_messages(attributes, "ai.response.toolCalls") or None)
    tools = decoded(attributes.get("ai.prompt.tools", ""))
    listed = [decoded(as_text(item)) for item in cast("list[object]", tools)] if isinstance(tools, list) else []
    return {
        "kind": str(SpanKind.LLM),
        "agent_name": attributes.get("ai.telemetry.functionId", ""),
        "request_model": first(attributes, "ai.model.id", names.GEN_AI_REQUEST_MODEL),
        "response_model": first(attributes, "ai.response.model", names.GEN_AI_RESPONSE_MODEL),
        "response_id": first(attributes, "ai.response.id", names.GEN_AI_RESPONSE_ID),
        "finish_reasons": first(attributes, "ai.response.finishReason", names.GEN_AI_RESPONSE_FINISH_REASONS),
        "is_streaming": "true" if operation.endswith("Stream") else "",
        "temperature": first(attributes, "ai.settings.temperature", names.GEN_AI_REQUEST_TEMPERATURE),
        "top_p": first(attributes, "ai.settings.topP", names.GEN_AI_REQUEST_TOP_P),
        "max_tokens": first(
            attributes, "ai.settings.maxOutputTokens", "ai.settings.maxTokens", names.GEN_AI_REQUEST_MAX_TOKENS
        ),
        "seed": attributes.get("ai.settings.seed", ""),
        "input_tokens": first(
            attributes, "ai.usage.inputTokens", "ai.usage.promptTokens", names.GEN_AI_USAGE_INPUT_TOKENS
        ),
        "output_tokens": first(
            attributes, "ai.usage.outputTokens", "ai.usage.completionTokens", names.GEN_AI_USAGE_OUTPUT_TOKENS
        ),
        "tools": dump([_tool(cast("Fields", item)) for item in listed if isinstance(item, dict)]) if listed else "",
        "input_messages": messages(first_messages(attributes, "ai.prompt.messages") or None),
        "output_messages": [{"role": "assistant", "parts": answer_parts}] if answer_parts else [],
    }


def _tool(fields: Fields) -> Fields:
    tool: Fields = {key: fields[key] for key in ("name", "description") if key in fields}
    schema = fields.get("inputSchema", fields.get("parameters"))
    return tool if schema is None else {**tool, "parameters": schema}


VERCEL_AI: Final = Dialect(
    name="vercel_ai",
    matches=attr(_OPERATION).is_not_null(),
    read=read,
    calls=({_OPERATION: r"\.do(Generate|Stream)$"},),
)
