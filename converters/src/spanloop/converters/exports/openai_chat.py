"""Conversations for OpenAI's supervised fine-tuning: one line for each conversation, not for each step.

A step whose conversation another one carries on is part of that one's line. Every accepted action is trained on in
exactly one line (``weight`` 1); other answers of the assistant are context (``weight`` 0).
"""

from collections import Counter, defaultdict
from typing import Final

import polars as pl

from ..messages import dump
from .base import ExportOptions, Kind, Made, Source
from .chat import chat, tool_definitions
from .conversation import Row, Turn, chat_turns


def _make(rows: pl.DataFrame, options: ExportOptions) -> Made:
    rejected: Counter[str] = Counter()
    episodes: dict[str, list[Turn]] = defaultdict(list)
    for _, turn in chat_turns(rows.sort("episode_id", "step"), lambda row: _refused(row, options), rejected):
        episodes[turn.episode_id].append(turn)
    lines = [line for turns in episodes.values() for line in _lines(turns)]
    return Made(lines, sum(map(len, episodes.values())), rejected)


def _refused(row: Row, options: ExportOptions) -> str:
    if options.min_reward is None:
        return "" if row["outcome"] == "success" else "not_successful"
    reward = row["reward"]
    return "reward_too_low" if reward is None or float(str(reward)) < options.min_reward else ""


def _lines(turns: list[Turn]) -> list[str]:
    carried_on = {digest for turn in turns for digest in turn.digests[:-1]}
    waiting = Counter(turn.digests[-1] for turn in turns)
    lines: list[str] = []
    for turn in turns:
        end = turn.digests[-1]
        if end in carried_on or not waiting[end]:
            continue
        lines.append(_line(turn, waiting))
    return lines


def _line(turn: Turn, waiting: Counter[bytes]) -> str:
    """One conversation; takes the actions that it trains on out of ``waiting``."""
    weights: list[int] = []
    for message, digest in zip(turn.messages, turn.digests, strict=True):
        if message.role == "assistant":
            weights.append(int(waiting[digest] > 0))
            waiting[digest] = 0
    plain = chat(turn.messages)
    mine = iter(weights)
    for said in plain:
        if said["role"] == "assistant":
            said["weight"] = next(mine)
    line: dict[str, object] = {"messages": plain}
    if tools := tool_definitions(turn.tools):
        line |= {"tools": tools, "parallel_tool_calls": any(len(m.tool_calls) > 1 for m in turn.messages)}
    return dump(line)


OPENAI: Final = Kind(Source.TRANSITIONS, "jsonl", _make)
