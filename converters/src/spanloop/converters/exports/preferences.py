"""Preference pairs: two actions from the same state of one task, of which one led to the better reward.

Equal actions from one state are one, with the mean of their rewards; each state gives one pair at most, the best
against the worst. The lines are what TRL calls conversational preference data with an explicit prompt.
"""

from collections import Counter, defaultdict
from math import fsum
from typing import Final

import polars as pl

from spanloop.messages import dump

from .base import ExportOptions, Kind, Made, Source
from .chat import chat, tool_definitions
from .conversation import Row, Turn, chat_turns


class _Action:
    """An action from a state, and every time that it was taken."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []

    @property
    def reward(self) -> float:
        """The mean."""
        return fsum(turn.reward or 0.0 for turn in self.turns) / len(self.turns)


def _make(rows: pl.DataFrame, options: ExportOptions) -> Made:
    rejected: Counter[str] = Counter()
    states: dict[tuple[str, bytes], dict[bytes, _Action]] = defaultdict(lambda: defaultdict(_Action))
    for row, turn in chat_turns(rows.sort("group_id", "episode_id", "step"), _refused, rejected):
        states[str(row["group_id"]), turn.state_digest][turn.action.digest].turns.append(turn)
    lines: list[str] = []
    accepted = 0
    for actions in states.values():
        ordered = sorted(
            actions.values(), key=lambda each: (-each.reward, each.turns[0].episode_id, each.turns[0].step)
        )
        count = sum(len(action.turns) for action in ordered)
        best, worst = ordered[0], ordered[-1]
        if len(ordered) < 2:
            rejected["no_alternative"] += count
        elif best.reward - worst.reward <= options.margin:
            rejected["no_margin"] += count
        else:
            lines.append(_line(best, worst))
            accepted += len(best.turns) + len(worst.turns)
            rejected["between"] += count - len(best.turns) - len(worst.turns)
    return Made(lines, accepted, +rejected)


def _refused(row: Row) -> str:
    return "no_reward" if row["reward"] is None else ""


def _line(best: _Action, worst: _Action) -> str:
    one, other = best.turns[0], worst.turns[0]
    line: dict[str, object] = {
        "prompt": chat(one.messages[:-1]),
        "chosen": chat(one.messages)[-1:],
        "rejected": chat(other.messages)[-1:],
        "score_chosen": best.reward,
        "score_rejected": worst.reward,
    }
    if tools := tool_definitions(one.tools):
        line["tools"] = tools
    return dump(line)


PREFERENCES: Final = Kind(Source.TRANSITIONS, "jsonl", _make)
