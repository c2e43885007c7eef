"""Messages in the spellings of chat APIs and frameworks → OpenTelemetry's form, part by part.

Known: OpenAI chat and Responses items, Anthropic blocks, Gemini contents, Bedrock Converse, Haystack, LlamaIndex,
Genkit, LangChain envelopes, AutoGen and AgentScope messages, Vercel's parts, and values that were turned into JSON or
Python text on the way. Invariant: what is not known stays exactly as it came; nothing here raises, and nothing is
dropped but the envelope around a message.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, cast

from .json_values import Fields, as_fields, as_list, python_or_json, text_of_repr
from .unfinished import UNFINISHED, UnfinishedText

CANONICAL_PARTS: Final = frozenset({"text", "tool_call", "tool_call_response"})

ROLES: Final = {
    "developer": "system",
    "systemmessage": "system",
    "human": "user",
    "usermessage": "user",
    "humanmessage": "user",
    "humanmessagechunk": "user",
    "ai": "assistant",
    "model": "assistant",
    "aimessage": "assistant",
    "aimessagechunk": "assistant",
    "assistantmessage": "assistant",
    "function": "tool",
    "toolmessage": "tool",
    "functionmessage": "tool",
    "functionexecutionresultmessage": "tool",
    "function_call_output": "tool",
    "tool-response": "user",
    "tool-call": "assistant",
    "function_call": "assistant",
    "reasoning": "assistant",
}
"""Role names and message types, in lower case, that stand for one of OpenTelemetry's four roles."""

_CHAT_KEYS: Final = frozenset({"role", "content", "tool_calls", "tool_call_id", "finish_reason"})
"""All that most messages of chat APIs have: there is no envelope around them."""

_KNOWN_ROLES: Final = frozenset({"system", "user", "assistant", "tool"})
_TEXT_TYPES: Final = frozenset({"input_text", "output_text"})
_CALL_TYPES: Final = frozenset({"tool_use", "tool-call", "function_call", "functionCall", "toolUse", "toolCall"})
_REASONING_TYPES: Final = frozenset({"thinking", "reasoning"})
_RESPONSE_TYPES: Final = frozenset(
    {"tool_result", "tool-result", "function_response", "functionResponse", "function_call_output", "toolResult"}
)
_IDS: Final = ("call_id", "tool_call_id", "toolCallId", "tool_use_id", "toolUseId", "id", "ref")
_NAMES: Final = ("name", "tool_name", "toolName")
_ARGUMENTS: Final = ("arguments", "args", "input", "parameters", "tool_kwargs")
_RESPONSES: Final = ("response", "result", "output", "content")
_CALL_SHELLS: Final = ("function_call", "functionCall", "toolUse", "tool_call", "toolRequest")
_RESPONSE_SHELLS: Final = (
    "function_response",
    "functionResponse",
    "toolResult",
    "tool_call_result",
    "toolResponse",
)
_VALUE_TYPES: Final = frozenset({"text", "json", "content", "error-text", "error-json"})
"""Types of Vercel's tool outputs: ``{"type": …, "value": …}``."""


def messages(value: object, role: str = "user") -> list[Fields]:
    """Canonical messages out of a list of messages, one message, or plain text.

    Args:
        value: Decoded JSON in any of the known spellings.
        role: Whose words plain text, and messages without a role, are.
    """
    if isinstance(value, list):
        items = cast("list[object]", value)
        if len(items) == 1 and isinstance(items[0], list):
            return messages(cast("object", items[0]), role)
        return [message(item, role) for item in items if item is not None]
    return [] if value is None or value == "" else [message(value, role)]


def canonical_role(name: str) -> str:
    """OpenTelemetry's name of a role; one that it does not have stays as it is."""
    return name if name in _KNOWN_ROLES else ROLES.get(name.lower(), name)


def message(item: object, role: str = "user") -> Fields:
    """One canonical message: ``role``, ``parts``, and whatever else the message carried."""
    if not isinstance(item, dict):
        return {"role": role, "parts": [part(item)]}
    fields: Fields = item  # pyright: ignore[reportUnknownVariableType]
    named_role, content = fields.get("role"), fields.get("content")
    if named_role in _KNOWN_ROLES and (content is None or type(content) is str) and _CHAT_KEYS.issuperset(fields):
        return _from_content(str(named_role), fields)
    fields = opened(fields)
    kind = str(fields.get("type") or "")
    named_role = fields.get("role")
    name = named_role if isinstance(named_role, str) and named_role else _role_of_type(kind, role)
    name = canonical_role(name)
    if isinstance(fields.get("parts"), list):
        return _from_parts(name, fields)
    if not isinstance(named_role, str) and (kind in _CALL_TYPES or kind in _RESPONSE_TYPES or kind == "reasoning"):
        return {"role": name, "parts": [part(fields)]}
    if not isinstance(named_role, str) and _is_item(kind, fields):
        return {"role": _role_of_item(kind, name), "parts": [fields]}
    return _from_content(name, fields)


