"""Tracers that wrap functions: what went in and what came out, each whole, and what kind of thing it was.

Langfuse, LangWatch, LangSmith, MLflow, Genkit, Haystack, AgentOps, Judgment, DeepEval, the tools of Spring AI, Google's
ADK before 1.17 and MCP differ in the names of attributes only: an ``AttributeMap`` has those, and ``provider_payloads``
reads the requests and responses. A new tracer of this kind is a new ``AttributeMap``.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import polars as pl

from spanloop.messages import dump
from spanloop.messages.json_values import Fields, as_fields
from spanloop.semconv import attributes as names

from ..spans import SpanKind
from .base import Calls, ColumnValue, Dialect, RawSpan, attr
from .otel_genai import sources
from .provider_payloads import request_columns, request_tools, response_columns
from .rows import as_text, decoded, decoded_messages, fields_of, first, known, parameters

_LLM, _TOOL, _AGENT, _OTHER = SpanKind.LLM, SpanKind.TOOL, SpanKind.AGENT, SpanKind.OTHER


@dataclass(frozen=True)
class AttributeMap:
    """The names that one tracer gives to things; of several keys the first that says something counts.

    Attributes:
        name: The dialect's name.
        kind: Attribute that tells what the span stands for.
        kinds: Its values in lower case; any other is something else, which ``other`` names.
        input: Attributes with a request or a tool's arguments.
        output: Attributes with a response or a tool's answer.
        columns: Further columns, beside OpenTelemetry's own attributes.
        settings: Attributes with sampling parameters as one object.
        metadata: An attribute with LangChain's metadata as one object.
        usage: Attributes with token counts as one object.
        agent: The agent's name, out of an agent's span.
        other: Kind of a span whose kind is not listed.
        calls: As of the dialect, beside ``kinds``.
    """

    name: str
    kind: str
    kinds: Mapping[str, SpanKind]
    input: tuple[str, ...]
    output: tuple[str, ...]
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    settings: tuple[str, ...] = ()
    metadata: str = ""
    usage: tuple[str, ...] = ()
    agent: Callable[[RawSpan], str] = lambda span: span.name
    other: Callable[[RawSpan], SpanKind] = lambda _: SpanKind.OTHER
    calls: Calls = ()


def read(names_map: AttributeMap, span: RawSpan) -> dict[str, ColumnValue]:
    """The canonical columns of one span of ``names_map``."""
    attributes = span.attributes
    kind_text = as_text(decoded(attributes.get(names_map.kind, ""))).lower()
    kind = names_map.kinds.get(kind_text) or names_map.other(span)
    columns = {
        column: as_text(decoded(value)) if column in names_map.columns else value
        for column, value in span.columns.items()
    }
    given, answered = (_unwrapped(first(attributes, *keys)) for keys in (names_map.input, names_map.output))
    if names_map.metadata and not columns.get("agent_name"):
        columns["agent_name"] = as_text(fields_of(attributes.get(names_map.metadata, "")).get("lc_agent_name"))
    if kind is _LLM:
        call_columns = _call(names_map, attributes, columns, (given, answered))
        if attributes.get(_LEVEL) == "ERROR":
            call_columns["error_type"] = attributes.get("langfuse.observation.status_message") or "error"
        return {**call_columns, "kind": str(kind)}
    if kind is _TOOL:
        if answered == "{}" and any(name == names.EXCEPTION_EVENT_NAME for name, _ in span.events):
            answered = ""
        columns["tool_name"] = columns.get("tool_name") or _CALLED.sub("", span.name)
        columns["tool_arguments"] = columns.get("tool_arguments") or as_text(decoded(given))
        columns["tool_result"] = columns.get("tool_result") or as_text(decoded(answered))
    elif kind is _AGENT:
        columns["agent_name"] = columns.get("agent_name") or names_map.agent(span)
    return {**columns, "kind": str(kind)}


_LEVEL: Final = "langfuse.observation.level"
"""Langfuse's clients leave the status of a failed call alone."""


