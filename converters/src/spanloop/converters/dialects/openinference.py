"""OpenInference (Arize): messages flattened into numbered attributes, requests and responses whole as JSON.

Recognised by ``openinference.span.kind``, whatever the scope: OpenAI, LangChain, openai-agents, smolagents, LlamaIndex
and others share it. Where numbered attributes are missing (an SDK's limit pushes out the oldest, or the instrumentor
writes none) the messages are read out of ``input.value`` and ``output.value``. Response ids stand in ``output.value``.
"""

import re
from collections.abc import Mapping
from typing import Final, cast

from spanloop.semconv import attributes as names

from ..chat_forms import Fields, as_fields, as_list, joined_turns, message, split_answers, tool_definitions
from ..messages import dump
from ..spans import SpanKind
from .base import attr
from .exchange import (
    finish_reason,
    joined,
    opened,
    reason_said,
    request_messages,
    request_tools,
    response_id,
    response_messages,
)
from .legacy import offered_tools
from .numbered import Entry, Numbered, unflatten
from .otel_genai import RESPONSE_ID
from .rows import RawSpan, RowDialect, as_text, decoded, fields_of, first, known, parameters

SPAN_KIND: Final = "openinference.span.kind"
_KINDS: Final = {"LLM": SpanKind.LLM, "TOOL": SpanKind.TOOL, "AGENT": SpanKind.AGENT}
_INPUT: Final = "input.value"
_OUTPUT: Final = "output.value"
_FAILED: Final = re.compile(r'"is_error"\s*:\s*true')
_NUMBERED: Final = re.compile(r"llm\.input_messages\.(\d+)\.")


def read(span: RawSpan) -> dict[str, str]:
    """The canonical columns of one OpenInference span."""
    kind = _KINDS.get(span.attributes[SPAN_KIND].upper(), SpanKind.OTHER)
    if kind is SpanKind.LLM and (_is_preparation(span) or _is_notice(span)):
        kind = SpanKind.OTHER
    metadata = fields_of(span.attributes.get("metadata", ""))
    if kind is SpanKind.AGENT and span.name == metadata.get("langgraph_node") == _NODE:
        kind = SpanKind.OTHER
    columns = {
        "kind": str(kind),
        "agent_name": first(span.attributes, "agent.name", names.GEN_AI_AGENT_NAME)
        or as_text(metadata.get("lc_agent_name"))
        or (_agent_name(span) if kind is SpanKind.AGENT else ""),
        "conversation_id": as_text(metadata.get("thread_id")),
        "session_id": as_text(metadata.get("session_id")),
    }
    if kind is SpanKind.LLM:
        columns |= _call(span)
    elif kind is SpanKind.TOOL:
        columns |= _tool(span)
    return known(columns)


_NODE: Final = "agent"
"""The node of LangGraph's prebuilt agent that calls the model: no agent's name."""

_METHOD: Final = re.compile(
    r"\.(?:a?run|a?call|__call__|a?invoke|_?execute(?:_core|_task)?|forward|kickoff)$", re.ASCII
)
"""Instrumentors name a span for the method that it wraps, behind the name of what it belongs to."""


def _agent_name(span: RawSpan) -> str:
    name = _METHOD.sub("", span.name.removeprefix("invoke_agent "))
    node = span.attributes.get("graph.node.id", "")
    return node if node and node in name else name


def _is_preparation(span: RawSpan) -> bool:
    """LlamaIndex's instrumentor calls it a model call, too, when a request is put together."""
    return span.name.rpartition(".")[2].startswith("_prepare")


def _is_notice(span: RawSpan) -> bool:
    """BeeAI's instrumentor makes a span of each event of a call, such as that it failed."""
    return (
        not span.events
        and _OUTPUT not in span.attributes
        and not any(key.startswith("llm.") for key in span.attributes)
    )


