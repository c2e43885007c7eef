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
    key: str = ""
    """The app's episode id."""
    prompt: str = ""
    """The first message; empty stores none."""

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
        "episode_key": attempt.key,
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
                **({"state": _first_message(attempt.prompt)} if attempt.prompt else {}),
                "tool_results": json.dumps(results),
            }
        )
    return rows


def _first_message(text: str) -> str:
    return json.dumps([{"role": "user", "parts": [{"type": "text", "content": text}]}])


class RunAttempt(NamedTuple):
    """One attempt of the task runner."""

    run: str
    task: str
    model: str
    reward: float | None = None
    state: str = "finished"
    number: int = 1
    key: str = ""
    """Its episode's key; empty when it left no span."""
    digest: str = ""
    interrupted: tuple[str, ...] = ()


def seed_run(store: Store, attempts: Sequence[RunAttempt]) -> None:
    """Insert rows of the task runner."""
    rows: list[dict[str, object]] = [
        {
            "run_id": each.run,
            "task_id": each.task,
            "task_digest": each.digest or f"digest of {each.task}",
            "attempt": each.number,
            "model": each.model,
            "episode_id": each.key or f"no spans {each.run} {each.task} {each.number}",
            "state": each.state,
            "is_success": None if each.reward is None else each.reward >= 0.5,
            "reward": each.reward,
            "started_at": STARTED_AT,
            "duration_ms": 2_000,
            "interrupted_episode_ids": list(each.interrupted),
            "revision": 1,
        }
        for each in attempts
    ]
    insert(store, "attempts", rows)


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