def _is_item(kind: str, fields: Fields) -> bool:
    """Whether an entry of a list of messages is a part of one, such as a Responses API's call of a hosted tool."""
    is_message = kind == "message" or kind in _KNOWN_ROLES or kind.lower() in ROLES
    return bool(kind) and not is_message and _OF_MESSAGE.isdisjoint(fields)


_OF_MESSAGE: Final = frozenset({"content", "contents", "blocks", "_content", "tool_calls", "parts"})


def _role_of_item(kind: str, role: str) -> str:
    if kind.endswith(("_output", "_response")):
        return "tool"
    return "assistant" if kind.endswith(("_call", "_list_tools", "_request")) else role


def _from_parts(role: str, fields: Fields) -> Fields:
    """A message that has parts; some instrumentors leave its calls, or whom it answers, beside them."""
    listed = parts(fields["parts"])
    listed += _calls(fields, listed)
    identity = fields.get("tool_call_id")
    if role == "tool" and identity and not any(is_response(item) for item in listed):
        listed = _responses(fields["parts"], identity, fields)
    rest = {key: fields[key] for key in fields if key not in _BESIDE_PARTS}
    return {"role": _role_of_parts(role, listed), "parts": listed, **rest}


_BESIDE_PARTS: Final = frozenset({"role", "parts", "tool_calls", "tool_call_id", "function_call", "invalid_tool_calls"})


def opened(fields: Fields) -> Fields:
    """The message inside LangChain's, a choice's or an event's envelope, with the envelope's finish reason."""
    for _ in range(8):
        inner = _inner(fields)
        if inner is None:
            return fields
        fields = inner
    return fields


def _inner(fields: Fields) -> Fields | None:
    kwargs, data, held = fields.get("kwargs"), fields.get("data"), fields.get("message")
    if fields.get("lc") is not None and isinstance(kwargs, dict):
        name = fields.get("id")
        last = str(cast("list[object]", name)[-1]) if isinstance(name, list) and name else ""
        return {"type": last, **cast("Fields", kwargs)}
    if isinstance(data, dict) and isinstance(fields.get("type"), str) and "content" in data:
        return {"type": fields["type"], **cast("Fields", data)}
    if isinstance(held, dict) and "role" not in fields:
        reason = fields.get("finish_reason") or fields.get("finishReason")
        info = fields.get("generation_info")
        if not reason and isinstance(info, dict):
            reason = cast("Fields", info).get("finish_reason")
        inner = opened(cast("Fields", held))
        return {**inner, "finish_reason": reason} if reason and "finish_reason" not in inner else inner
    return None


def _role_of_type(kind: str, role: str) -> str:
    if kind.lower() in ROLES:
        return ROLES[kind.lower()]
    if kind in _CALL_TYPES:
        return "assistant"
    if kind in _RESPONSE_TYPES:
        return "tool"
    return kind if kind in _KNOWN_ROLES else role


_CONTENT_KEYS: Final = frozenset(
    {"role", "type", "content", "contents", "blocks", "tool_calls", "function_call", "tool_call_id", "call_id"}
    | {"lc", "kwargs"}
)
_NOISE: Final = frozenset(
    {"refusal", "annotations", "audio", "additional_kwargs", "response_metadata", "usage_metadata", "tool_call_chunks"}
    | {"invalid_tool_calls", "example", "artifact", "status", "id", "provider_specific_fields", "meta"}
)
"""Keys of a chat API's message beside its content; a model is shown none of them."""

_WORDS: Final = ("role", "content")
"""All that most messages have."""

_NOT_EXTRA: Final = _CONTENT_KEYS | _NOISE
_CALL_KEYS: Final = frozenset({"tool_calls", "function_call", "additional_kwargs", "invalid_tool_calls"})


