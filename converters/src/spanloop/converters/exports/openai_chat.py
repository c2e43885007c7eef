"""Conversations for OpenAI's supervised fine-tuning: one line for each conversation, not for each step.

A step whose conversation another one carries on is part of that one's line. Every accepted action is trained on in
exactly one line (``weight`` 1); other answers of the assistant are context (``weight`` 0).
"""

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, cast

import polars as pl

from spanloop.messages import dump

from .base import ExportOptions, Kind, Made, Source
from .conversation import ChatConversation, Row, Turn, chat_turns, conversations

if TYPE_CHECKING:
    from .chat import ChatMessage


def _make(rows: pl.DataFrame, options: ExportOptions) -> Made:
    return chat_lines(rows, options, _line)


def chat_lines(rows: pl.DataFrame, options: ExportOptions, line: Callable[[ChatConversation], str]) -> Made:
    """Return a line for each conversation of the episodes that ``options`` take.

    Args:
        rows: Whole episodes.
        options: ``min_reward``.
        line: Makes the line of a conversation.
    """
    rejected: Counter[str] = Counter()
    episodes: dict[str, list[Turn]] = defaultdict(list)
    for _, turn in chat_turns(rows.sort("episode_id", "step"), lambda row: _refused(row, options), rejected):
        episodes[turn.episode_id].append(turn)
    lines = [line(conversation) for turns in episodes.values() for conversation in conversations(turns)]
    return Made(lines, sum(map(len, episodes.values())), rejected)


def _refused(row: Row, options: ExportOptions) -> str:
    if options.min_reward is None:
        return "" if row["outcome"] == "success" else "not_successful"
    reward = row["reward"]
    return "reward_too_low" if reward is None or float(str(reward)) < options.min_reward else ""


def _line(conversation: ChatConversation) -> str:
    messages: list[ChatMessage] = []
    steps = iter(conversation.steps)
    for message in conversation.messages:
        weight = {"weight": int(next(steps) is not None)} if message["role"] == "assistant" else {}
        messages.append(message | weight)
    line: dict[str, object] = {"messages": messages}
    if conversation.tools:
        parallel = any(len(cast("list[object]", message.get("tool_calls", ()))) > 1 for message in messages)
        line |= {"tools": list(conversation.tools), "parallel_tool_calls": parallel}
    return dump(line)


OPENAI: Final = Kind(Source.TRANSITIONS, "jsonl", _make)
