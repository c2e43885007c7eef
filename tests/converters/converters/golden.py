"""What a conversion gives, as text that can be read in a diff: states only as far as they are new, ids as they are."""

import json
from typing import Any

import polars as pl

from spanloop.converters import Converted

Row = dict[str, Any]

_LEFT_OUT = {
    "episodes": {"revision", "converter_version", "reward_breakdown", "started_at", "duration_ns", "marks"},
    "transitions": {"revision", "reward_breakdown", "started_at", "duration_ns", "next_state", "tools"},
    "failures": {"revision", "failure_id", "occurred_at", "evidence"},
}
"""Columns that say nothing about the reading of spans, or that others say already."""

_JSON = ("state", "tools", "action", "tool_results")


def as_golden(converted: Converted) -> str:
    """Episodes with their steps and failures, then everything that was rejected; one value a line."""
    episodes: list[Row] = []
    for episode in converted.episodes.sort("started_at", "episode_id").iter_rows(named=True):
        of_episode = pl.col("episode_id") == episode["episode_id"]
        episodes.append(
            {
                **_kept(episode, "episodes"),
                "steps": _steps(converted.transitions.filter(of_episode).sort("step")),
                "failures": [
                    _kept(row, "failures")
                    for row in converted.failures.filter(of_episode).sort("failure_id").iter_rows(named=True)
                ],
            }
        )
    rejected = converted.rejected.sort("reason", "trace_id", "span_id", "detail").rows()
    found = {"episodes": episodes, "rejected": [" ".join(row) for row in rejected]}
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


def _steps(transitions: pl.DataFrame) -> list[Row]:
    found: list[Row] = []
    seen: list[Any] = []
    tools: list[Any] = []
    for row in transitions.iter_rows(named=True):
        step = {name: json.loads(value) if name in _JSON else value for name, value in row.items()}
        state = step.pop("state")
        common = next((n for n, pair in enumerate(zip(seen, state, strict=False)) if pair[0] != pair[1]), None)
        common = min(len(seen), len(state)) if common is None else common
        seen = state
        found.append(
            {
                **_kept(step, "transitions"),
                "tools": "as before" if step["tools"] == tools and tools else step["tools"],
                "state": {"messages_as_before": common, "new": state[common:]},
            }
        )
        tools = step["tools"]
    return found


def _kept(row: Row, table: str) -> Row:
    """The row without what is left out, and without what is empty."""
    kept = {name: value for name, value in row.items() if name not in _LEFT_OUT[table]}
    return {name: value for name, value in kept.items() if value not in (None, "", [], {}, 0)}