def _call(span: RawSpan) -> dict[str, str]:
    attributes = span.attributes
    asked, answered = decoded(attributes.get(_INPUT, "")), decoded(attributes.get(_OUTPUT, ""))
    request, response = as_fields(asked), opened(answered)
    given = request | fields_of(attributes.get("llm.invocation_parameters", ""))
    identity = response_id(response) or attributes.get(names.GEN_AI_RESPONSE_ID, "")
    has_failed = any(name == names.EXCEPTION_EVENT_NAME for name, _ in span.events)
    said = _said(attributes, answered, has_failed=has_failed)
    if _has_old_calls(attributes, said):
        said = response_messages(answered) or said
    model = attributes.get("llm.model_name", "")
    reason = first(attributes, "llm.finish_reason") or as_text(finish_reason(response))
    seen = span.lists.get(_SEEN, "")
    tells_more = _tells_more(attributes, request)
    if not seen or identity.startswith(RESPONSE_ID) or tells_more:
        items = _seen(attributes, asked, tells_more=tells_more)
        seen = dump(joined_turns(items) if identity.startswith(RESPONSE_ID) else items)
    return {
        **parameters(given),
        "request_model": as_text(given.get("model") or given.get("model_name")) or model,
        "response_model": as_text(response.get("model"))
        or attributes.get(names.GEN_AI_RESPONSE_MODEL, "")
        or (model if said else ""),
        "response_id": identity,
        "finish_reasons": reason_said(reason, said) if reason else "",
        "input_tokens": attributes.get("llm.token_count.prompt", ""),
        "output_tokens": attributes.get("llm.token_count.completion", ""),
        "tools": _tools(attributes, given),
        "input_messages": "" if seen == "[]" else seen,
        "output_messages": dump(said) if said else "",
    }


_SEEN: Final = "seen"


def _entry(fields: Fields) -> Entry:
    return Entry(",".join(dump(item) for item in split_answers([_flattened(fields)])))


def _tells_more(attributes: Mapping[str, str], request: Fields) -> bool:
    """Whether the request says what the numbered attributes do not: that a tool failed, or the system prompt.

    JavaScript's instrumentors for Anthropic and Bedrock keep one of several answers of tools, in the user's message.
    """
    if _FAILED.search(attributes.get(_INPUT, "")):
        return True
    if request.get("system") and attributes.get("llm.input_messages.0.message.role") != "system":
        return True
    return any(
        key.endswith(_ANSWERED) and attributes.get(key.removesuffix(_ANSWERED) + ".message.role") == "user"
        for key in attributes
    )


_ANSWERED: Final = ".message.tool_call_id"


def _seen(attributes: Mapping[str, str], asked: object, *, tells_more: bool) -> list[Fields]:
    if tells_more:
        whole = request_messages(asked)
        if whole:
            return split_answers(whole)
    numbers = {int(found.group(1)) for key in attributes if (found := _NUMBERED.match(key))}
    if numbers and len(numbers) == max(numbers) + 1:
        return split_answers(_flattened(item) for item in unflatten(attributes, "llm.input_messages"))
    whole = request_messages(asked)
    if whole or not numbers:
        return split_answers(whole)
    return split_answers(_flattened(item) for item in unflatten(attributes, "llm.input_messages"))


def _said(attributes: Mapping[str, str], answered: object, *, has_failed: bool) -> list[Fields]:
    flat = [_flattened(item, "assistant") for item in unflatten(attributes, "llm.output_messages")]
    found = [item for item in flat if item["parts"]]
    if not found:
        # Of a call that failed, text is the error's.
        return [] if has_failed and isinstance(answered, str) else response_messages(answered)
    response = cast("Fields", answered) if isinstance(answered, dict) else {}
    choices = response.get("choices")
    if len(found) == 1 or (isinstance(choices, list) and len(cast("list[object]", choices)) == len(found)):
        return found
    return found if response.get("generations") else [joined(found)]


def _has_old_calls(attributes: Mapping[str, str], said: list[Fields]) -> bool:
    """Whether the answer asks with ids that were answered: two calls wrote to one span (ADK's instrumentor does)."""
    parts = [as_fields(part) for item in said for part in as_list(item["parts"])]
    asked = {part["id"] for part in parts if part.get("type") == "tool_call" and part.get("id")}
    return bool(asked) and any(
        value in asked and key.startswith("llm.input_messages.") and key.endswith(".message.tool_call_id")
        for key, value in attributes.items()
    )


