"""What was recorded of each task, read from the converted rows."""

import json
import re
from collections import defaultdict
from typing import Any, NamedTuple

from .recording import Recorded
from .scripted_model.script import TICKET

_ERROR_STATUS = frozenset({"Error", "STATUS_CODE_ERROR"})


class Result(NamedTuple):
    """The result of a tool call."""

    call_id: str
    name: str
    is_error: bool
    error_type: str
    span_id: str
    span_failed: bool
    """Whether the tool's span, or one right within it, says that the tool failed."""


class Step(NamedTuple):
    """A transition."""

    ticket: str
    episode: str
    number: int
    span_id: str
    agent: str
    state: str
    next_state: str
    calls: tuple[dict[str, Any], ...]
    """The tool calls of the action: `id`, `name`, `arguments`."""
    results: tuple[Result, ...]
    text: str
    problem: str
    """Why the step may not be trained on; empty where it may."""
    task_id: str
    reward: float | None


Tasks = dict[str, list[Step]]
"""Ticket → its steps, by episode and number."""


def read_tasks(recorded: Recorded) -> Tasks:
    """Group the transitions by the ticket that their messages name."""
    failed = {
        span_id
        for row in recorded.spans.iter_rows(named=True)
        for span_id in (row["SpanId"], row["ParentSpanId"])
        if row["StatusCode"] in _ERROR_STATUS or "error.type" in dict(row["SpanAttributes"])
    }
    tasks: Tasks = defaultdict(list)
    for row in recorded.transitions.iter_rows(named=True):
        step = _step(row, failed)
        tasks[step.ticket].append(step)
    return tasks


def _step(row: dict[str, Any], failed: set[str]) -> Step:
    match = re.search(TICKET, row["state"] or row["action"])
    action = json.loads(row["action"] or "{}")
    parts: list[dict[str, Any]] = action.get("parts") or []
    results = json.loads(row["tool_results"] or "[]")
    return Step(
        ticket=match[0] if match else "",
        episode=row["episode_id"],
        number=row["step"],
        span_id=row["span_id"],
        agent=row["agent_name"],
        state=row["state"],
        next_state=row["next_state"],
        calls=tuple(part for part in parts if part["type"] == "tool_call"),
        results=tuple(
            Result(
                call_id=result["tool_call_id"],
                name=result["name"],
                is_error=result["status"] == "error",
                error_type=result["error_type"],
                span_id=result["span_id"],
                span_failed=result["span_id"] in failed,
            )
            for result in results
        ),
        text=" ".join(str(part.get("content", "")) for part in parts if part["type"] == "text"),
        problem=row["untrainable_reason"],
        task_id=row["task_id"],
        reward=row["reward"],
    )