def _from_content(role: str, fields: Fields) -> Fields:
    content = fields.get("content")
    if type(content) is str and content and role != "tool" and "role" in fields and len(fields) == len(_WORDS):
        return {"role": role, "parts": [{"type": "text", "content": content}]}
    if content is None and "content" not in fields:
        content = next((fields[key] for key in ("contents", "blocks", "_content") if key in fields), None)
    identity = fields.get("tool_call_id") or fields.get("call_id")
    if role == "tool" and (identity is not None or "content" in fields):
        listed = _responses(content, identity, fields)
    else:
        listed = parts(content)
        listed += () if _CALL_KEYS.isdisjoint(fields) else _calls(fields, listed)
        refusal = fields.get("refusal")
        if isinstance(refusal, str) and refusal:
            listed.append({"type": "refusal", "content": refusal})
    role = _role_of_parts(role, listed)
    if _NOT_EXTRA.issuperset(fields):
        return {"role": role, "parts": listed}
    extra = {key: value for key, value in fields.items() if key not in _NOT_EXTRA and value not in (None, "", [], {})}
    return {"role": role, "parts": listed, **extra}


def _role_of_parts(role: str, items: Iterable[object]) -> str:
    """``tool`` where a user's message holds nothing but tool answers, as Anthropic, Gemini and Bedrock send them."""
    if role != "user":
        return role
    listed = list(items)
    return "tool" if listed and all(map(is_response, listed)) else role


def _responses(content: object, identity: object, fields: Fields) -> list[object]:
    answers = [part(item) for item in as_list(content)]
    if answers and all(is_response(item) for item in answers):
        return answers
    response: Fields = {"type": "tool_call_response", "id": identity or "", "response": plain(content)}
    if isinstance(fields.get("name"), str) and fields["name"]:
        response["name"] = fields["name"]
    return [response]


def is_response(item: object) -> bool:
    """Whether a part is the answer of a tool."""
    return as_fields(item).get("type") == "tool_call_response"


def _calls(fields: Mapping[str, object], content: Iterable[object]) -> list[object]:
    """The calls beside a message's content; in the older forms only where the content has none."""
    calls_beside: list[object] = []
    calls = fields.get("tool_calls")
    calls_beside += map(tool_call, as_fields(calls).values() or as_list(calls))
    is_older = not calls_beside and ("function_call" in fields or "additional_kwargs" in fields)
    if is_older and not any(as_fields(item).get("type") == "tool_call" for item in content):
        # LangChain before 0.2 keeps a call as OpenAI's client gave it.
        beside = as_fields(fields.get("additional_kwargs"))
        calls_beside += [tool_call(call) for call in as_list(beside.get("tool_calls"))]
        calls_beside = calls_beside or _single_call(fields.get("function_call") or beside.get("function_call"))
    if "invalid_tool_calls" not in fields:
        return calls_beside
    # LangChain lists calls whose arguments are no JSON apart from the others.
    known = {as_fields(call).get("id") for call in calls_beside}
    invalid = [tool_call(call) for call in as_list(fields.get("invalid_tool_calls"))]
    return [*calls_beside, *(call for call in invalid if as_fields(call).get("id") not in known)]


def _single_call(value: object) -> list[object]:
    """The one call of OpenAI's older form, which may be JSON text."""
    call = as_fields(python_or_json(value) if isinstance(value, str) else value)
    return [tool_call(call)] if call.get("name") else []


def parts(content: object) -> list[object]:
    """The parts of a message's content."""
    if content is None or content == "":
        return []
    if not isinstance(content, list):
        return [part(content)]
    return [part(item) for item in cast("list[object]", content) if item is not None]


def part(item: object) -> object:
    """One canonical part; what is not known comes back as it is."""
    if isinstance(item, str):
        return _words(item)
    if not isinstance(item, dict):
        return item
    fields = cast("Fields", item)
    kind = fields.get("type")
    if kind is None:
        return _untyped(fields)
    if kind in {"text", *_TEXT_TYPES} and "content" not in fields and isinstance(fields.get("text"), str):
        return {"type": "text", "content": fields["text"]}
    read = _READERS.get(kind) if isinstance(kind, str) else None
    return fields if read is None else read(fields)


def _words(text: str) -> Fields:
    if isinstance(text, UnfinishedText):
        return {"type": UNFINISHED, "attribute": text.attribute, "content": str(text)}
    return {"type": "text", "content": text}


