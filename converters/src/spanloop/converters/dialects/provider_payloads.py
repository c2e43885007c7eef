"""Requests and responses of models, each in one value, as an API's client or a framework saw it.

Known: OpenAI chat and Responses, Anthropic, Gemini, Bedrock Converse, Cohere, Ollama, and what LangChain, LlamaIndex,
Haystack, DSPy, Google ADK and Genkit make of them. Invariant: nothing here raises; what is not found is empty.
"""

from collections.abc import Iterable, Mapping
from typing import Final, cast

from spanloop.messages import dump
from spanloop.messages.chat_forms import message, messages
from spanloop.messages.hosted_tools import has_hosted_items
from spanloop.messages.json_values import Fields, as_fields, as_list
from spanloop.messages.tool_definitions import tool_definitions

from .base import ColumnValue
from .rows import as_text, known, parameters

_SETTINGS: Final = (
    "config",
    "inferenceConfig",
    "generation_config",
    "generationConfig",
    "model_parameters",
    "invocation_params",
    "options",
)
_MESSAGE_KEYS: Final = ("messages", "input", "contents", "chat_history", "prompts", "prompt")
_SYSTEM: Final = ("instructions", "system", "system_instruction", "systemInstruction", "system_prompt")
_REASONS: Final = ("finish_reason", "stop_reason", "finishReason", "stopReason", "done_reason")
_MODELS: Final = ("model", "modelVersion", "model_version", "model_name", "modelId", "model_id")
_IDS: Final = ("id", "response_id", "responseId")
_USAGES: Final = ("usage", "usage_metadata", "usageMetadata", "token_usage")
_INPUT_TOKENS: Final = (
    "prompt_tokens",
    "input_tokens",
    "inputTokens",
    "prompt_token_count",
    "promptTokenCount",
    "prompt_eval_count",
)
_OUTPUT_TOKENS: Final = (
    "completion_tokens",
    "output_tokens",
    "outputTokens",
    "candidates_token_count",
    "candidatesTokenCount",
    "eval_count",
)
_REPR_OF_MESSAGE: Final = ("ChatMessage(", "Message(", "<")


def request_columns(value: object) -> dict[str, ColumnValue]:
    """The canonical columns that a request tells."""
    value, offered = _offered(value)
    request = as_fields(value)
    settings = _settings(request)
    seen, tools = request_messages(value), request_tools(request) or offered
    return known(
        {
            **parameters(settings),
            "request_model": as_text(_first(request, _MODELS)),
            "tools": dump(tools) if tools else "",
            "input_messages": seen,
        }
    )


def _offered(value: object) -> tuple[object, list[object]]:
    """Messages, and the tools among them: Langfuse's LangChain handler adds each as a message of the role tool."""
    items = as_list(value)
    offered = [content for item in items if (content := _offer(as_fields(item)))]
    if not offered:
        return value, []
    return [item for item in items if not _offer(as_fields(item))], tool_definitions(offered)


def _offer(fields: Fields) -> Fields:
    content = as_fields(fields.get("content"))
    is_tool = fields.get("role") == "tool" and content.get("type") == "function" and "tool_call_id" not in fields
    return content if is_tool else {}


def response_columns(value: object) -> dict[str, ColumnValue]:
    """The canonical columns that a response tells."""
    response = opened(value)
    output_messages = response_messages(value)
    meta = as_fields(as_fields(_innermost(response.get("replies"))).get("meta"))
    usage = as_fields(_first(meta | response, _USAGES)) or response
    return known(
        {
            "response_model": as_text(_first(meta | response, _MODELS)),
            "response_id": response_id(response),
            "finish_reasons": canonical_reason(as_text(finish_reason(response)), output_messages),
            "input_tokens": as_text(_first(usage, _INPUT_TOKENS)),
            "output_tokens": as_text(_first(usage, _OUTPUT_TOKENS)),
            "output_messages": output_messages,
        }
    )


def canonical_reason(reason: str, output_messages: Iterable[Fields]) -> str:
    """``reason``; Gemini and OpenAI's Responses say that they stopped, or nothing, where they ask for a tool."""
    kinds = [as_fields(part).get("type") for item in output_messages for part in as_list(item.get("parts"))]
    # Tools that the provider runs have their answers in the same message.
    asks = kinds.count("tool_call") > kinds.count("tool_call_response")
    return "tool_call" if asks and reason.rpartition(".")[2].lower() in {"stop", "completed", ""} else reason


def request_messages(value: object) -> list[Fields]:
    """The messages of a request, the system's among them."""
    if not isinstance(value, dict):
        return _without_reprs(messages(value))
    request = cast("Fields", value)
    listed = _first(request, _MESSAGE_KEYS)
    system = _first(_settings(request), _SYSTEM)
    return [*_system(system), *_without_reprs(messages(listed))]


def _settings(request: Fields) -> Fields:
    """The request with what stands in objects of their own within it."""
    settings = dict(request)
    for name in _SETTINGS:
        settings |= {key: value for key, value in as_fields(request.get(name)).items() if value is not None}
    return settings


