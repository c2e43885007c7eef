"""Conversations as ShareGPT's turns, for LLaMA-Factory, Axolotl and others: the conversations of ``openai``.

The format has one tool call a turn and no ids, so parallel calls are turns of their own, each before its result.
"""

import json
from typing import Final, cast

import polars as pl

from spanloop.messages import dump, parse_json_or_none

from .base import ExportOptions, Kind, Made, Source
from .chat import ChatMessage
from .conversation import ChatConversation
from .openai_chat import chat_lines

_SPEAKERS: Final = {"system": "system", "user": "human", "assistant": "gpt"}


def _make(rows: pl.DataFrame, options: ExportOptions) -> Made:
    return chat_lines(rows, options, _line)


def _line(conversation: ChatConversation) -> str:
    messages = list(conversation.messages)
    results = {str(message["tool_call_id"]): message for message in messages if message["role"] == "tool"}
    system = "\n\n".join(str(message["content"]) for message in messages if message["role"] == "system")
    turns = [turn for message in messages for turn in _turns(message, results)]
    line: dict[str, object] = {"conversations": turns}
    if system:
        line["system"] = system
    if conversation.tools:
        line["tools"] = json.dumps([tool["function"] for tool in conversation.tools], ensure_ascii=False)
    return dump(line)


def _turns(message: ChatMessage, results: dict[str, ChatMessage]) -> list[dict[str, object]]:
    """Return the turns of a message: its text, then each tool call with its result."""
    role, content = str(message["role"]), message["content"]
    turns: list[dict[str, object]] = []
    if role in {"user", "assistant"} and (content or "tool_calls" not in message):
        turns.append({"from": _SPEAKERS[role], "value": content})
    for call in cast("list[dict[str, object]]", message.get("tool_calls", ())):
        function = cast("dict[str, str]", call["function"])
        value = {"name": function["name"], "arguments": parse_json_or_none(function["arguments"])}
        turns.append({"from": "function_call", "value": dump(value)})
        if (result := results.get(str(call["id"]))) is not None:
            turns.append({"from": "observation", "value": result["content"]})
    return turns


SHAREGPT: Final = Kind(Source.TRANSITIONS, "jsonl", _make)
