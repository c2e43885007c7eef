"""OpenInference (Arize): messages flattened into numbered attributes, requests and responses whole as JSON.

Recognised by ``openinference.span.kind``, whatever the scope: OpenAI, LangChain, openai-agents, smolagents, LlamaIndex
and others share it. Where numbered attributes are missing (an SDK's limit pushes out the oldest, or the instrumentor
writes none) the messages are read out of ``input.value`` and ``output.value``. Response ids stand in ``output.value``.
"""

import re
from collections.abc import Mapping
from typing import Final, cast

from ..chat_forms import Fields, as_fields, message, messages, split_answers
from ..messages import dump
from ..spans import SpanKind
from .base import attr
from .rows import RawSpan, RowDialect, as_text, decoded, fields_of, first, known, parameters, unflatten

SPAN_KIND: Final = "openinference.span.kind"
_KINDS: Final = {"LLM": SpanKind.LLM, "TOOL": SpanKind.TOOL, "AGENT": SpanKind.AGENT}
_INPUT: Final = "input.value"
_OUTPUT: Final = "output.value"
_NUMBERED: Final = re.compile(r"llm\.input_messages\.(\d+)\.")


def read(span: RawSpan) -> dict[str, str]:
    """The canonical columns of one OpenInference span."""
    kind = _KINDS.get(span.attributes[SPAN_KIND].upper(), SpanKind.OTHER)
    metadata = fields_of(span.attributes.get("metadata", ""))
    columns = {
        "kind": str(kind),
        "agent_name": first(span.attributes, "agent.name")
        or (span.name.removesuffix(".run") if kind is SpanKind.AGENT else ""),
        "conversation_id": as_text(metadata.get("thread_id")),
        "session_id": as_text(metadata.get("session_id")),
    }
    if kind is SpanKind.LLM:
        columns |= _call(span.attributes)
    elif kind is SpanKind.TOOL:
        columns |= _tool(span)
    return known(columns)


def _call(attributes: Mapping[str, str]) -> dict[str, str]:
    asked, answered = decoded(attributes.get(_INPUT, "")), decoded(attributes.get(_OUTPUT, ""))
    request, response = fields_of(attributes.get(_INPUT, "")), fields_of(attributes.get(_OUTPUT, ""))
    given = request | fields_of(attributes.get("llm.invocation_parameters", ""))
    said = _said(attributes, answered)
    model = attributes.get("llm.model_name", "")
    reason = first(attributes, "llm.finish_reason") or as_text(_found(response, ("finish_reason", "stop_reason")))
    return {
        **parameters(given),
        "request_model": as_text(given.get("model") or given.get("model_name")) or model,
        "response_model": as_text(response.get("model")) or (model if said else ""),
        "response_id": _response_id(response),
        "finish_reasons": reason,
        "input_tokens": attributes.get("llm.token_count.prompt", ""),
        "output_tokens": attributes.get("llm.token_count.completion", ""),
        "tools": _tools(attributes, given),
        "input_messages": dump(_seen(attributes, asked)),
        "output_messages": dump(said) if said else "",
    }


def _seen(attributes: Mapping[str, str], asked: object) -> list[Fields]:
    numbers = {int(found.group(1)) for key in attributes if (found := _NUMBERED.match(key))}
    if numbers and len(numbers) == max(numbers) + 1:
        return split_answers(_flattened(item) for item in unflatten(attributes, "llm.input_messages"))
    whole = _request_messages(asked)
    if whole or not numbers:
        return split_answers(whole)
    return split_answers(_flattened(item) for item in unflatten(attributes, "llm.input_messages"))


def _request_messages(asked: object) -> list[Fields]:
    """The messages of a request: chat, Responses, LangChain or Gemini."""
    if not isinstance(asked, dict):
        return messages(asked)
    request = cast("Fields", asked)
    said = next(
        (request[key] for key in ("messages", "input", "contents", "prompts", "prompt") if request.get(key)), None
    )
    system = next((request[key] for key in ("instructions", "system", "system_instruction") if request.get(key)), None)
    return [*messages(system, "system"), *messages(said)]


def _said(attributes: Mapping[str, str], answered: object) -> list[Fields]:
    flat = [_flattened(item, "assistant") for item in unflatten(attributes, "llm.output_messages")]
    found = [item for item in flat if item["parts"]]
    if not found:
        return _response_messages(answered)
    response = cast("Fields", answered) if isinstance(answered, dict) else {}
    choices = response.get("choices")
    if len(found) == 1 or (isinstance(choices, list) and len(cast("list[object]", choices)) == len(found)):
        return found
    return found if response.get("generations") else [_joined(found)]


