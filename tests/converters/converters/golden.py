"""Text of a conversion that can be read in a diff, with the columns that a dialect decides.

Invariant: ``DECIDED_BY_A_DIALECT`` names every column of the golden files. All others follow from these, or from the
rows of spans; ``test_derived_columns`` derives them for every recording.
"""

import json
from typing import Any, Final

import polars as pl

from spanloop.converters import Converted

Row = dict[str, Any]

DECIDED_BY_A_DIALECT: Final = {
    "episodes": {
        "trace_ids": "the dialect names the conversation, which joins traces",
        "session_id": "the attribute of the session or conversation differs",
        "marks": "the attribute of tags differs",
        "tool_call_count": "a framework may write calls into the text of an answer",
    },
    "transitions": {
        "span_id": "the dialect decides which spans are model calls",
        "agent_name": "the attribute of the agent differs, and so do the spans of agents",
        "response_id": "the attribute differs",
        "model": "requested and answering model are in attributes that differ",
        "policy_version": "read from the model",
        "state": "messages are read from attributes, span events or log records",
        "tools": "the form of tool definitions differs",
        "action": "messages are read from attributes, span events or log records",
        "tool_results": "spans of tools differ",
        "is_terminated": "depends on status, finish reason and content of the last step",
        "finish_reason": "the attribute and its values differ",
        "sampling": "the attributes of parameters differ",
        "token_source": "the attribute of token ids differs",
        "capture_join": "the attribute of token ids differs",
        "prompt_token_ids": "the attribute of token ids differs",
        "response_token_ids": "the attribute of token ids differs",
        "logprobs": "the attribute of log-probabilities differs",
        "untrainable_reason": "content is missing or malformed in another way",
        "untrainable_detail": "content is missing or malformed in another way",
        "input_tokens": "the attribute of usage differs",
        "output_tokens": "the attribute of usage differs",
    },
    "failures": {
        "step": "the step of the span that failed",
        "span_id": "spans of tools differ",
        "tool_name": "the attribute of the tool differs",
        "error_class": "statuses, error types and texts of errors differ",
        "fault_owner": "statuses, error types and texts of errors differ",
        "is_recovered": "depends on the steps that follow",
        "message": "the place of an error's text differs",
        "confidence": "depends on the evidence in the span",
        "rule": "depends on the evidence in the span",
        "fingerprint": "made from error type, text and arguments",
    },
}
"""Table to column to the reason."""

_JSON: Final = ("state", "tools", "action", "tool_results")


def as_golden(converted: Converted) -> str:
    """Episodes with their steps and failures, then rejected rows; one value a line. States hold new messages only."""
    episodes: list[Row] = []
    for episode in converted.episodes.sort("started_at", "episode_id").iter_rows(named=True):
        in_episode = pl.col("episode_id") == episode["episode_id"]
        failures = converted.failures.filter(in_episode).sort("failure_id")
        episodes.append(
            {
                **_golden_columns(episode, "episodes"),
                "steps": _steps(converted.transitions.filter(in_episode).sort("step")),
                "failures": [_golden_columns(row, "failures") for row in failures.iter_rows(named=True)],
            }
        )
    rejected = converted.rejected.sort("reason", "trace_id", "span_id", "detail").rows()
    content = {"episodes": episodes, "rejected": [" ".join(row) for row in rejected]}
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _steps(transitions: pl.DataFrame) -> list[Row]:
    steps: list[Row] = []
    seen: list[Any] = []
    tools: list[Any] = []
    for row in transitions.iter_rows(named=True):
        step = {name: json.loads(value) if name in _JSON else value for name, value in row.items()}
        state = step.pop("state")
        common = next((n for n, pair in enumerate(zip(seen, state, strict=False)) if pair[0] != pair[1]), None)
        common = min(len(seen), len(state)) if common is None else common
        seen = state
        steps.append(
            {
                **_golden_columns(step, "transitions"),
                "tools": "as before" if step["tools"] == tools and tools else step["tools"],
                "state": {"messages_as_before": common, "new": state[common:]},
            }
        )
        tools = step["tools"]
    return steps


def _golden_columns(row: Row, table: str) -> Row:
    """The columns that a dialect decides, without those that are empty."""
    columns = {name: row[name] for name in DECIDED_BY_A_DIALECT[table] if name in row}
    return {name: value for name, value in columns.items() if value not in (None, "", [], {}, 0)}
