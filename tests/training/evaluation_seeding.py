"""Seed attempts at tasks by several policy versions, with tool calls and failures, as the pipeline stores them."""

import json
from collections.abc import Sequence
from typing import NamedTuple

from spanloop.store import Store

from .training_seeding import REVISION, STARTED_AT, episode_row, insert, transition_row


class Attempt(NamedTuple):
    """One attempt at a task."""

    task: str
    model: str
    reward: float | None
    tools: tuple[str, ...] = ("lookup",)
    """Called, in this order; ``!name`` fails."""
    errors: tuple[str, ...] = ()
    """Classes of unrecovered failures; the first decided the episode."""
    has_ended: bool = True
    number: int = 0
    other_model: str = ""
    """Acted in it too."""

    @property
    def episode_id(self) -> str:
        return f"{self.model}-{self.task}-{self.number}"


def seed_attempts(store: Store, attempts: Sequence[Attempt], *, revision: int = REVISION) -> None:
    """Insert their episodes, transitions and failures."""
    insert(store, "episodes", [_episode(each) | {"revision": revision} for each in attempts])
    insert(store, "transitions", [row | {"revision": revision} for each in attempts for row in _transitions(each)])
    if failures := [row | {"revision": revision} for each in attempts for row in _failures(each)]:
        insert(store, "failures", failures)


def _episode(attempt: Attempt) -> dict[str, object]:
    return episode_row(attempt.episode_id, attempt.task, attempt.number, attempt.reward) | {
        "policy_version": attempt.model,
        "is_terminated": attempt.has_ended,
        "is_truncated": not attempt.has_ended,
        "error_class": attempt.errors[0] if attempt.errors else "",
    }


def _transitions(attempt: Attempt) -> list[dict[str, object]]:
    def action(*names: str) -> str:
        parts: list[dict[str, object]] = [
            {"type": "tool_call", "id": name, "name": name, "arguments": {}} for name in names
        ]
        return json.dumps({"role": "assistant", "parts": [{"type": "text", "content": "…"}, *parts]})

    rows: list[dict[str, object]] = []
    for step, tool in enumerate((*attempt.tools, "")):
        name = tool.removeprefix("!")
        results = [{"tool_call_id": name, "name": name, "status": "error" if name != tool else "ok"}] if tool else []
        rows.append(
            transition_row(attempt.episode_id, attempt.task, step, {})
            | {
                "policy_version": attempt.other_model if step and attempt.other_model else attempt.model,
                "action": action(name) if tool else action(),
                "tool_results": json.dumps(results),
            }
        )
    return rows


def _failures(attempt: Attempt) -> list[dict[str, object]]:
    return [
        {
            "failure_id": f"{attempt.episode_id}/{number}",
            "episode_id": attempt.episode_id,
            "task_id": attempt.task,
            "policy_version": attempt.model,
            "error_class": error_class.removeprefix("~"),
            "is_recovered": error_class.startswith("~"),
            "occurred_at": STARTED_AT,
        }
        for number, error_class in enumerate(attempt.errors)
    ]
