"""OpenInference (Arize): messages flattened into numbered attributes, requests and responses whole as JSON.

Recognised by ``openinference.span.kind``, whatever the scope: OpenAI, LangChain, openai-agents, smolagents, LlamaIndex
and others share it. Where numbered attributes are missing (an SDK's limit pushes out the oldest, or the instrumentor
writes none) the messages are read out of ``input.value`` and ``output.value``. Response ids stand in ``output.value``.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, cast

from spanloop.messages import dump
from spanloop.messages.chat_forms import message
from spanloop.messages.hosted_tools import has_hosted_items
from spanloop.messages.json_values import Fields, as_fields, as_list
from spanloop.messages.tool_definitions import tool_definitions
from spanloop.messages.turns import joined_turns, split_answers
from spanloop.semconv import attributes as names

from ..spans import SpanKind
from .base import ColumnValue, Dialect, IndexedList, RawSpan, attr
from .legacy_tools import FUNCTIONS, offered_tools
from .otel_genai import RESPONSE_ID
from .provider_payloads import (
    canonical_reason,
    finish_reason,
    joined,
    opened,
    request_messages,
    request_tools,
    response_id,
    response_messages,
)
from .rows import as_text, decoded, decoded_except, fields_of, first, first_messages, known, parameters

SPAN_KIND: Final = "openinference.span.kind"
_KINDS: Final = {"LLM": SpanKind.LLM, "TOOL": SpanKind.TOOL, "AGENT": SpanKind.AGENT}
_INPUT: Final = "input.value"
_OUTPUT: Final = "output.value"
_FAILED: Final = re.compile(r'"is_error"\s*:\s*true')


def read(span: RawSpan) -> dict[str, ColumnValue]:
    """The canonical columns of one OpenInference span."""
    kind = _KINDS.get(span.attributes[SPAN_KIND].upper(), SpanKind.OTHER)
    if kind is SpanKind.LLM and (_is_preparation(span) or _is_notice(span)):
        kind = SpanKind.OTHER
    metadata = fields_of(span.attributes.get("metadata", ""))
    if kind is SpanKind.AGENT and span.name == metadata.get("langgraph_node") == _NODE:
        kind = SpanKind.OTHER
    columns: dict[str, ColumnValue] = {
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
        and not any(span.lists.values())
        and not any(key.startswith("llm.") for key in span.attributes)
    )


def _call(span: RawSpan) -> dict[str, ColumnValue]:
    attributes, seen = span.attributes, span.lists.get("seen", ())
    given_text = attributes.get(_INPUT, "")
    given_elsewhere = _MESSAGE_KEYS | {"tools"} if any(span.lists.get("tools", ())) else _MESSAGE_KEYS
    request, response_value = decoded_except(given_text, given_elsewhere), first_messages(attributes, _OUTPUT) or ""
    response = opened(response_value)
    given = request | fields_of(attributes.get("llm.invocation_parameters", ""))
    identity = response_id(response) or attributes.get(names.GEN_AI_RESPONSE_ID, "")
    has_failed = any(name == names.EXCEPTION_EVENT_NAME for name, _ in span.events)
    output_messages = _output_messages(span, response_value, has_failed=has_failed)
    output_messages = _with_current_calls(output_messages, seen, response_value)
    model = attributes.get("llm.model_name", "")
    reason = first(attributes, "llm.finish_reason") or as_text(finish_reason(response))
    return {
        **parameters(given),
        "request_model": as_text(given.get("model") or given.get("model_name")) or model,
        "response_model": as_text(response.get("model"))
        or attributes.get(names.GEN_AI_RESPONSE_MODEL, "")
        or (model if output_messages else ""),
        "response_id": identity,
        "finish_reasons": canonical_reason(reason, output_messages[:1]) if reason else "",
        "input_tokens": attributes.get("llm.token_count.prompt", ""),
        "output_tokens": attributes.get("llm.token_count.completion", ""),
        "tools": _tools(span, given),
        "input_messages": _seen(span, request, is_response=identity.startswith(RESPONSE_ID)),
        "output_messages": output_messages,
    }


_MESSAGE_KEYS: Final = frozenset({"messages", "input", "contents"})
"""Where a request has what was said: as long as the conversation, and mostly beside indexed attributes that tell it."""


class _Entry(NamedTuple):
    """A message of an input."""

    message: Fields
    messages: list[Fields]
    """The messages that it is: answers of tools stand by themselves."""
    role: object
    answers: object
    """The id of the tool call that it answers, as an attribute of its own says."""
    fields: Fields

    @property
    def output(self) -> Fields:
        """The message as the model's, unless it says whose it is."""
        return self.message if isinstance(self.role, str) and self.role else _flattened(self.fields, "assistant")


