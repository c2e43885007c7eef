"""ATIF, the Agent Trajectory Interchange Format of Harbor: its steps, and OpenTelemetry's messages.

Invariant: ``messages_of(step_of(message, results))`` is ``[message, *results]``. What ATIF's own fields cannot say of a
message is under ``extra.spanloop``, so a file of another program needs none of it.
"""

import json
from collections.abc import Container, Mapping, Sequence
from typing import Any, Final, cast

SCHEMA_VERSION: Final = "ATIF-v1.6"
SCHEMA_PREFIX: Final = "ATIF-v"
EXTRA: Final = "spanloop"
"""Key in ``extra`` of a trajectory and of a step."""
MESSAGES: Final = "messages"
"""In a step's extra: its messages, where the step's own fields say less."""
BEGINS: Final = "begins"
"""In a step's extra: the model saw nothing of the steps before."""
AGENT: Final = "agent"
_SOURCES: Final = {"assistant": AGENT, "system": "system", "user": "user"}
_ROLES: Final = {source: role for role, source in _SOURCES.items()}

Json = dict[str, Any]


def step_of(message: Mapping[str, Any], results: Sequence[Mapping[str, Any]] = ()) -> Json:
    """Return a step of ATIF without its number.

    Args:
        message: A message with OpenTelemetry's parts.
        results: The messages with the results of its tool calls.
    """
    parts: list[Any] = list(message.get("parts") or [])
    step: Json = {
        "source": _SOURCES.get(str(message.get("role")), "user"),
        "message": "".join(str(part.get("content", "")) for part in _of(parts, "text")),
    }
    if reasoning := "".join(str(part.get("content", "")) for part in _of(parts, "reasoning")):
        step["reasoning_content"] = reasoning
    if calls := _of(parts, "tool_call"):
        step["tool_calls"] = [
            {
                "tool_call_id": str(call.get("id") or ""),
                "function_name": str(call.get("name") or ""),
                "arguments": call["arguments"] if isinstance(call.get("arguments"), dict) else {},
            }
            for call in calls
        ]
    if results:
        responses = [part for each in results for part in _of(each.get("parts") or [], "tool_call_response")]
        # a result refers to a call of its own step only
        called = {call["tool_call_id"] for call in step.get("tool_calls", ())}
        step["observation"] = {"results": [_result(part, called) for part in responses]}
    if messages_of(step) != [message, *results]:
        step["extra"] = {EXTRA: {MESSAGES: [dict(message), *map(dict, results)]}}
    return step


def messages_of(step: Mapping[str, Any]) -> list[Json]:
    """Return a step's message and those with the results of its tool calls, with OpenTelemetry's parts."""
    if (exact := extra_of(step).get(MESSAGES)) is not None:
        return list(exact)
    source = str(step.get("source"))
    parts: list[Json] = []
    if reasoning := step.get("reasoning_content"):
        parts.append({"type": "reasoning", "content": reasoning})
    parts += _contents(step.get("message"))
    parts += [
        {
            "type": "tool_call",
            "id": call.get("tool_call_id"),
            "name": call.get("function_name"),
            "arguments": call.get("arguments"),
        }
        for call in objects_of(step.get("tool_calls"))
    ]
    messages: list[Json] = [{"role": _ROLES.get(source, source), "parts": parts}]
    observation = cast("Json", step.get("observation") or {})
    for result in objects_of(observation.get("results")):
        contents = _contents(result.get("content"))
        is_text = len(contents) == 1 and contents[0]["type"] == "text"
        response = contents[0]["content"] if is_text else json.dumps(contents, ensure_ascii=False) if contents else ""
        if call_id := result.get("source_call_id"):
            part = {"type": "tool_call_response", "id": call_id, "response": response}
            messages.append({"role": "tool", "parts": [part]})
        else:
            # What no tool call asked for is what the environment tells the agent.
            messages.append({"role": "user", "parts": [{"type": "text", "content": response}]})
    return messages


def extra_of(value: Mapping[str, Any]) -> Json:
    """Return what spanloop wrote of a trajectory or a step beside ATIF's fields."""
    extra: Any = value.get("extra")
    content: Any = cast("Json", extra).get(EXTRA) if isinstance(extra, dict) else None
    return cast("Json", content) if isinstance(content, dict) else {}


def with_extra(value: Json, content: Mapping[str, Any]) -> Json:
    """Return a trajectory or a step with more beside ATIF's fields; empty content adds nothing."""
    return {**value, "extra": {EXTRA: {**extra_of(value), **content}}} if content else value


def _of(parts: Sequence[Any], kind: str) -> list[Json]:
    stored = [cast("Json", part) for part in parts if isinstance(part, dict)]
    return [part for part in stored if part.get("type") == kind]


def _result(part: Json, called: Container[str]) -> Json:
    response, call_id = part.get("response"), str(part.get("id") or "")
    text = response if isinstance(response, str) else json.dumps(response, ensure_ascii=False)
    return {"source_call_id": call_id if call_id and call_id in called else None, "content": text}


def _contents(content: Any) -> list[Json]:
    """Return the parts of a text, or of a list of ATIF's parts."""
    if isinstance(content, str):
        return [{"type": "text", "content": content}] if content else []
    return [
        {"type": "text", "content": part["text"]} if part.get("type") == "text" else dict(part)
        for part in objects_of(content)
    ]


def objects_of(value: Any) -> list[Json]:
    """Return the objects of a list; TypeError: a value is something else."""
    if not isinstance(value or [], list):
        raise TypeError(f"got {value!r:.60}, expected a list")
    items = cast("list[object]", value or [])
    if any(not isinstance(item, dict) for item in items):
        raise TypeError(f"got {items!r:.60}, expected a list of objects")
    return cast("list[Json]", items)