def _flattened(fields: Fields, role: str = "user") -> Fields:
    """One message out of the nested objects that ``message.*`` attributes unflatten to."""
    own = fields.get("message")
    inner = cast("Fields", own) if isinstance(own, dict) else fields
    contents = inner.get("contents")
    if isinstance(contents, list) and inner.get("tool_calls"):
        # Anthropic's instrumentor lists a call twice: among the contents, and by itself.
        contents = [item for item in cast("list[object]", contents) if "tool_call" not in as_fields(item)]
    body: Fields = {key: value for key, value in inner.items() if key not in {"contents", "tool_calls", "content"}}
    if isinstance(contents, list):
        body["content"] = [_content(item) for item in cast("list[object]", contents)]
    elif "content" in inner:
        body["content"] = inner["content"]
    answers = fields.get("function")
    if isinstance(answers, list) and "content" not in body:
        # AutoGen's answers, several in one message, each as JSON.
        body["content"] = [decoded(as_text(item)) for item in cast("list[object]", answers)]
    calls = inner.get("tool_calls")
    if isinstance(calls, list):
        body["tool_calls"] = [
            cast("Fields", item).get("tool_call", cast("object", item)) if isinstance(item, dict) else item
            for item in cast("list[object]", calls)
        ]
    if body.get("role") == "tool" and "content" not in body:
        body["content"] = ""
    if "function_call_name" in body:
        name, arguments = body.pop("function_call_name"), body.pop("function_call_arguments_json", "")
        body["function_call"] = {"name": name, "arguments": arguments}
    return message(body, role)


def _content(item: object) -> object:
    asked = as_fields(as_fields(item).get("tool_call"))
    if asked:
        return {"type": "tool_use", **asked}
    fields = as_fields(as_fields(item).get("message_content"))
    if not fields:
        return item
    if fields.get("type") == "image" and fields.get("image"):
        image = as_fields(as_fields(fields["image"]).get("image"))
        return {"type": "uri", "modality": "image", "uri": image.get("url", "")}
    return fields


def _tools(attributes: Mapping[str, str], given: Mapping[str, object]) -> str:
    found = [_definition(as_fields(item.get("tool"))) for item in unflatten(attributes, "llm.tools") if "tool" in item]
    listed = tool_definitions(found) or request_tools(dict(given)) or as_list(decoded(offered_tools(attributes)))
    return dump([fields for item in listed if (fields := as_fields(item))]) if listed else ""


def _definition(tool: Fields) -> object:
    """A tool's definition; Pydantic AI writes its name beside the schema of its arguments alone."""
    found = decoded(as_text(tool.get("json_schema")))
    schema = as_fields(found)
    if not tool.get("name") or schema.keys() & _NAMED:
        return found
    return {**{key: tool[key] for key in ("name", "description") if tool.get(key)}, "parameters": schema}


_NAMED: Final = frozenset({"name", "function", "toolSpec", "data", "function_declarations"})
"""Keys that a definition has which names its tool itself."""


def _tool(span: RawSpan) -> dict[str, str]:
    attributes = span.attributes
    return {
        "tool_name": first(attributes, "tool.name", "tool_call.function.name") or _METHOD.sub("", span.name),
        "tool_call_id": first(attributes, "tool_call.id", "tool.call.id", "tool.id"),
        "tool_arguments": first(attributes, "tool_call.function.arguments", _INPUT),
        "tool_result": attributes.get(_OUTPUT, ""),
    }


_VERCEL: Final = "ai.operationId"

OPENINFERENCE: Final = RowDialect(
    name="openinference",
    attributes=frozenset({SPAN_KIND, names.GEN_AI_OPERATION_NAME, names.GEN_AI_INPUT_MESSAGES, _VERCEL}),
    # What has OpenTelemetry's messages, too (Pydantic AI's spans), says more in those, and Vercel's in its own.
    matches=attr(SPAN_KIND).is_not_null()
    & attr(_VERCEL).is_null()
    & ~(
        attr(names.GEN_AI_OPERATION_NAME).is_not_null() & attr(names.GEN_AI_INPUT_MESSAGES).str.starts_with("[")
    ).fill_null(value=False),
    read=read,
    lists={_SEEN: Numbered("llm.input_messages", _entry, is_gapless=True)},
)
