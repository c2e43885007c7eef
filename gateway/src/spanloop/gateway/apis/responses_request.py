"""Requests of OpenAI's Responses API as chats (https://platform.openai.com/docs/api-reference/responses).

Items of one turn of the model (reasoning, a message, calls of functions) are one message of the chat.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..chat.request_body import invalid_request
from .fields import expect_list, expect_object, expect_text, refuse_others, set_fields, unsupported

_KNOWN: Final = frozenset({
    "model", "input", "instructions", "tools", "tool_choice", "temperature", "top_p", "max_output_tokens", "stream",
    "store", "previous_response_id", "text", "parallel_tool_calls", "reasoning", "top_logprobs", "seed",
    # They change nothing here.
    "metadata", "user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "service_tier", "include",
    "truncation", "background", "stream_options", "client_metadata", "max_tool_calls",
})  # fmt: skip
_INCLUDABLE: Final = frozenset({"reasoning.encrypted_content", "message.output_text.logprobs"})
_ROLES: Final = {"user": "user", "assistant": "assistant", "system": "system", "developer": "system"}
_SEPARATOR: Final = "__"
"""Between a namespace and a tool's name: vLLM's parsers read names of letters, digits, ``_`` and ``-``."""
_ITEM_FIELDS: Final = frozenset({"id", "type", "status", "phase", "internal_chat_message_metadata_passthrough"})


def input_items(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the items of a request's input; a text is a message of the user.

    Raises:
        ApiError: 400; the input is malformed.
    """
    value = document.get("input")
    if isinstance(value, str):
        return [{"type": "message", "role": "user", "content": value}]
    return [expect_object(item, f"input[{at}]") for at, item in enumerate(expect_list(value, "input"))]