def _joined(found: list[Fields]) -> Fields:
    """The items of one answer (a Responses API lists text and tool calls one by one) as one message."""
    return {"role": "assistant", "parts": [piece for item in found for piece in cast("list[object]", item["parts"])]}


def _response_messages(answered: object) -> list[Fields]:
    if isinstance(answered, dict):
        response = cast("Fields", answered)
        if isinstance(response.get("choices"), list):
            found = messages(response["choices"], "assistant")
        elif isinstance(response.get("generations"), list):
            found = messages(response["generations"], "assistant")
        elif isinstance(response.get("output"), list):
            found = [_joined(messages(response["output"], "assistant"))]
        elif "content" in response or "parts" in response or "lc" in response or "tool_calls" in response:
            found = [message(response, "assistant")]
        else:
            found = []
    else:
        found = messages(answered, "assistant")
    return [item for item in found if item.get("parts")]


def _flattened(fields: Fields, role: str = "user") -> Fields:
    """One message out of the nested objects that ``message.*`` attributes unflatten to."""
    own = fields.get("message")
    inner = cast("Fields", own) if isinstance(own, dict) else fields
    contents = inner.get("contents")
    body: Fields = {key: value for key, value in inner.items() if key not in {"contents", "tool_calls", "content"}}
    if isinstance(contents, list):
        body["content"] = [_content(item) for item in cast("list[object]", contents)]
    elif "content" in inner:
        body["content"] = inner["content"]
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
    fields = as_fields(as_fields(item).get("message_content"))
    if not fields:
        return item
    if fields.get("type") == "image" and fields.get("image"):
        image = as_fields(as_fields(fields["image"]).get("image"))
        return {"type": "uri", "modality": "image", "uri": image.get("url", "")}
    return fields


def _tools(attributes: Mapping[str, str], given: Mapping[str, object]) -> str:
    found = [
        decoded(as_text(cast("Fields", item.get("tool")).get("json_schema")))
        for item in unflatten(attributes, "llm.tools")
        if isinstance(item.get("tool"), dict)
    ]
    listed = found or given.get("tools") or given.get("functions")
    if not isinstance(listed, list):
        return ""
    return dump([cast("Fields", item) for item in cast("list[object]", listed) if isinstance(item, dict)])


def _response_id(response: Fields) -> str:
    own = response.get("id")
    if isinstance(own, str):
        return own
    # LangChain keeps a provider's id in llm_output, or in the first generation's message.
    told = response.get("llm_output")
    named = cast("Fields", told).get("id") if isinstance(told, dict) else None
    if isinstance(named, str) and named:
        return named
    place: object = response.get("generations")
    while isinstance(place, list) and place:
        place = cast("list[object]", place)[0]
    for name in ("message", "kwargs", "response_metadata"):
        place = cast("Fields", place).get(name) if isinstance(place, dict) else None
    found = cast("Fields", place).get("id") if isinstance(place, dict) else None
    return found if isinstance(found, str) else ""


def _found(response: Fields, names: tuple[str, ...]) -> object:
    """The first choice's finish reason, wherever the response keeps it."""
    for name in names:
        if response.get(name):
            return response[name]
    place: object = response.get("choices") or response.get("generations")
    while isinstance(place, list) and place:
        place = cast("list[object]", place)[0]
    if not isinstance(place, dict):
        return ""
    choice = cast("Fields", place)
    info = choice.get("generation_info")
    both = choice | (cast("Fields", info) if isinstance(info, dict) else {})
    return next((both[name] for name in names if both.get(name)), "")


def _tool(span: RawSpan) -> dict[str, str]:
    attributes = span.attributes
    return {
        "tool_name": first(attributes, "tool.name", "tool_call.function.name") or span.name,
        "tool_call_id": first(attributes, "tool_call.id", "tool.call.id", "tool.id"),
        "tool_arguments": first(attributes, "tool_call.function.arguments", _INPUT),
        "tool_result": attributes.get(_OUTPUT, ""),
    }


OPENINFERENCE: Final = RowDialect(
    name="openinference",
    attributes=frozenset({SPAN_KIND}),
    matches=attr(SPAN_KIND).is_not_null(),
    read=read,
)
