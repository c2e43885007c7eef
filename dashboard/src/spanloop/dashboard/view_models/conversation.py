"""Build a conversation that shows each message once from the message JSON of transitions.

Invariant: text that is not canonical JSON is kept verbatim, never dropped, so that pages show damaged data too.
"""

import json
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeGuard, cast

from spanloop.foundation.surrogates import load_json

PartKind = Literal["text", "reasoning", "tool_call", "tool_call_response", "raw"]


@dataclass(frozen=True, slots=True)
class MessagePart:
    """One part of a message."""

    kind: PartKind
    content: str
    """The text; the arguments of a tool call or the result of a tool, as text or JSON."""
    name: str = ""
    """The tool's name, for a tool call and, where an earlier message of the list has the call, for its response."""
    call_id: str = ""


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message that the policy received or wrote."""

    role: str
    parts: tuple[MessagePart, ...]


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of one tool call of an action."""

    call_id: str
    name: str
    is_error: bool
    error_type: str
    content: str
    duration_ns: int


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One transition's messages, as stored."""

    step: int
    agent_name: str
    state: str
    action: str
    tool_results: str


@dataclass(frozen=True, slots=True)
class ConversationStep:
    """One step of the conversation."""

    step: int
    agent_name: str
    is_restart: bool
    """Whether the state continues no earlier step of the agent; all its messages are new then."""
    new_messages: tuple[ChatMessage, ...]
    """Messages of the prompt that the step it continues did not show."""
    action: ChatMessage
    tool_results: tuple[ToolResult, ...]


@dataclass(frozen=True, slots=True)
class _ShownStep:
    """What an earlier step showed."""

    state: tuple[ChatMessage, ...]
    call_ids: frozenset[str]
    """Tool calls whose results it showed."""


def parse_messages(text: str) -> tuple[ChatMessage, ...]:
    """Parse the messages of a state; text that is not JSON becomes one raw message."""
    if not text:
        return ()
    try:
        loaded: Any = load_json(text)
    except (ValueError, RecursionError):
        return (ChatMessage("raw", (MessagePart("raw", text),)),)
    items = loaded if _is_list(loaded) else [loaded]
    return _with_tool_names(tuple(_message(item) for item in items))


def _with_tool_names(messages: tuple[ChatMessage, ...]) -> tuple[ChatMessage, ...]:
    """Return the messages with the name of the called tool in each response."""
    names: dict[str, str] = {}
    named: list[ChatMessage] = []
    for message in messages:
        names |= {part.call_id: part.name for part in message.parts if part.kind == "tool_call" and part.call_id}
        parts = tuple(
            replace(part, name=part.name or names.get(part.call_id, "")) if part.kind == "tool_call_response" else part
            for part in message.parts
        )
        named.append(ChatMessage(message.role, parts))
    return tuple(named)


def parse_action(text: str) -> ChatMessage:
    """Parse the assistant message of an action."""
    messages = parse_messages(text)
    return messages[0] if messages else ChatMessage("assistant", ())


def parse_tool_results(text: str) -> tuple[ToolResult, ...]:
    """Parse the tool results of an action; other values become results without a name, with the text as content."""
    if not text:
        return ()
    try:
        loaded: Any = load_json(text)
    except (ValueError, RecursionError):
        return (ToolResult("", "", is_error=False, error_type="", content=text, duration_ns=0),)
    items = loaded if _is_list(loaded) else [loaded]
    return tuple(_tool_result(item) for item in items)


def build_conversation(records: list[StepRecord]) -> list[ConversationStep]:
    """Return steps that show each message once: a state that extends an earlier one of its agent shows only the rest.

    The newest state that is a prefix counts, so that a sub-agent between two steps does not restart the outer
    conversation. The rest leaves out the action and the tool responses that the earlier step showed.
    """
    steps: list[ConversationStep] = []
    earlier: defaultdict[str, list[_ShownStep]] = defaultdict(list)
    for record in records:
        state = parse_messages(record.state)
        results = parse_tool_results(record.tool_results)
        shown_steps = earlier[record.agent_name]
        previous = next(
            (past for past in reversed(shown_steps) if past.state and state[: len(past.state)] == past.state), None
        )
        steps.append(
            ConversationStep(
                step=record.step,
                agent_name=record.agent_name,
                is_restart=bool(shown_steps) and previous is None,
                new_messages=_new_messages(state[len(previous.state) :], previous.call_ids) if previous else state,
                action=parse_action(record.action),
                tool_results=results,
            )
        )
        shown_steps.append(_ShownStep(state, frozenset(result.call_id for result in results if result.call_id)))
    return steps


def pretty_json(text: str) -> str:
    """Return ``text`` indented when it is JSON, else unchanged."""
    try:
        return json.dumps(load_json(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text


def _new_messages(messages: tuple[ChatMessage, ...], shown_calls: frozenset[str]) -> tuple[ChatMessage, ...]:
    rest = messages[1:] if messages and messages[0].role == "assistant" else messages
    new_messages: list[ChatMessage] = []
    for message in rest:
        parts = tuple(
            part for part in message.parts if part.kind != "tool_call_response" or part.call_id not in shown_calls
        )
        if parts:
            new_messages.append(ChatMessage(message.role, parts))
    return tuple(new_messages)


def _message(item: Any) -> ChatMessage:
    if not isinstance(item, dict):
        return ChatMessage("raw", (MessagePart("raw", _as_text(item)),))
    fields = cast("dict[str, Any]", item)
    role = str(fields.get("role", "raw"))
    parts = fields.get("parts")
    if not _is_list(parts):
        return ChatMessage(role, (MessagePart("raw", _as_text(fields)),))
    return ChatMessage(role, tuple(_part(part) for part in parts))


def _part(item: Any) -> MessagePart:
    if not isinstance(item, dict):
        return MessagePart("raw", _as_text(item))
    fields = cast("dict[str, Any]", item)
    match fields.get("type"):
        case "text":
            return MessagePart("text", _as_text(fields.get("content", "")))
        case "reasoning":
            return MessagePart("reasoning", _as_text(fields.get("content", "")))
        case "tool_call":
            return MessagePart(
                "tool_call",
                _as_text(fields.get("arguments", "")),
                name=str(fields.get("name", "")),
                call_id=str(fields.get("id") or ""),
            )
        case "tool_call_response":
            content = fields.get("response", fields.get("result", ""))
            name, call_id = str(fields.get("name") or ""), str(fields.get("id") or "")
            return MessagePart("tool_call_response", _as_text(content), name=name, call_id=call_id)
        case _:
            return MessagePart("raw", _as_text(fields))


def _tool_result(item: Any) -> ToolResult:
    if not isinstance(item, dict):
        return ToolResult("", "", is_error=False, error_type="", content=_as_text(item), duration_ns=0)
    fields = cast("dict[str, Any]", item)
    nanoseconds = fields.get("duration_ns")
    return ToolResult(
        call_id=str(fields.get("tool_call_id") or ""),
        name=str(fields.get("name") or ""),
        is_error=fields.get("status") == "error",
        error_type=str(fields.get("error_type") or ""),
        content=_as_text(fields.get("content", "")),
        duration_ns=nanoseconds if isinstance(nanoseconds, int) else 0,
    )


def _is_list(value: object) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