def _unwrapped(text: str) -> str:
    """The value inside ``{"type": …, "value": …}``, LangWatch's envelope."""
    envelope = fields_of(text) if text.startswith('{"type"') else {}
    return as_text(envelope["value"]) if envelope.keys() == {"type", "value"} else text


def _call(
    names_map: AttributeMap, attributes: Mapping[str, str], columns: Mapping[str, str], texts: tuple[str, str]
) -> dict[str, ColumnValue]:
    request, response = (
        decoded_messages(text, _source(attributes, keys)) if text not in {"", "null"} else None
        for text, keys in zip(texts, (names_map.input, names_map.output), strict=True)
    )
    settings = as_fields(decoded(first(attributes, *names_map.settings)))
    usage = response_columns({"usage": _counts(decoded(first(attributes, *names_map.usage)))})
    requested, answered = request_columns(request), response_columns(response)
    # A response's own count goes before an attribute: ADK wrote the sum of both into one of them.
    tools = request_tools(settings)
    offered = {"tools": dump(tools)} if tools else {}
    columns_of_call = {**parameters(settings), **offered, **requested, **usage, **known(columns), **answered}
    if "tools" in requested:
        columns_of_call["tools"] = requested["tools"]
    if not columns_of_call.get("finish_reasons"):
        # Most of these never record it: that it is missing says nothing about a stream.
        columns_of_call["is_streaming"] = ""
    return columns_of_call


def _source(attributes: Mapping[str, str], keys: Sequence[str]) -> str:
    """The attribute that ``first`` takes."""
    return next((key for key in keys if attributes.get(key)), "")


def _counts(value: object) -> Fields:
    """Token counts, where ``input`` and ``output`` are counted, too."""
    usage = as_fields(value)
    return {"input_tokens": usage.get("input"), "output_tokens": usage.get("output"), **usage}


_CALLED: Final = re.compile(r"^(?:execute_tool|(?:MCP send )?tools/call) ")
"""Text before a tool's name in a span's: a tool that raises leaves ADK no time for attributes."""


def _adk_agent(span: RawSpan) -> str:
    return span.name.partition("[")[2].rstrip("]") or span.name


def _adk_kind(span: RawSpan) -> SpanKind:
    if span.name.startswith("agent_run"):
        return _AGENT
    if _CALLED.match(span.name):
        return _TOOL
    return _LLM if span.name == "call_llm" else _OTHER


def _haystack_kind(span: RawSpan) -> SpanKind:
    component = span.attributes.get("haystack.component.type", "")
    if component == "Agent" or span.name == "haystack.agent.run":
        return _AGENT
    return _LLM if component.endswith("Generator") else _OTHER


_COMMON_KINDS: Final = {
    **dict.fromkeys(("llm", "chat_model", "generation", "model", "chat", "completion"), _LLM),
    "tool": _TOOL,
    "agent": _AGENT,
}

LANGFUSE: Final = AttributeMap(
    name="langfuse",
    kind="langfuse.observation.type",
    kinds=_COMMON_KINDS,
    input=("langfuse.observation.input",),
    output=("langfuse.observation.output",),
    columns={
        "request_model": ("langfuse.observation.model.name",),
        "session_id": ("langfuse.session.id",),
    },
    settings=("langfuse.observation.model.parameters",),
    usage=("langfuse.observation.usage_details",),
)

LANGWATCH: Final = AttributeMap(
    name="langwatch",
    kind="langwatch.span.type",
    kinds=_COMMON_KINDS,
    input=("langwatch.input",),
    output=("langwatch.output",),
    columns={"conversation_id": ("langwatch.thread.id",), "request_model": (names.GEN_AI_REQUEST_MODEL,)},
    settings=("langwatch.params",),
    usage=("langwatch.metrics",),
)

LANGSMITH: Final = AttributeMap(
    name="langsmith",
    kind="langsmith.span.kind",
    kinds=_COMMON_KINDS,
    input=("gen_ai.prompt",),
    output=("gen_ai.completion",),
    columns={
        "session_id": ("langsmith.trace.session_id",),
        "conversation_id": ("langsmith.metadata.thread_id",),
        "agent_name": ("langsmith.metadata.lc_agent_name",),
    },
    settings=("langsmith.metadata.ls_model_parameters",),
    usage=("langsmith.metadata.usage_metadata",),
)