def to_chat(document: Mapping[str, Any], items: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the chat request of a Responses request.

    Args:
        document: The request.
        items: Items of the whole conversation: those of the responses before, then the request's input.

    Raises:
        ApiError: 400; names the field that is malformed or not supported.
    """
    _refuse_unsupported(document)
    messages = _to_messages(items)
    if (instructions := document.get("instructions")) is not None:
        messages.insert(0, {"role": "system", "content": expect_text(instructions, "instructions")})
    text = expect_object(document.get("text") or {}, "text")
    refuse_others(text, {"format", "verbosity"}, "text.")
    reasoning = expect_object(document.get("reasoning") or {}, "reasoning")
    refuse_others(reasoning, {"effort", "summary", "generate_summary", "context"}, "reasoning.")
    tools = _tools(document.get("tools"))
    chat: dict[str, Any] = {"messages": messages}
    set_fields(
        chat,
        model=document.get("model"),
        max_completion_tokens=document.get("max_output_tokens"),
        temperature=document.get("temperature"),
        logprobs=True if document.get("top_logprobs") else None,
        top_logprobs=document.get("top_logprobs") or None,
        top_p=document.get("top_p"),
        seed=document.get("seed"),
        stream=document.get("stream"),
        tools=tools or None,
        tool_choice=_tool_choice(document.get("tool_choice")) if tools else None,
        parallel_tool_calls=document.get("parallel_tool_calls") if tools else None,
        response_format=_response_format(text.get("format")),
        reasoning_effort=reasoning.get("effort"),
    )
    if chat.get("stream"):
        chat["stream_options"] = {"include_usage": True}
    return chat


def _refuse_unsupported(document: Mapping[str, Any]) -> None:
    refuse_others(document, _KNOWN)
    if document.get("background"):
        raise unsupported("background")
    if document.get("truncation") not in {None, "disabled"}:
        raise unsupported(f"truncation: {document['truncation']}")
    for value in expect_list(document.get("include") or [], "include"):
        if value not in _INCLUDABLE:
            raise unsupported(f"include: {value}")


def _to_messages(items: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    turn: dict[str, Any] | None = None
    for at, item in enumerate(items):
        kind, param = item.get("type") or "message", f"input[{at}]"
        is_of_model = kind in {"reasoning", "function_call"} or (kind == "message" and item.get("role") == "assistant")
        if not is_of_model:
            turn = None
            messages.append(_message(item, kind, param))
            continue
        # A message ends nothing: calls may follow it. A second message, or thinking after a call, is another turn.
        if turn is None or (kind == "message" and turn.get("content")) or (kind == "reasoning" and len(turn) > 1):
            turn = {"role": "assistant"}
            messages.append(turn)
        _add_to_turn(turn, item, kind, param)
    for message in messages:
        message.setdefault("content", None)
    return messages


def _add_to_turn(turn: dict[str, Any], item: Mapping[str, Any], kind: str, param: str) -> None:
    if kind == "message":
        refuse_others(item, _ITEM_FIELDS | {"role", "content"}, f"{param}.")
        turn["content"] = _text_of(item.get("content"), f"{param}.content")
    elif kind == "function_call":
        refuse_others(item, _ITEM_FIELDS | {"call_id", "name", "arguments", "namespace"}, f"{param}.")
        name = _qualified(item.get("namespace"), expect_text(item.get("name"), f"{param}.name"), f"{param}.namespace")
        function = {"name": name, "arguments": expect_text(item.get("arguments"), f"{param}.arguments")}
        call = {"id": item.get("call_id"), "type": "function", "function": function}
        turn.setdefault("tool_calls", []).append(call)
    else:
        refuse_others(item, _ITEM_FIELDS | {"summary", "content", "encrypted_content"}, f"{param}.")
        if item.get("content"):
            turn["reasoning"] = _text_of(item["content"], f"{param}.content")


def _message(item: Mapping[str, Any], kind: str, param: str) -> dict[str, Any]:
    if kind == "function_call_output":
        refuse_others(item, _ITEM_FIELDS | {"call_id", "output"}, f"{param}.")
        content = _text_of(item.get("output"), f"{param}.output")
        return {"role": "tool", "tool_call_id": item.get("call_id"), "content": content}
    if kind != "message":
        raise unsupported(f"{param}.type: {kind}")
    refuse_others(item, _ITEM_FIELDS | {"role", "content"}, f"{param}.")
    role = item.get("role")
    if role not in _ROLES:
        raise invalid_request(
            f"'{param}.role' must be one of {', '.join(_ROLES)}, got {role!r:.80}.", param=f"{param}.role"
        )
    return {"role": _ROLES[role], "content": _content(item.get("content"), f"{param}.content")}


def _content(content: object, param: str) -> str | list[dict[str, Any]]:
    """Return the content of a message: text, or parts where there are images."""
    if isinstance(content, str):
        return content
    parts: list[dict[str, Any]] = []
    for at, item in enumerate(expect_list(content, param)):
        part = expect_object(item, f"{param}[{at}]")
        if part.get("type") == "input_image":
            url = expect_text(part.get("image_url"), f"{param}[{at}].image_url")
            parts.append({"type": "image_url", "image_url": {"url": url}})
        else:
            parts.append({"type": "text", "text": _part_text(part, f"{param}[{at}]")})
    if all(part["type"] == "text" for part in parts):
        return "".join(part["text"] for part in parts)
    return parts


def _text_of(content: object, param: str) -> str:
    if isinstance(content, str):
        return content
    parts = [expect_object(part, f"{param}[{at}]") for at, part in enumerate(expect_list(content, param))]
    return "".join(_part_text(part, f"{param}[{at}]") for at, part in enumerate(parts))


def _part_text(part: Mapping[str, Any], param: str) -> str:
    kind = part.get("type")
    if kind in {"input_text", "output_text", "text", "reasoning_text", "summary_text"}:
        return expect_text(part.get("text"), f"{param}.text")
    if kind == "refusal":
        return expect_text(part.get("refusal"), f"{param}.refusal")
    raise unsupported(f"{param}.type: {kind}")


def namespaces(document: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Return the namespace and the name in it of each tool in a namespace, by its name in the chat."""
    tools: list[dict[str, Any]] = document.get("tools") or []
    names: dict[str, tuple[str, str]] = {}
    for space in tools:
        if space.get("type") == "namespace":
            members: list[dict[str, Any]] = space["tools"]
            names |= {_qualified(space["name"], tool["name"], ""): (space["name"], tool["name"]) for tool in members}
    return names


def _qualified(namespace: object, name: str, param: str) -> str:
    """Return the name of a tool in the chat, whose tools have no namespaces."""
    return name if namespace is None else f"{expect_text(namespace, param)}{_SEPARATOR}{name}"


def _tools(tools: object) -> list[dict[str, Any]]:
    chat_tools: list[dict[str, Any]] = []
    for at, item in enumerate(expect_list(tools or [], "tools")):
        tool = expect_object(item, f"tools[{at}]")
        if tool.get("type") != "namespace":
            chat_tools.append(_function(tool, f"tools[{at}]", None))
            continue
        refuse_others(tool, {"type", "name", "description", "tools"}, f"tools[{at}].")
        for place, member in enumerate(expect_list(tool.get("tools"), f"tools[{at}].tools")):
            param = f"tools[{at}].tools[{place}]"
            chat_tools.append(
                _function(expect_object(member, param), param, expect_text(tool.get("name"), f"tools[{at}].name"))
            )
    return chat_tools


def _function(tool: Mapping[str, Any], param: str, namespace: str | None) -> dict[str, Any]:
    if tool.get("type") != "function":
        raise unsupported(f"{param}.type: {tool.get('type')}")
    refuse_others(tool, {"type", "name", "description", "parameters", "strict", "defer_loading"}, f"{param}.")
    function = {"name": _qualified(namespace, expect_text(tool.get("name"), f"{param}.name"), param)}
    set_fields(
        function,
        description=tool.get("description"),
        parameters=tool.get("parameters"),
        strict=tool.get("strict"),
    )
    return {"type": "function", "function": function}


def _tool_choice(choice: object) -> object:
    if choice is None or isinstance(choice, str):
        return choice
    fields = expect_object(choice, "tool_choice")
    if fields.get("type") != "function":
        raise unsupported(f"tool_choice.type: {fields.get('type')}")
    return {"type": "function", "function": {"name": expect_text(fields.get("name"), "tool_choice.name")}}


def _response_format(text_format: object) -> dict[str, Any] | None:
    if text_format is None:
        return None
    fields = expect_object(text_format, "text.format")
    kind = fields.get("type")
    if kind == "text":
        return None
    if kind == "json_object":
        return {"type": kind}
    if kind == "json_schema":
        schema = {name: fields[name] for name in ("name", "description", "schema", "strict") if name in fields}
        return {"type": kind, "json_schema": schema}
    raise unsupported(f"text.format.type: {kind}")
