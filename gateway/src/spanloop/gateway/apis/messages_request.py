"""Requests of Anthropic's Messages API as chats (https://docs.anthropic.com/en/api/messages)."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..chat.request_body import invalid_request
from .fields import expect_list, expect_object, expect_text, refuse_others, set_fields, unsupported

_KNOWN: Final = frozenset({
    "model", "messages", "system", "max_tokens", "tools", "tool_choice", "stop_sequences", "temperature", "top_p",
    "top_k", "stream", "thinking", "output_config",
    # They change nothing here.
    "metadata", "service_tier", "context_management", "betas",
})  # fmt: skip
_BLOCK_FIELDS: Final = frozenset({"type", "cache_control", "citations"})
_CHOICES: Final = {"auto": "auto", "any": "required", "none": "none"}


def to_chat(document: Mapping[str, Any], *, needs_limit: bool = True) -> dict[str, Any]:
    """Return the chat request of a Messages request.

    Args:
        document: The request.
        needs_limit: Whether ``max_tokens`` is required.

    Raises:
        ApiError: 400; names the field that is malformed or not supported.
    """
    refuse_others(document, _KNOWN)
    if needs_limit and not isinstance(document.get("max_tokens"), int):
        raise invalid_request("'max_tokens' must be an integer.", param="max_tokens")
    messages: list[dict[str, Any]] = []
    if document.get("system"):
        messages.append({"role": "system", "content": _text_of(document["system"], "system")})
    for position, message in enumerate(expect_list(document.get("messages"), "messages")):
        messages += _messages(expect_object(message, f"messages[{position}]"), f"messages[{position}]")
    chat: dict[str, Any] = {"messages": messages}
    choice = expect_object(document.get("tool_choice") or {}, "tool_choice")
    output = expect_object(document.get("output_config") or {}, "output_config")
    refuse_others(output, {"effort", "format"}, "output_config.")
    set_fields(
        chat,
        model=document.get("model"),
        max_tokens=document.get("max_tokens"),
        stop=document.get("stop_sequences"),
        temperature=document.get("temperature"),
        top_p=document.get("top_p"),
        top_k=document.get("top_k"),
        stream=document.get("stream"),
        tools=_tools(document.get("tools")),
        tool_choice=_tool_choice(choice),
        parallel_tool_calls=False if choice.get("disable_parallel_tool_use") else None,
        chat_template_kwargs=_thinking(document.get("thinking")),
        reasoning_effort=output.get("effort"),
        response_format=_response_format(output.get("format")),
    )
    if chat.get("stream"):
        chat["stream_options"] = {"include_usage": True}
    return chat


def _messages(message: Mapping[str, Any], param: str) -> list[dict[str, Any]]:
    """Return the chat messages of one message: results of tools are messages of their own."""
    refuse_others(message, {"role", "content"}, f"{param}.")
    role, content = message.get("role"), message.get("content")
    if role not in {"user", "assistant", "system"}:
        raise invalid_request(f"'{param}.role' must be user or assistant, got {role!r:.80}.", param=f"{param}.role")
    if isinstance(content, str):
        return [{"role": role, "content": content}]
    blocks = [
        (expect_object(block, f"{param}.content[{at}]"), f"{param}.content[{at}]")
        for at, block in enumerate(expect_list(content, f"{param}.content"))
    ]
    return [_assistant_message(blocks)] if role == "assistant" else _user_messages(role, blocks)


def _assistant_message(blocks: Sequence[tuple[dict[str, Any], str]]) -> dict[str, Any]:
    texts, thinking, calls = list[str](), list[str](), list[dict[str, Any]]()
    for block, param in blocks:
        kind = block.get("type")
        if kind == "text":
            texts.append(_text(block, param))
        elif kind == "thinking":
            thinking.append(expect_text(block.get("thinking"), f"{param}.thinking"))
        elif kind == "tool_use":
            refuse_others(block, _BLOCK_FIELDS | {"id", "name", "input", "caller"}, f"{param}.")
            arguments = json.dumps(block.get("input") or {}, ensure_ascii=False)
            function = {"name": expect_text(block.get("name"), f"{param}.name"), "arguments": arguments}
            calls.append({"id": block.get("id"), "type": "function", "function": function})
        else:
            raise unsupported(f"{param}.type: {kind}")
    message: dict[str, Any] = {"role": "assistant", "content": "".join(texts) or None}
    return set_fields(message, tool_calls=calls or None, reasoning="".join(thinking) or None)


def _user_messages(role: str, blocks: Sequence[tuple[dict[str, Any], str]]) -> list[dict[str, Any]]:
    results, parts = list[dict[str, Any]](), list[dict[str, Any]]()
    for block, param in blocks:
        kind = block.get("type")
        if kind == "text":
            parts.append({"type": "text", "text": _text(block, param)})
        elif kind == "image":
            parts.append({"type": "image_url", "image_url": {"url": _image_url(block, param)}})
        elif kind == "tool_result":
            refuse_others(block, _BLOCK_FIELDS | {"tool_use_id", "content", "is_error"}, f"{param}.")
            content = _text_of(block.get("content") or "", f"{param}.content")
            results.append({"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": content})
        else:
            raise unsupported(f"{param}.type: {kind}")
    if all(part["type"] == "text" for part in parts):
        text = "".join(part["text"] for part in parts)
        return [*results, {"role": role, "content": text}] if parts else results
    return [*results, {"role": role, "content": parts}]


def _text(block: Mapping[str, Any], param: str) -> str:
    refuse_others(block, _BLOCK_FIELDS | {"text"}, f"{param}.")
    return expect_text(block.get("text"), f"{param}.text")


def _text_of(content: object, param: str) -> str:
    """Return the text of a string or of blocks of text."""
    if isinstance(content, str):
        return content
    texts: list[str] = []
    for at, item in enumerate(expect_list(content, param)):
        block = expect_object(item, f"{param}[{at}]")
        if block.get("type") != "text":
            raise unsupported(f"{param}[{at}].type: {block.get('type')}")
        texts.append(_text(block, f"{param}[{at}]"))
    return "\n".join(texts)


def _image_url(block: Mapping[str, Any], param: str) -> str:
    source = expect_object(block.get("source"), f"{param}.source")
    if source.get("type") == "url":
        return expect_text(source.get("url"), f"{param}.source.url")
    if source.get("type") == "base64":
        return f"data:{source.get('media_type')};base64,{source.get('data')}"
    raise unsupported(f"{param}.source.type: {source.get('type')}")


def _tools(tools: object) -> list[dict[str, Any]] | None:
    if tools is None:
        return None
    chat_tools: list[dict[str, Any]] = []
    for at, item in enumerate(expect_list(tools, "tools")):
        tool = expect_object(item, f"tools[{at}]")
        if tool.get("type") not in {None, "custom"}:
            raise unsupported(f"tools[{at}].type: {tool['type']}")
        known = {"type", "name", "description", "input_schema", "strict", "cache_control", "eager_input_streaming"}
        refuse_others(tool, known, f"tools[{at}].")
        function = {"name": expect_text(tool.get("name"), f"tools[{at}].name"), "parameters": tool.get("input_schema")}
        set_fields(function, description=tool.get("description"), strict=tool.get("strict"))
        chat_tools.append({"type": "function", "function": function})
    return chat_tools


def _tool_choice(fields: Mapping[str, Any]) -> object:
    if not fields:
        return None
    kind = fields.get("type")
    if kind == "tool":
        return {"type": "function", "function": {"name": expect_text(fields.get("name"), "tool_choice.name")}}
    if kind not in _CHOICES:
        raise unsupported(f"tool_choice.type: {kind}")
    return _CHOICES[kind]


def _thinking(thinking: object) -> dict[str, Any] | None:
    """Return the arguments of the chat template; a budget is not enforced, so it is refused nowhere and counts not."""
    if thinking is None:
        return None
    kind = expect_object(thinking, "thinking").get("type")
    if kind not in {"enabled", "disabled", "adaptive"}:
        raise unsupported(f"thinking.type: {kind}")
    return {"enable_thinking": kind != "disabled"}


def _response_format(output_format: object) -> dict[str, Any] | None:
    if output_format is None:
        return None
    fields = expect_object(output_format, "output_config.format")
    if fields.get("type") != "json_schema":
        raise unsupported(f"output_config.format.type: {fields.get('type')}")
    refuse_others(fields, {"type", "schema"}, "output_config.format.")
    return {"type": "json_schema", "json_schema": {"name": "output", "schema": fields.get("schema"), "strict": True}}