MLFLOW: Final = AttributeMap(
    name="mlflow",
    kind="mlflow.spanType",
    kinds=_COMMON_KINDS,
    input=("mlflow.spanInputs",),
    output=("mlflow.spanOutputs",),
    columns={
        "request_model": ("mlflow.llm.model",),
        "session_id": ("mlflow.trace.session",),
        "tools": ("mlflow.chat.tools",),
    },
    settings=("invocation_params",),
    metadata="metadata",
    usage=("mlflow.chat.tokenUsage",),
)

GENKIT: Final = AttributeMap(
    name="genkit",
    kind="genkit:metadata:subtype",
    kinds=_COMMON_KINDS,
    input=("genkit:input",),
    output=("genkit:output",),
    columns={"tool_name": ("genkit:name",), "request_model": ("genkit:name",), "agent_name": ()},
    agent=lambda span: span.attributes.get("genkit:name", "") or span.name,
)

HAYSTACK: Final = AttributeMap(
    name="haystack",
    kind="haystack.component.type",
    kinds={},
    input=("haystack.component.input",),
    output=("haystack.component.output", "haystack.agent.output"),
    agent=lambda span: span.attributes.get("haystack.component.name", ""),
    other=_haystack_kind,
    calls=({"haystack.component.type": "Generator$"},),
)

ADK: Final = AttributeMap(
    name="google_adk",
    kind=names.GEN_AI_OPERATION_NAME,
    kinds={"execute_tool": _TOOL, "invoke_agent": _AGENT},
    input=("gcp.vertex.agent.llm_request",),
    output=("gcp.vertex.agent.llm_response",),
    columns={
        "conversation_id": ("gcp.vertex.agent.session_id",),
        "tool_arguments": ("gcp.vertex.agent.tool_call_args",),
        "tool_result": ("gcp.vertex.agent.tool_response",),
    },
    agent=_adk_agent,
    other=_adk_kind,
    calls=(
        {"SpanName": ("call_llm",), "gcp.vertex.agent.llm_request": ""},
        {"SpanName": ("call_llm",), "ScopeName": ("gcp.vertex.agent", "openinference.instrumentation.google_adk")},
    ),
)

AGENTOPS: Final = AttributeMap(
    name="agentops",
    kind="agentops.span.kind",
    kinds={"tool": _TOOL, "agent": _AGENT},
    input=("agentops.tool.input", "agentops.entity.input"),
    output=("agentops.tool.output", "agentops.entity.output"),
    columns={
        "tool_name": ("agentops.tool.name", "operation.name", "agentops.entity.name"),
        "agent_name": ("agentops.agent.name", "agent.name", "agentops.entity.name"),
    },
    agent=lambda span: span.attributes.get("operation.name", "") or span.name.removesuffix(".agent"),
)

JUDGMENT: Final = AttributeMap(
    name="judgment",
    kind="judgment.span_kind",
    kinds=_COMMON_KINDS,
    input=("judgment.input", "gen_ai.prompt"),
    output=("judgment.output", "gen_ai.completion"),
    columns={"request_model": ("judgment.llm.model",), "session_id": ("judgment.session_id",)},
    usage=("judgment.usage.metadata",),
)

CONFIDENT: Final = AttributeMap(
    name="confident",
    kind="confident.span.type",
    kinds=_COMMON_KINDS,
    input=("confident.span.input", "confident.llm.prompt"),
    output=("confident.span.output",),
    columns={
        "request_model": ("confident.llm.model",),
        "conversation_id": ("confident.trace.thread_id",),
        "tool_name": ("confident.tool.name",),
        "agent_name": ("confident.agent.name",),
        "input_tokens": ("confident.llm.input_token_count",),
        "output_tokens": ("confident.llm.output_token_count",),
    },
)