def _untyped(item: Fields) -> object:
    """Gemini, Bedrock, Haystack, LlamaIndex and AutoGen tell a part by its keys; those without a value do not count."""
    fields = {key: value for key, value in item.items() if value is not None}
    for shells, read in ((_CALL_SHELLS, tool_call), (_RESPONSE_SHELLS, tool_response)):
        inner = next((fields[shell] for shell in shells if isinstance(fields.get(shell), dict)), None)
        if inner is not None:
            return read(cast("Fields", inner))
    thought = as_fields(as_fields(fields.get("reasoningContent")).get("reasoningText"))
    if thought:
        return _reasoning({"type": "reasoning", **thought})
    if isinstance(fields.get("text"), str):
        return _untyped_text(fields) or item
    if "call_id" in fields and "content" in fields:
        return tool_response(fields)
    if "toolName" in fields or "tool_kwargs" in fields:
        return tool_call(fields)
    return tool_call(fields) if "name" in fields and any(key in fields for key in ("arguments", "args")) else item


_BESIDE_TEXT: Final = frozenset({"text", "block_type", "thought_signature", "thoughtSignature"})


def _untyped_text(fields: Fields) -> Fields | None:
    """Text, or Gemini's thought; None where more stands beside it."""
    if fields.get("thought") is True:
        return _reasoning({"type": "reasoning", **fields})
    return {"type": "text", "content": fields["text"]} if fields.keys() <= _BESIDE_TEXT else None


def _reasoning(fields: Fields) -> Fields:
    """OpenTelemetry's part for what a model thinks to itself; what no text tells of it stays as it came."""
    text_key = next(
        (key for key in ("content", "thinking", "text", "reasoning") if isinstance(fields.get(key), str)), None
    )
    if text_key is None or (text_key == "content" and fields.get("type") == "reasoning"):
        return fields
    rest = {key: value for key, value in fields.items() if key not in {"type", text_key, "thought"}}
    return {"type": "reasoning", "content": fields[text_key], **rest}


def tool_call(item: object) -> object:
    """``{"type": "tool_call", "id", "name", "arguments"}`` out of any spelling of a call."""
    if not isinstance(item, dict):
        return item
    fields: Fields = item  # pyright: ignore[reportUnknownVariableType]
    inner = fields.get("function")
    called = as_fields(inner) or fields
    if (name := called.get("name")) and "arguments" in called:
        return {"type": "tool_call", "id": _first(fields, _IDS), "name": name, "arguments": called["arguments"]}
    source = {**fields, **called}
    name = next((source[key] for key in _NAMES if source.get(key)), inner if isinstance(inner, str) else "")
    arguments: object = next((source[key] for key in _ARGUMENTS if key in source), cast("object", {}))
    return {"type": "tool_call", "id": _first(fields, _IDS), "name": name, "arguments": arguments}


def tool_response(fields: Fields) -> Fields:
    """``{"type": "tool_call_response", "id", "response"}`` out of any spelling of an answer."""
    content = next((fields[key] for key in _RESPONSES if key in fields), None)
    origin = as_fields(fields.get("origin"))
    response: Fields = {"type": "tool_call_response", "id": _first(origin | fields, _IDS), "response": plain(content)}
    name = _first(origin | fields, _NAMES)
    failed = fields.get("is_error") is True or fields.get("status") == "error" or fields.get("error") is True
    failed = failed or str(as_fields(content).get("type")).startswith("error-")
    return response | ({"name": name} if name else {}) | ({"is_error": True} if failed else {})


def plain(content: object) -> object:
    """A tool's answer: text where it consists of text parts only, else as it came."""
    if isinstance(content, str):
        return text_of_repr(content)
    output = as_fields(content)
    if output.keys() == {"type", "value"} and output["type"] in _VALUE_TYPES:
        return output["value"]
    listed = [as_fields(part(item)) for item in as_list(content)]
    if not listed or any(item.get("type") != "text" for item in listed):
        return content
    return "".join(text_of_repr(str(item.get("content", ""))) for item in listed)


def _first(fields: Fields, keys: Iterable[str]) -> object:
    for key in keys:
        if value := fields.get(key):
            return value
    return ""


def _function(fields: Fields) -> object:
    """A call as OpenAI's chat API lists it, told from a tool's definition by its arguments."""
    return tool_call(fields) if "arguments" in as_fields(fields.get("function")) else fields


_READERS: Final[Mapping[str, Callable[[Fields], object]]] = {
    **dict.fromkeys(_CALL_TYPES, tool_call),
    "function": _function,
    **dict.fromkeys(_REASONING_TYPES, _reasoning),
    **dict.fromkeys(_RESPONSE_TYPES, tool_response),
}
