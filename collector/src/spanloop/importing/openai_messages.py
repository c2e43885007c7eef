"""Conversations as others than OpenAI spell them → OpenAI's messages.

Anthropic's blocks (``tool_use``, ``tool_result``, ``system`` beside the messages) and ShareGPT's turns (``from`` and
``value``, with ``function_call`` and ``observation``). Invariant: what is in OpenAI's form comes back as it is, and
nothing is dropped: what is not known is left for ``conversations`` to refuse.
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
"""ShareGPT's ``from`` → role; another one stays, and is refused."""


def to_openai_messages(listed: Sequence[object], line: Mapping[str, object]) -> list[object]:
    """OpenAI's messages.

    Args:
        listed: The messages of ``line``.
        line: What stands beside them may be the system prompt.
    """
    found: list[object] = []
    for number, item in enumerate(listed):
        if not isinstance(item, dict):
            found.append(item)
            continue
        fields = cast("Fields", item)
        if "from" in fields and "role" not in fields:
            fields = _convert_sharegpt_turn(fields, number, found)
        found += _convert_anthropic_blocks(fields)
    system = line.get("system")
    if system and not any(_role(item) in {"system", "developer"} for item in found):
        found.insert(0, {"role": "system", "content": system})
    return found


def _role(item: object) -> object:
    return cast("Fields", item).get("role") if isinstance(item, dict) else None


def _convert_sharegpt_turn(turn: Fields, number: int, before: Sequence[object]) -> Fields:
    said, value = turn["from"], turn.get("value")
    role = _SHAREGPT_ROLES.get(said, said) if isinstance(said, str) else said
    rest = {key: turn[key] for key in turn if key not in {"from", "value"}}
    if said == "function_call":
        call = _object(value)
        if call is not None:
            return {
                "role": role,
                "tool_calls": [{"id": f"turn-{number}", "type": "function", "function": call}],
                **rest,
            }
    if role == "tool":
        calls = cast("Fields", before[-1]).get("tool_calls") if before and _role(before[-1]) == "assistant" else None
        if isinstance(calls, list) and calls:
            rest["tool_call_id"] = cast("Fields", calls[0]).get("id")
    return {"role": role, "content": value, **rest}


def _object(value: object) -> Fields | None:
    if isinstance(value, str):
        try:
            value = cast("object", json.loads(value))
        except ValueError:
            return None
    fields = cast("Fields", value) if isinstance(value, dict) else {}
    return fields if isinstance(fields.get("name"), str) else None


def _convert_anthropic_blocks(fields: Fields) -> list[object]:
    """One message, or several where it holds answers of tools."""
    content = fields.get("content")
    if not isinstance(content, list):
        return [fields]
    blocks = cast("list[object]", content)
    kinds = [cast("Fields", block).get("type") if isinstance(block, dict) else None for block in blocks]
    if not {"tool_use", "tool_result"} & set(kinds):
        return [fields]
    rest = [block for block, kind in zip(blocks, kinds, strict=True) if kind not in {"tool_use", "tool_result"}]
    found: list[object] = []
    calls: list[object] = list(cast("list[object]", fields.get("tool_calls") or []))
    for block, kind in zip(blocks, kinds, strict=True):
        one = cast("Fields", block) if isinstance(block, dict) else {}
        if kind == "tool_use":
            calls.append({"id": one.get("id"), "function": {"name": one.get("name"), "arguments": one.get("input")}})
        elif kind == "tool_result":
            failed = {"is_error": True} if one.get("is_error") is True else {}
            answer: Fields = {"role": "tool", "tool_call_id": one.get("tool_use_id"), "content": one.get("content")}
            found.append(answer | failed)
    if rest or calls or not found:
        found.append({**fields, "content": rest, **({"tool_calls": calls} if calls else {})})
    return found


def find_reward(line: Mapping[str, object]) -> object:
    """``reward``, at the top, else in ``info`` or ``reward_info``; None without one."""
    if line.get("reward") is not None:
        return line["reward"]
    for key in REWARD_OBJECTS:
        inner = line.get(key)
        if isinstance(inner, dict) and cast("Fields", inner).get("reward") is not None:
            return cast("Fields", inner)["reward"]
    return None


REWARD_OBJECTS: Final = ("info", "reward_info")
"""Objects beside the messages that may hold the reward."""


def without_reward(line: Mapping[str, object]) -> Fields:
    """What a line is told by: all of it but its reward, wherever that stands."""
    found = {key: line[key] for key in line if key != "reward"}
    for key in REWARD_OBJECTS:
        if isinstance(found.get(key), dict):
            found[key] = {name: value for name, value in cast("Fields", found[key]).items() if name != "reward"}
    return found
