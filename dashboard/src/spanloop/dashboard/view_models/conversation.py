"""Transitions as a conversation: canonical message JSON in, turns out.

Invariant: text that is not canonical JSON is shown as it is, never dropped: a page must show what the store holds,
most of all when it is broken.
"""

import json
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, Literal, TypeGuard, cast

PartKind = Literal["text", "reasoning", "tool_call", "tool_call_response", "raw"]


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a message."""

    kind: PartKind
    content: str
    """The text; for a tool call its arguments, for a tool's response what it returned, as text or JSON."""
    name: str = ""
    """Of the tool, for a tool call."""
    call_id: str = ""


@dataclass(frozen=True, slots=True)
class Message:
    """One message as the policy saw or wrote it."""

    role: str
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What one tool call of an action came to."""

    call_id: str
    name: str
    is_error: bool
    error_type: str
    content: str
    duration_ns: int


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One transition's messages, as the store holds them."""

    step: int
    agent_name: str
    state: str
    action: str
    tool_results: str


@dataclass(frozen=True, slots=True)
class Turn:
    """One step of the conversation."""

    step: int
    agent_name: str
    is_restart: bool
    """The state does not continue the agent's previous step: the whole of it is shown."""
    new_messages: tuple[Message, ...]
    """What the policy saw that the previous turn did not show yet."""
    action: Message
    tool_results: tuple[ToolResult, ...]


@dataclass(frozen=True, slots=True)
class _Seen:
    """What an earlier turn showed."""

    state: tuple[Message, ...]
    call_ids: frozenset[str]
    """Tool calls whose results it showed."""


def parse_messages(text: str) -> tuple[Message, ...]:
    """The messages of a state; anything that is not a list of messages comes back as one raw message."""
    if not text:
        return ()
    try:
        loaded: Any = json.loads(text)
    except ValueError:
        return (Message("raw", (Part("raw", text),)),)
    items = loaded if _is_list(loaded) else [loaded]
    return tuple(_message(item) for item in items)


def parse_action(text: str) -> Message:
    """The one assistant message of an action."""
    found = parse_messages(text)
    return found[0] if found else Message("assistant", ())


def parse_tool_results(text: str) -> tuple[ToolResult, ...]:
    """The tool results of an action; what is no result object becomes an unnamed one with the text as content."""
    if not text:
        return ()
    try:
        loaded: Any = json.loads(text)
    except ValueError:
        return (ToolResult("", "", is_error=False, error_type="", content=text, duration_ns=0),)
    items = loaded if _is_list(loaded) else [loaded]
    return tuple(_tool_result(item) for item in items)


def conversation(steps: list[StepRecord]) -> list[Turn]:
    """Turns that show each message once: a state that extends an earlier state of its agent shows only the rest.

    The newest earlier state that fits is taken, so that a sub-agent between two steps does not make the outer
    conversation begin again. The action and the tool responses that the earlier turn showed are left out of the rest.
    """
    turns: list[Turn] = []
    earlier: defaultdict[str, list[_Seen]] = defaultdict(list)
    for record in steps:
        state = parse_messages(record.state)
        results = parse_tool_results(record.tool_results)
        seen = earlier[record.agent_name]
        before = next((past for past in reversed(seen) if past.state and state[: len(past.state)] == past.state), None)
        turns.append(
            Turn(
                step=record.step,
                agent_name=record.agent_name,
                is_restart=bool(seen) and before is None,
                new_messages=_unseen(state[len(before.state) :], before.call_ids) if before else state,
                action=parse_action(record.action),
                tool_results=results,
            )
        )
        seen.append(_Seen(state, frozenset(result.call_id for result in results if result.call_id)))
    return turns


def pretty_json(text: str) -> str:
    """``text`` indented when it is JSON, else as it is."""
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except ValueError:
        return text


def _unseen(messages: tuple[Message, ...], shown_calls: frozenset[str]) -> tuple[Message, ...]:
    rest = messages[1:] if messages and messages[0].role == "assistant" else messages
    kept: list[Message] = []
    for message in rest:
        parts = tuple(
            part for part in message.parts if part.kind != "tool_call_response" or part.call_id not in shown_calls
        )
        if parts:
            kept.append(Message(message.role, parts))
    return tuple(kept)


def _message(item: Any) -> Message:
    if not isinstance(item, dict):
        return Message("raw", (Part("raw", _as_text(item)),))
    fields = cast("dict[str, Any]", item)
    role = str(fields.get("role", "raw"))
    parts = fields.get("parts")
    if not _is_list(parts):
        return Message(role, (Part("raw", _as_text(fields)),))
    return Message(role, tuple(_part(part) for part in parts))


def _part(item: Any) -> Part:
    if not isinstance(item, dict):
        return Part("raw", _as_text(item))
    fields = cast("dict[str, Any]", item)
    match fields.get("type"):
        case "text":
            return Part("text", _as_text(fields.get("content", "")))
        case "reasoning":
            return Part("reasoning", _as_text(fields.get("content", "")))
        case "tool_call":
            return Part(
                "tool_call",
                _as_text(fields.get("arguments", "")),
                name=str(fields.get("name", "")),
                call_id=str(fields.get("id") or ""),
            )
        case "tool_call_response":
            content = fields.get("response", fields.get("result", ""))
            return Part("tool_call_response", _as_text(content), call_id=str(fields.get("id") or ""))
        case _:
            return Part("raw", _as_text(fields))


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