SPRING_AI: Final = AttributeMap(
    name="spring_ai",
    kind="spring.ai.kind",
    kinds={"tool_call": _TOOL},
    input=("spring.ai.tool.call.arguments",),
    output=("spring.ai.tool.call.result",),
    columns={"tool_name": ("spring.ai.tool.definition.name",)},
)

MCP: Final = AttributeMap(
    name="mcp",
    kind="mcp.method.name",
    kinds={"tools/call": _TOOL},
    input=("mcp.tool.arguments", "mcp.request.arguments", "mcp.request.argument"),
    output=("mcp.tool.result", "mcp.response.value", "mcp.result"),
    columns={"tool_name": ("mcp.tool.name", "mcp.request.params.name")},
)


def _has_content(names_map: AttributeMap) -> pl.Expr:
    """Langfuse marks spans of others, too: what it has no content of is read by somebody else, if at all."""
    return pl.any_horizontal(attr(key).is_not_null() for key in (*names_map.input, *names_map.output))


_HAS_REFUSED: Final = (
    (pl.col("SpanName") == "call_llm")
    & pl.col("ScopeName").is_in(["", "gcp.vertex.agent", "openinference.instrumentation.google_adk"])
    & (pl.col("StatusCode").str.to_lowercase().str.ends_with("error"))
    & attr(names.GEN_AI_OPERATION_NAME).is_null()
).fill_null(value=False)
"""A call that fails leaves ADK before 2 no time for attributes."""

_is_unstructured = attr(names.GEN_AI_INPUT_MESSAGES).is_null() & attr(names.GEN_AI_OUTPUT_MESSAGES).is_null()
_MATCHES: Final = (
    (
        LANGFUSE,
        attr(LANGFUSE.kind).is_not_null()
        & (
            _has_content(LANGFUSE)
            | ~attr(LANGFUSE.kind).is_in(_COMMON_KINDS)
            | ((attr(LANGFUSE.kind) == "agent") & attr(names.GEN_AI_OPERATION_NAME).is_null())
        ),
    ),
    (LANGWATCH, attr(LANGWATCH.kind).is_not_null()),
    (LANGSMITH, attr(LANGSMITH.kind).is_not_null()),
    (MLFLOW, attr(MLFLOW.kind).is_not_null()),
    (GENKIT, attr("genkit:type").is_not_null() | attr(GENKIT.kind).is_not_null()),
    (HAYSTACK, attr(HAYSTACK.kind).is_not_null() | pl.col("SpanName").str.starts_with("haystack.")),
    (
        ADK,
        _has_content(ADK)
        | pl.any_horizontal(attr(key).is_not_null() for keys in ADK.columns.values() for key in keys)
        | (
            pl.col("SpanName").str.contains(r"^(?:agent_run \[|execute_tool )")
            & attr(names.GEN_AI_OPERATION_NAME).is_null()
        )
        | _HAS_REFUSED,
    ),
    (
        AGENTOPS,
        attr(AGENTOPS.kind).is_not_null()
        & attr("gen_ai.request.type").is_null()
        & attr(names.GEN_AI_REQUEST_MODEL).is_null(),
    ),
    (JUDGMENT, attr(JUDGMENT.kind).is_not_null()),
    (CONFIDENT, attr(CONFIDENT.kind).is_not_null() & _has_content(CONFIDENT)),
    (SPRING_AI, attr(SPRING_AI.kind).is_not_null()),
    (MCP, attr(MCP.kind).is_not_null() & attr(names.GEN_AI_OPERATION_NAME).is_null()),
)

ATTRIBUTE_MAPS: Final = tuple(
    Dialect(
        name=names_map.name,
        # A model call of another family keeps its own reader, whatever marks a tracer put on it.
        matches=matches & _is_unstructured & (attr(names.GEN_AI_REQUEST_MODEL).is_null() | _has_content(names_map)),
        columns=sources(before=names_map.columns),
        read=partial(read, names_map),
        calls=(
            {names_map.kind: tuple(kind_text for kind_text, kind in names_map.kinds.items() if kind is _LLM)},
            *names_map.calls,
        ),
    )
    for names_map, matches in _MATCHES
)