def _entry(fields: Fields) -> _Entry:
    item, inner = _flattened(fields), as_fields(fields.get("message"))
    return _Entry(item, split_answers([item]), inner.get("role"), inner.get("tool_call_id"), fields)


def _request_has_more(span: RawSpan, request: Mapping[str, object]) -> bool:
    """Whether the request says what the indexed attributes do not: that a tool failed, or the system prompt.

    JavaScript's instrumentors for Anthropic and Bedrock keep one of several answers of tools, in the user's message.
    """
    seen: Sequence[_Entry] = span.lists.get("seen", ())
    given = span.attributes.get(_INPUT, "")
    if '"is_error"' in given and _FAILED.search(given):
        return True
    if request.get("system") and not (seen and seen[0].role == "system"):
        return True
    return any(entry.answers is not None and entry.role == "user" for entry in seen)


def _seen(span: RawSpan, request: Mapping[str, object], *, is_response: bool) -> list[Fields]:
    """The messages of the input."""
    seen: Sequence[_Entry] = span.lists.get("seen", ())
    request_has_more = _request_has_more(span, request)
    input_messages: list[Fields] = []
    if request_has_more or not seen or "seen" in span.gaps:
        input_messages = split_answers(request_messages(first_messages(span.attributes, _INPUT)))
    if seen and not input_messages:
        if not is_response:
            return [item for entry in seen for item in entry.messages]
        input_messages = split_answers(entry.message for entry in seen)
    return joined_turns(input_messages) if is_response else input_messages


def _output_messages(span: RawSpan, response_value: object, *, has_failed: bool) -> list[Fields]:
    listed: Sequence[Fields] = [entry.output for entry in span.lists.get("said", ())]
    with_parts = [item for item in listed if item["parts"]]
    response = as_fields(response_value)
    # Instrumentors list the text of an answer and the calls that the client is to make.
    if not with_parts or has_hosted_items([*as_list(response.get("output")), *as_list(response.get("content"))]):
        # Of a call that failed, text is the error's.
        return [] if has_failed and isinstance(response_value, str) else response_messages(response_value)
    choices = as_list(response.get("choices"))
    if len(choices) == len(listed) > 1:
        return [_with_reason(*pair) for pair in zip(listed, choices, strict=True)]
    if len(with_parts) == 1:
        return with_parts
    # LiteLLM's instrumentor keeps the text of one choice; the items of a Responses API stand in an object.
    is_text = isinstance(response_value, str) and response_value.strip()[:1] not in {"", "{", "["}
    is_choices = is_text or len(choices) == len(with_parts) or response.get("generations")
    return with_parts if is_choices else [joined(with_parts)]


def _with_reason(item: Fields, choice: object) -> Fields:
    """A choice with its finish reason, which the whole response has."""
    reason = as_text(as_fields(choice).get("finish_reason"))
    return {**item, "finish_reason": reason} if reason else item


def _with_current_calls(output_messages: list[Fields], seen: Sequence[_Entry], response_value: object) -> list[Fields]:
    """The answer, with what the whole response has of its tool calls: their ids where it has none (Google GenAI).

    An answer that asks with ids which were answered is another one's: two calls wrote to one span (ADK's instrumentor).
    """
    calls = _tool_calls(output_messages)
    ids = {call["id"] for call in calls if call.get("id")}
    if ids and not ids.isdisjoint([entry.answers for entry in seen if isinstance(entry.answers, str)]):
        output_messages = response_messages(response_value) or output_messages
        calls = _tool_calls(output_messages)
    if not calls or any(call.get("id") for call in calls):
        return output_messages
    named = _tool_calls(response_messages(response_value))
    if not all(call.get("id") for call in named):
        return output_messages
    if [call.get("name") for call in named] != [call.get("name") for call in calls]:
        return output_messages
    new_ids = iter([call["id"] for call in named])

    def with_id(part: object) -> object:
        # a copy: spans that say the same share their messages
        fields = as_fields(part)
        return {**fields, "id": next(new_ids)} if fields.get("type") == "tool_call" else part

    return [{**item, "parts": list(map(with_id, as_list(item["parts"])))} for item in output_messages]


def _tool_calls(output_messages: list[Fields]) -> list[Fields]:
    parts = [as_fields(part) for item in output_messages for part in as_list(item["parts"])]
    return [part for part in parts if part.get("type") == "tool_call"]


