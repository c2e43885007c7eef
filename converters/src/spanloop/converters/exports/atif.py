"""Episodes as ATIF trajectories, one a line.

Each message is a step; a step of the policy has the results of its tool calls, its tokens and their log-probabilities.
Where the policy saw something else than all the messages before, the step ``begins`` anew. Failed and untrainable steps
are among them: a trajectory says what happened.
"""

from collections import Counter
from datetime import UTC, datetime
from typing import Any, Final

import polars as pl

from spanloop.messages import MalformedMessagesError, dump, parse_json
from spanloop.messages.json_values import as_fields, as_list
from spanloop.semconv import atif

from .base import ExportOptions, Kind, Made, Source
from .conversation import MALFORMED

_STEP_EXTRA: Final = (
    *("trace_id", "span_id", "response_id", "policy_version", "reward", "duration_ns"),
    *("is_trainable", "untrainable_reason", "error_class", "fault_owner", "is_terminated", "is_truncated"),
)
"""Columns of a step that ATIF has no field for; those that are empty are left out."""
_ALWAYS: Final = ("agent_name", "finish_reason")
"""Columns of a step that are stated also where they are empty, because a reader would assume another value."""
_EPISODE_EXTRA: Final = ("episode_id", "revision", "task_id", "group_id", "outcome")


def _make(rows: pl.DataFrame, options: ExportOptions) -> Made:
    del options
    rejected: Counter[str] = Counter()
    lines: list[str] = []
    accepted = 0
    for _, episode in rows.sort("episode_id", "step").group_by("episode_id", maintain_order=True):
        try:
            lines.append(dump(trajectory(episode.to_dicts())))
        except MalformedMessagesError:
            rejected[MALFORMED] += episode.height
        else:
            accepted += episode.height
    return Made(lines, accepted, rejected)


def trajectory(rows: list[dict[str, Any]]) -> atif.Json:
    """Return the trajectory of an episode.

    Args:
        rows: Its rows of the query ``export_transitions``, in the order of steps.

    Raises:
        MalformedMessagesError: Stored messages cannot be read.
    """
    first = rows[0]
    steps = _Steps()
    for row in rows:
        steps.add(row, first)
    agent = {"name": first["agent_name"] or "agent", "version": first["policy_version"] or "unknown"}
    if first["model"]:
        agent["model_name"] = first["model"]
    if tools := as_list(parse_json(first["tools"] or "[]")):
        agent["tool_definitions"] = [{"type": "function", "function": tool} for tool in tools]
    final = {
        "total_prompt_tokens": sum(row["input_tokens"] for row in rows),
        "total_completion_tokens": sum(row["output_tokens"] for row in rows),
        "total_steps": len(steps.steps),
    }
    document = {
        "schema_version": atif.SCHEMA_VERSION,
        "session_id": first["episode_id"],
        "agent": agent,
        "steps": [{"step_id": number, **step} for number, step in enumerate(steps.steps, start=1)],
        "final_metrics": final,
    }
    return atif.with_extra(document, _filled(first, _EPISODE_EXTRA) | {"agent_name": first["agent_name"]})


class _Steps:
    """The steps of a trajectory, and the messages that the policy would see next."""

    def __init__(self) -> None:
        self.steps: list[atif.Json] = []
        self._seen: list[str] = []
        self._open: tuple[atif.Json, list[atif.Json]] | None = None
        """The newest step's message, and the results of its calls so far."""

    def add(self, row: dict[str, Any], first: dict[str, Any]) -> None:
        """Add the messages that a row's state has more than the one before, and its action."""
        state = [dict(as_fields(message)) for message in as_list(parse_json(row["state"] or "[]"))]
        texts = [dump(message) for message in state]
        begins = texts[: len(self._seen)] != self._seen
        for number, message in enumerate(state if begins else state[len(self._seen) :]):
            self._message(message, {atif.BEGINS: True} if begins and number == 0 else {})
        self._seen = texts
        action = dict(as_fields(parse_json(row["action"])))
        extra = {name: row[name] for name in _ALWAYS} | _filled(row, _STEP_EXTRA) | {"step": row["step"]}
        # Later states repeat the message without its reason.
        if "finish_reason" in action:
            extra["message_finish_reason"] = action.pop("finish_reason")
        if begins and not state:
            extra[atif.BEGINS] = True
        if results := as_list(parse_json(row["tool_results"] or "[]")):
            extra["tool_results"] = results
        if row["tools"] != first["tools"]:
            extra["tools"] = parse_json(row["tools"] or "[]")
        metrics = {
            "prompt_tokens": row["input_tokens"],
            "completion_tokens": row["output_tokens"],
            "prompt_token_ids": row["prompt_token_ids"],
            "completion_token_ids": row["response_token_ids"],
            "logprobs": row["logprobs"],
        }
        fields: atif.Json = {"timestamp": _iso(row["started_at"])}
        if row["model"]:
            fields["model_name"] = row["model"]
        if shown := {name: value for name, value in metrics.items() if value}:
            fields["metrics"] = shown
        self._message(action, extra, fields)
        self._seen.append(dump(action))

    def _message(self, message: atif.Json, extra: atif.Json, fields: atif.Json | None = None) -> None:
        """Append a step, or a tool's result to the step that called it."""
        if message.get("role") == "tool" and self._open is not None and not extra:
            called, results = self._open
            results.append(message)
            newest = self.steps[-1]
            call_fields = {
                name: value for name, value in newest.items() if name in {"timestamp", "model_name", "metrics"}
            }
            facts = {name: value for name, value in atif.extra_of(newest).items() if name != atif.MESSAGES}
            self.steps[-1] = atif.with_extra({**atif.step_of(called, results), **call_fields}, facts)
            return
        if message.get("role") == "assistant" and fields is None:
            extra = extra | {"is_context": True}
        self._open = (message, []) if message.get("role") == "assistant" else None
        self.steps.append(atif.with_extra({**atif.step_of(message), **(fields or {})}, extra))


def _filled(row: dict[str, Any], names: tuple[str, ...]) -> atif.Json:
    return {name: row[name] for name in names if row[name] not in {None, ""}}


def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


ATIF: Final = Kind(Source.TRANSITIONS, "jsonl", _make)
