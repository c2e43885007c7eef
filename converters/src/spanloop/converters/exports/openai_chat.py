"""Conversations for OpenAI's supervised fine-tuning: one line for each conversation, not for each step.

A step whose conversation another one carries on is part of that one's line. Every accepted action is trained on in
exactly one line (``weight`` 1); other answers of the assistant are context (``weight`` 0).
"""

from collections import Counter
from typing import Final

import polars as pl

from ..messages import dump
from .base import ExportOptions, Kind, Made, Source
from .chat import NotChatError, chat, tool_definitions
from .conversation import Turn, TurnReader, has_action

COLUMNS: Final = ("episode_id", "step", "state", "action", "tools", "reward", "is_trainable", "untrainable_reason")


def _make(rows: pl.DataFrame, options: ExportOptions) -> Made:
    reader = TurnReader()
    rejected: Counter[str] = Counter()
    lines: list[str] = []
    accepted = 0
    ordered = rows.select(*COLUMNS, "outcome").sort("episode_id", "step")
    for _, episode in ordered.group_by("episode_id", maintain_order=True):
        turns: list[Turn] = []
        for row in episode.iter_rows(named=True):
            reason = _refused(row, options)
            if not reason:
                turn = reader.read(row)
                try:
                    chat(turn.messages)
                    tool_definitions(turn.tools)
                except NotChatError as error:
                    reason = str(error)
                else:
                    turns.append(turn)
            if reason:
                rejected[reason] += 1
        accepted += len(turns)
        lines += _lines(turns)
    return Made(lines, accepted, rejected)


def _refused(row: dict[str, object], options: ExportOptions) -> str:
    if not row["is_trainable"]:
        return str(row["untrainable_reason"])
    reward = row["reward"]
    if options.min_reward is None and row["outcome"] != "success":
        return "not_successful"
    if options.min_reward is not None and (reward is None or float(str(reward)) < options.min_reward):
        return "reward_too_low"
    return "" if has_action(str(row["action"])) else "empty_action"


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


OPENAI: Final = Kind(
    Source.TRANSITIONS,
    "jsonl",
    _make,
)