def _flattened(fields: Fields, role: str = "user") -> Fields:
    """One message out of the nested objects that ``message.*`` attributes unflatten to."""
    nested = fields.get("message")
    inner = cast("Fields", nested) if isinstance(nested, dict) else fields
    contents, calls = inner.get("contents"), inner.get("tool_calls")
    if isinstance(contents, list) and calls:
        # Anthropic's instrumentor lists a call twice: among the contents, and by itself.
        contents = [item for item in cast("list[object]", contents) if "tool_call" not in as_fields(item)]
    body = inner.copy()
    body.pop("contents", None)
    if isinstance(contents, list):
        body["content"] = [_content(item) for item in cast("list[object]", contents)]
    answers = fields.get("function")
    if isinstance(answers, list) and "content" not in body:
        # AutoGen's answers, several in one message, each as JSON.
        body["content"] = [decoded(as_text(item)) for item in cast("list[object]", answers)]
    if isinstance(calls, list):
        body["tool_calls"] = [as_fields(item).get("tool_call", item) for item in cast("list[object]", calls)]
    else:
        body.pop("tool_calls", None)
    if body.get("role") == "tool" and "content" not in body:
        body["content"] = ""
    if "function_call_name" in body:
        name, arguments = body.pop("function_call_name"), body.pop("function_call_arguments_json", "")
        body["function_call"] = {"name": name, "arguments": arguments}
    return message(body, role)


def _content(item: object) -> object:
    call = as_fields(as_fields(item).get("tool_call"))
    if call:
        return {"type": "tool_use", **call}
    fields = as_fields(as_fields(item).get("message_content"))
    if not fields:
        return item
    if fields.get("type") == "image" and fields.get("image"):
        image = as_fields(as_fields(fields["image"]).get("image"))
        return {"type": "uri", "modality": "image", "uri": image.get("url", "")}
    return fields


def _tools(span: RawSpan, given: Mapping[str, object]) -> str:
    listed = [item for item in span.lists.get("tools", ()) if item]
    if listed:
        return "[" + ",".join(listed) + "]"
    definitions = request_tools(dict(given)) or as_list(decoded(offered_tools(span)))
    return dump([fields for item in definitions if (fields := as_fields(item))]) if definitions else ""


def _offered(fields: Fields) -> str:
    """The JSON of a tool's definition; empty where there is none."""
    definitions = tool_definitions([_definition(as_fields(fields["tool"]))] if "tool" in fields else [])
    return ",".join(dump(item) for item in definitions if as_fields(item))


def _definition(tool: Fields) -> object:
    """A tool's definition; Pydantic AI writes its name beside the schema of its arguments alone."""
    value = decoded(as_text(tool.get("json_schema")))
    schema = as_fields(value)
    if not tool.get("name") or schema.keys() & _NAMED:
        return value
    return {**{key: tool[key] for key in ("name", "description") if tool.get(key)}, "parameters": schema}


_NAMED: Final = frozenset({"name", "function", "toolSpec", "data", "function_declarations"})
"""Keys that a definition has which names its tool itself."""


def _tool(span: RawSpan) -> dict[str, str]:
    attributes = span.attributes
    return {
        "tool_name": first(attributes, "tool.name", "tool_call.function.name") or _METHOD.sub("", span.name),
        "tool_call_id": first(attributes, "tool_call.id", "tool.call.id", "tool.id"),
        "tool_arguments": first(attributes, "tool_call.function.arguments", _INPUT),
        "tool_result": _plain_output(attributes),
    }


def _plain_output(attributes: Mapping[str, str]) -> str:
    """Return a tool's result; a text may be written as JSON."""
    output = attributes.get(_OUTPUT, "")
    is_json = output.startswith('"') and attributes.get("output.mime_type") == "application/json"
    return as_text(decoded(output)) if is_json else output


_VERCEL: Final = "ai.operationId"


LISTS: Final = {
    "seen": IndexedList(("llm.input_messages",), _entry),
    "said": IndexedList(("llm.output_messages",), _entry),
    "tools": IndexedList(("llm.tools",), _offered),
    "functions": FUNCTIONS,
}

OPENINFERENCE: Final = Dialect(
    name="openinference",
    # What has OpenTelemetry's messages, too (Pydantic AI's spans), says more in those, and Vercel's in its own.
    matches=attr(SPAN_KIND).is_not_null()
    & attr(_VERCEL).is_null()
    & ~(
        attr(names.GEN_AI_OPERATION_NAME).is_not_null() & attr(names.GEN_AI_INPUT_MESSAGES).str.starts_with("[")
    ).fill_null(value=False),
    read=read,
    lists=LISTS,
    calls=({SPAN_KIND: ("llm",)},),
)