def _system(value: object) -> list[Fields]:
    if value is None or value == "":
        return []
    if isinstance(value, dict):
        inner = cast("Fields", value)
        listed = inner.get("parts", inner.get("content", cast("object", inner)))
        return [message({"role": "system", "content": listed}, "system")]
    if any("role" in as_fields(item) for item in as_list(value)):
        return messages(value, "system")
    return [message({"role": "system", "content": value}, "system")]


def _without_reprs(listed: list[Fields]) -> list[Fields]:
    """No messages at all where they are reprs of some framework's objects, which nobody can read again."""
    texts = [as_fields(part).get("content") for item in listed for part in as_list(item.get("parts"))[:1]]
    is_repr = any(isinstance(text, str) and text.startswith(_REPR_OF_MESSAGE) and "role=" in text for text in texts)
    return [] if is_repr else listed


def request_tools(request: Fields) -> list[object]:
    """Tool definitions in canonical form."""
    settings = _settings(request)
    listed = _first(settings, ("tools", "functions")) or as_fields(settings.get("toolConfig")).get("tools")
    named = as_fields(listed)
    return tool_definitions(named.values() if named else as_list(listed))


def opened(value: object) -> Fields:
    """The response inside a framework's own: LlamaIndex keeps the API's under ``raw``, others in a list of one."""
    listed = as_list(value)
    fields = as_fields(listed[0] if len(listed) == 1 and as_list(as_fields(listed[0]).get("output")) else value)
    raw = as_fields(fields.get("raw"))
    return {**fields, **raw} if "choices" in raw else fields


def response_messages(value: object) -> list[Fields]:
    """The messages of a response, one a choice; none without content."""
    response = opened(value)
    if not response:
        answers = [item for item in messages(value, "assistant") if item.get("parts")]
        return [joined(answers)] if has_hosted_items(as_list(value)) else answers
    answers = []
    for key in ("choices", "generations", "replies", "candidates"):
        if isinstance(response.get(key), list):
            listed = [_candidate(item) for item in as_list(response[key])] if key == "candidates" else response[key]
            answers = messages(listed, "assistant")
            break
    else:
        answers = _single(response)
    return [item for item in answers if item.get("parts")]


def _candidate(item: object) -> object:
    """One of Gemini's candidates as a message."""
    fields = as_fields(item)
    reason = fields.get("finishReason", fields.get("finish_reason"))
    return {**as_fields(fields.get("content")), "finish_reason": as_text(reason)}


def _single(response: Fields) -> list[Fields]:
    output, content = response.get("output"), as_fields(response.get("content"))
    if isinstance(output, list):
        return [joined(messages(cast("list[object]", output), "assistant"))]
    for inner in (as_fields(as_fields(output).get("message")), as_fields(response.get("message")), content):
        if inner and any(key in inner for key in ("content", "parts", "blocks", "tool_calls", "role")):
            return [message({"role": "assistant", **inner}, "assistant")]
    if any(key in response for key in ("content", "parts", "lc", "tool_calls")):
        return [message(response, "assistant")]
    text = _first(response, ("text", "output_text", "completion", "generated_text"))
    return [message({"role": "assistant", "content": text}, "assistant")] if isinstance(text, str) else []


def joined(items: list[Fields]) -> Fields:
    """The items of one answer (a Responses API lists text and tool calls one by one) as one message."""
    return {"role": "assistant", "parts": [part for item in items for part in as_list(item["parts"])]}


_NO_ID: Final = "__fake_id__"
"""The id that OpenAI's agents give to a response that streams through a chat API."""


def response_id(response: Fields) -> str:
    """The provider's id; LangChain keeps it in ``llm_output``, or in the first generation's message."""
    identity = _first(response, _IDS)
    if identity == _NO_ID:
        item = as_fields(next(iter(as_list(response.get("output"))), None))
        identity = as_fields(item.get("provider_data")).get("response_id", "")
    if isinstance(identity, str):
        return identity
    named = as_fields(response.get("llm_output")).get("id")
    if isinstance(named, str) and named:
        return named
    place = _innermost(response.get("generations"))
    for name in ("message", "kwargs", "response_metadata"):
        place = as_fields(place).get(name)
    nested_id = as_fields(place).get("id")
    return nested_id if isinstance(nested_id, str) else ""


def finish_reason(response: Fields) -> object:
    """The first choice's finish reason, wherever the response keeps it."""
    reason = _first(response, _REASONS)
    if reason:
        return reason
    if isinstance(response.get("output"), list) and isinstance(response.get("status"), str):
        return as_fields(response.get("incomplete_details")).get("reason") or response["status"]
    place: object = next(
        (response[key] for key in ("choices", "generations", "candidates", "replies") if response.get(key)), None
    )
    choice = as_fields(_innermost(place))
    both = choice | as_fields(choice.get("generation_info")) | as_fields(choice.get("meta"))
    return _first(both, _REASONS) or ""


def _innermost(place: object) -> object:
    """The first item of the first item … of lists of lists."""
    while listed := as_list(place):
        place = listed[0]
    return place


def _first(fields: Mapping[str, object], names: Iterable[str]) -> object:
    return next((fields[name] for name in names if fields.get(name)), None)
