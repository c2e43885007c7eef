"""Convert conversations in Anthropic's and ShareGPT's formats to OpenAI's messages.

Anthropic: blocks (``tool_use``, ``tool_result``), and ``system`` beside the messages. ShareGPT: turns (``from`` and
``value``, with ``function_call`` and ``observation``). Invariant: messages in OpenAI's format stay unchanged, and
nothing is dropped: `spanloop.importing.conversations` rejects unknown content.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Final, cast

Fields = dict[str, object]

_SHAREGPT_ROLES: Final = {
    **dict.fromkeys(("human", "user"), "user"),
    **dict.fromkeys(("gpt", "chatgpt", "bing", "bard", "assistant", "model", "function_call"), "assistant"),
    **dict.fromkeys(("observation", "tool", "function_response"), "tool"),
    "system": "system",
}
"""ShareGPT's ``from`` → role; other values stay and are rejected later."""


def to_openai_messages(items: Sequence[object], line: Mapping[str, object]) -> list[object]:
    """Convert a line's messages to OpenAI's messages.

    Args:
        items: The messages of ``line``.
        line: The line, which may hold the system prompt beside the messages.
    """
    messages: list[object] = []
    for number, item in enumerate(items):
        if not isinstance(item, dict):
            messages.append(item)
            continue
        fields = cast("Fields", item)
        if "from" in fields and "role" not in fields:
            fields = _convert_sharegpt_turn(fields, number, messages)
        messages += _convert_anthropic_blocks(fields)
    system = line.get("system")
    if system and not any(_role(item) in {"system", "developer"} for item in messages):
        messages.insert(0, {"role": "system", "content": system})
    return messages


def _role(item: object) -> object:
    return cast("Fields", item).get("role") if isinstance(item, dict) else None


def _convert_sharegpt_turn(turn: Fields, number: int, before: Sequence[object]) -> Fields:
    speaker, value = turn["from"], turn.get("value")
    role = _SHAREGPT_ROLES.get(speaker, speaker) if isinstance(speaker, str) else speaker
    rest = {key: turn[key] for key in turn if key not in {"from", "value"}}
    if speaker == "function_call":
        function = _read_function(value)
        if function is not None:
            return {
                "role": role,
                "tool_calls": [{"id": f"turn-{number}", "type": "function", "function": function}],
                **rest,
            }
    if role == "tool":
        calls = cast("Fields", before[-1]).get("tool_calls") if before and _role(before[-1]) == "assistant" else None
        if isinstance(calls, list) and calls:
            rest["tool_call_id"] = cast("Fields", calls[0]).get("id")
    return {"role": role, "content": value, **rest}


def _read_function(value: object) -> Fields | None:
    if isinstance(value, str):
        try:
            value = cast("object", json.loads(value))
        except ValueError:
            return None
    fields = cast("Fields", value) if isinstance(value, dict) else {}
    return fields if isinstance(fields.get("name"), str) else None


def _convert_anthropic_blocks(fields: Fields) -> list[object]:
    """Return the message, split into several if it holds tool results."""
    content = fields.get("content")
    if not isinstance(content, list):
        return [fields]
    blocks = cast("list[object]", content)
    kinds = [cast("Fields", block).get("type") if isinstance(block, dict) else None for block in blocks]
    if not {"tool_use", "tool_result"} & set(kinds):
        return [fields]
    rest = [block for block, kind in zip(blocks, kinds, strict=True) if kind not in {"tool_use", "tool_result"}]
    messages: list[object] = []
    calls: list[object] = list(cast("list[object]", fields.get("tool_calls") or []))
    for item, kind in zip(blocks, kinds, strict=True):
        tool = cast("Fields", item) if isinstance(item, dict) else {}
        if kind == "tool_use":
            calls.append({"id": tool.get("id"), "function": {"name": tool.get("name"), "arguments": tool.get("input")}})
        elif kind == "tool_result":
            failed = {"is_error": True} if tool.get("is_error") is True else {}
            result: Fields = {"role": "tool", "tool_call_id": tool.get("tool_use_id"), "content": tool.get("content")}
            messages.append(result | failed)
    if rest or calls or not messages:
        messages.append({**fields, "content": rest, **({"tool_calls": calls} if calls else {})})
    return messages


def find_reward(line: Mapping[str, object]) -> object:
    """Return the line's ``reward``, else the one in ``info`` or ``reward_info``, else None."""
    if line.get("reward") is not None:
        return line["reward"]
    for key in REWARD_OBJECTS:
        inner = line.get(key)
        if isinstance(inner, dict) and cast("Fields", inner).get("reward") is not None:
            return cast("Fields", inner)["reward"]
    return None


REWARD_OBJECTS: Final = ("info", "reward_info")
"""Keys of the objects beside the messages that may hold the reward."""


def without_reward(line: Mapping[str, object]) -> Fields:
    """Return a copy of the line without its reward; it identifies the conversation."""
    copy = {key: line[key] for key in line if key != "reward"}
    for key in REWARD_OBJECTS:
        if isinstance(copy.get(key), dict):
            copy[key] = {name: value for name, value in cast("Fields", copy[key]).items() if name != "reward"}
    return copy
