"""Messages that instrumentors write apart or together, as the turns that an API has."""

from collections.abc import Iterable
from typing import cast

from .chat_forms import is_response
from .json_values import Fields, as_list


def split_answers(items: Iterable[Fields]) -> list[Fields]:
    """Messages whose calls and answers stand in one assistant message, taken apart; empty ones are left out."""
    split: list[Fields] = []
    for item in items:
        parts = as_list(item.get("parts"))
        if item.get("role") != "assistant" or (parts and not any(map(is_response, parts))):
            split.append(item)
            continue
        rest = {key: value for key, value in item.items() if key not in {"role", "parts"}}
        for part in parts:
            role = "tool" if is_response(part) else "assistant"
            if split and split[-1].get("_of") == id(item) and split[-1]["role"] == role:
                cast("list[object]", split[-1]["parts"]).append(part)
            else:
                extra = rest if role == "assistant" else {}
                split.append({"role": role, "parts": [part], **extra, "_of": id(item)})
    return [{key: item[key] for key in item if key != "_of"} if "_of" in item else item for item in split]


def joined_turns(items: Iterable[Fields]) -> list[Fields]:
    """``items`` with the model's words that follow each other as one message: a Responses API lists items."""
    turns: list[Fields] = []
    for item in items:
        if turns and item.get("role") == "assistant" == turns[-1].get("role"):
            turns[-1] = {**turns[-1], **item, "parts": [*as_list(turns[-1]["parts"]), *as_list(item["parts"])]}
        else:
            turns.append(item)
    return turns
