"""What went to a model and what came back, each whole, as an API's client or a framework saw it.

Known: OpenAI chat and Responses, Anthropic, Gemini, Bedrock Converse, Cohere, Ollama, and what LangChain, LlamaIndex,
Haystack, DSPy, Google ADK and Genkit make of them. Invariant: nothing here raises; what is not found is empty.
"""

from collections.abc import Iterable, Mapping
from typing import Final, cast

from spanloop.messages import dump
from spanloop.messages.chat_forms import Fields, as_fields, as_list, message, messages
from spanloop.messages.hosted_tools import has_hosted_items
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
_SAID: Final = ("messages", "input", "contents", "chat_history", "prompts", "prompt")
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
    asked = as_fields(value)
    settings = _settings(asked)
    seen, tools = request_messages(value), request_tools(asked) or offered
    return known(
        {
            **parameters(settings),
            "request_model": as_text(_first(asked, _MODELS)),
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
    answered = opened(value)
    said = response_messages(value)
    meta = as_fields(as_fields(_innermost(answered.get("replies"))).get("meta"))
    usage = as_fields(_first(meta | answered, _USAGES)) or answered
    return known(
        {
            "response_model": as_text(_first(meta | answered, _MODELS)),
            "response_id": response_id(answered),
            "finish_reasons": reason_said(as_text(finish_reason(answered)), said),
            "input_tokens": as_text(_first(usage, _INPUT_TOKENS)),
            "output_tokens": as_text(_first(usage, _OUTPUT_TOKENS)),
            "output_messages": said,
        }
    )


def reason_said(reason: str, said: Iterable[Fields]) -> str:
    """``reason``; Gemini and OpenAI's Responses say that they stopped, or nothing, where they ask for a tool."""
    kinds = [as_fields(part).get("type") for item in said for part in as_list(item.get("parts"))]
    # Tools that the provider runs have their answers in the same message.
    asks = kinds.count("tool_call") > kinds.count("tool_call_response")
    return "tool_call" if asks and reason.rpartition(".")[2].lower() in {"stop", "completed", ""} else reason


def request_messages(value: object) -> list[Fields]:
    """The messages of a request, the system's among them."""
    if not isinstance(value, dict):
        return _without_reprs(messages(value))
    asked = cast("Fields", value)
    said = _first(asked, _SAID)
    system = _first(_settings(asked), _SYSTEM)
    return [*_system(system), *_without_reprs(messages(said))]


def _settings(asked: Fields) -> Fields:
    """The request with what stands in objects of their own within it."""
    found = dict(asked)
    for name in _SETTINGS:
        found |= {key: value for key, value in as_fields(asked.get(name)).items() if value is not None}
    return found


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


def _without_reprs(found: list[Fields]) -> list[Fields]:
    """No messages at all where they are reprs of some framework's objects, which nobody can read again."""
    texts = [as_fields(part).get("content") for item in found for part in as_list(item.get("parts"))[:1]]
    is_repr = any(isinstance(text, str) and text.startswith(_REPR_OF_MESSAGE) and "role=" in text for text in texts)
    return [] if is_repr else found


def request_tools(asked: Fields) -> list[object]:
    """Tool definitions in canonical form."""
    settings = _settings(asked)
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
        found = [item for item in messages(value, "assistant") if item.get("parts")]
        return [joined(found)] if has_hosted_items(as_list(value)) else found
    found = []
    for key in ("choices", "generations", "replies", "candidates"):
        if isinstance(response.get(key), list):
            listed = [_candidate(item) for item in as_list(response[key])] if key == "candidates" else response[key]
            found = messages(listed, "assistant")
            break
    else:
        found = _single(response)
    return [item for item in found if item.get("parts")]


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


def joined(found: list[Fields]) -> Fields:
    """The items of one answer (a Responses API lists text and tool calls one by one) as one message."""
    return {"role": "assistant", "parts": [piece for item in found for piece in as_list(item["parts"])]}


_NO_ID: Final = "__fake_id__"
"""What OpenAI's agents call what streams through a chat API."""


def response_id(response: Fields) -> str:
    """The provider's id; LangChain keeps it in ``llm_output``, or in the first generation's message."""
    own = _first(response, _IDS)
    if own == _NO_ID:
        item = as_fields(next(iter(as_list(response.get("output"))), None))
        own = as_fields(item.get("provider_data")).get("response_id", "")
    if isinstance(own, str):
        return own
    named = as_fields(response.get("llm_output")).get("id")
    if isinstance(named, str) and named:
        return named
    place = _innermost(response.get("generations"))
    for name in ("message", "kwargs", "response_metadata"):
        place = as_fields(place).get(name)
    found = as_fields(place).get("id")
    return found if isinstance(found, str) else ""


def finish_reason(response: Fields) -> object:
    """The first choice's finish reason, wherever the response keeps it."""
    own = _first(response, _REASONS)
    if own:
        return own
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
