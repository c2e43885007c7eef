"""Canonical messages in OpenAI's chat form.

Invariant: a conversation that comes out is one that the API takes: every tool call has an id, a name that is
allowed and valid JSON arguments, and is answered before anybody else speaks, unless it is the end.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final, cast

from spanloop.messages import Message, parse_json
from spanloop.messages.json_values import as_fields, as_list

ChatMessage = dict[str, object]

_KNOWN_PARTS: Final = frozenset({"text", "tool_call", "tool_call_response"})
_ROLES: Final = frozenset({"system", "user", "assistant", "tool"})
_FUNCTION_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_MOST_TOOLS: Final = 128


class NotChatError(ValueError):
    """A conversation that the chat form cannot carry; the text is the reason's name."""


def chat(messages: Sequence[Message], *, with_reasoning: bool = False) -> list[ChatMessage]:
    """The conversation in chat form. Ids that are missing are numbered, in the order of calls and answers.

    Args:
        messages: The conversation.
        with_reasoning: Whether what the model thought is ``reasoning_content``, as engines and chat templates name it;
            else it is an unsupported part.

    Raises:
        NotChatError: ``unsupported_part``, ``invalid_arguments``, ``invalid_tool_name``, ``unanswered_tool_call`` or
            ``unknown_role``.
    """
    converted: list[ChatMessage] = []
    waiting: list[str] = []
    for number, message in enumerate(messages):
        reasoning = _check(message, with_reasoning=with_reasoning)
        if message.tool_responses:
            for response in message.tool_responses:
                identity = response.id if response.id in waiting else (waiting[0] if waiting else "")
                if not identity or (response.id and response.id != identity):
                    raise NotChatError("unanswered_tool_call")
                waiting.remove(identity)
                converted.append({"role": "tool", "tool_call_id": identity, "content": response.content})
            if message.text:
                converted.append({"role": "user", "content": message.text})
            continue
        if waiting:
            raise NotChatError("unanswered_tool_call")
        thoughts: ChatMessage = {"reasoning_content": reasoning} if reasoning else {}
        entry: ChatMessage = {"role": message.role} | thoughts
        if message.tool_calls:
            ids = [call.id or f"call_{number}_{place}" for place, call in enumerate(message.tool_calls)]
            if len(set(ids)) < len(ids):
                raise NotChatError("unanswered_tool_call")
            entry |= {"content": message.text or None, "tool_calls": list(_calls(message, ids))}
            waiting = ids
        else:
            entry["content"] = message.text
        converted.append(entry)
    return converted


def _calls(message: Message, ids: Sequence[str]) -> Iterable[ChatMessage]:
    for identity, call in zip(ids, message.tool_calls, strict=True):
        yield {"id": identity, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _check(message: Message, *, with_reasoning: bool) -> str:
    """Raise for what the chat form has no place for; return what the model thought."""
    if message.role not in _ROLES:
        raise NotChatError("unknown_role")
    if not all(call.is_valid for call in message.tool_calls):
        raise NotChatError("invalid_arguments")
    if not all(_FUNCTION_NAME.fullmatch(call.name) for call in message.tool_calls):
        raise NotChatError("invalid_tool_name")
    fields = cast("dict[str, list[object]]", parse_json(message.json))
    if message.tool_responses and message.role == "assistant":
        raise NotChatError("unsupported_part")
    reasoning: list[str] = []
    for part in map(as_fields, fields.get("parts", [])):
        content = part.get("content")
        if with_reasoning and part.get("type") == "reasoning" and isinstance(content, str) and content:
            reasoning.append(content)
        elif part.get("type", "text") not in _KNOWN_PARTS:
            raise NotChatError("unsupported_part")
    return "".join(reasoning)


def tool_definitions(tools: str) -> list[ChatMessage]:
    """Canonical tool definitions in chat form.

    Raises:
        NotChatError: ``invalid_tool_name``, ``invalid_tool_schema`` or ``too_many_tools``.
        MalformedMessagesError: ``tools`` is not JSON.
    """
    definitions = [as_fields(definition) for definition in as_list(parse_json(tools or "[]"))]
    if len(definitions) > _MOST_TOOLS:
        raise NotChatError("too_many_tools")
    for definition in definitions:
        if not _FUNCTION_NAME.fullmatch(str(definition.get("name", ""))):
            raise NotChatError("invalid_tool_name")
        if not isinstance(definition.get("parameters", {}), dict):
            raise NotChatError("invalid_tool_schema")
    return [{"type": "function", "function": definition} for definition in definitions]
