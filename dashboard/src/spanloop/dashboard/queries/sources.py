"""The lists of the dashboard: where their rows are read, their columns, and what they can be sorted by."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from spanloop.dashboard.queries.conditions import AGENT


class SortColumn(NamedTuple):
    """The order of a list."""

    expression: str
    sql_type: str = "String"
    """The type that a key of the address is read as."""


class Source(NamedTuple):
    """A list: where its rows are read, and what they can be sorted by."""

    table: str
    """Name, or a query in parentheses."""
    columns: str
    key: str
    """Column that tells rows with the same value apart."""
    sorts: Mapping[str, SortColumn]
    default_sort: str
    row: str
    """Expression that identifies a row: the hash of its sorting key, or the key of a query."""
    leading: str = ""
    """The column that the table is ordered by and read with FINAL; empty for a query."""


_TIME: Final = "DateTime64(9, 'UTC')"
EPISODES: Final = Source(
    "episode_summaries",
    f"episode_id, revision, task_id, service_name, {AGENT} AS agent, policy_version, started_at, duration_ns, "
    "step_count, tool_call_count, tool_error_count, input_tokens + output_tokens AS tokens, outcome, reward, "
    "error_class, fault_owner, marks, session_id",
    "episode_id",
    {
        "started": SortColumn("started_at", _TIME),
        "outcome": SortColumn("toString(outcome)"),
        "reward": SortColumn("ifNull(reward, -inf)", "Float64"),
        "task": SortColumn("task_id"),
        "agent": SortColumn(f"toString({AGENT})"),
        "policy": SortColumn("toString(policy_version)"),
        "steps": SortColumn("step_count", "UInt32"),
        "errors": SortColumn("tool_error_count", "UInt32"),
        "tokens": SortColumn("input_tokens + output_tokens", "UInt64"),
        "duration": SortColumn("duration_ns", "UInt64"),
        "class": SortColumn("concat(fault_owner, error_class)"),
    },
    "started",
    "cityHash64(started_at, episode_id)",
    "started_at",
)
FAILURES: Final = Source(
    "failure_summaries",
    "failure_id, episode_id, task_id, step, agent_name, tool_name, policy_version, error_class, fault_owner, "
    "is_recovered, headline AS message, confidence, rule, toString(fingerprint) AS fingerprint, occurred_at",
    "failure_id",
    {
        "when": SortColumn("occurred_at", _TIME),
        "owner": SortColumn("toString(fault_owner)"),
        "class": SortColumn("toString(error_class)"),
        "tool": SortColumn("toString(tool_name)"),
        "task": SortColumn("task_id"),
        "policy": SortColumn("toString(policy_version)"),
        "confidence": SortColumn("confidence", "Float32"),
    },
    "when",
    "cityHash64(occurred_at, episode_id, revision, failure_id)",
    "occurred_at",
)
_STEP_ID: Final = "concat(episode_id, '/', toString(step))"
STEPS: Final = Source(
    "step_summaries",
    f"{_STEP_ID} AS transition_id, episode_id, revision, step, task_id, model, policy_version, reward, is_trainable, "
    "untrainable_reason, tool_error_count, error_class, fault_owner, input_tokens + output_tokens AS tokens, "
    "started_at, duration_ns, finish_reason, tool_names",
    _STEP_ID,
    {
        "started": SortColumn("started_at", _TIME),
        "reward": SortColumn("ifNull(reward, -inf)", "Float64"),
        "task": SortColumn("task_id"),
        "policy": SortColumn("toString(policy_version)"),
        "tokens": SortColumn("input_tokens + output_tokens", "UInt32"),
        "duration": SortColumn("duration_ns", "UInt64"),
        "errors": SortColumn("tool_error_count", "UInt32"),
        "class": SortColumn("concat(fault_owner, error_class)"),
    },
    "started",
    "cityHash64(started_at, episode_id, revision, step)",
    "started_at",
)
TRACES_TABLE: Final = """(
    SELECT
        trace_id,
        min(t.started_at) AS started_at,
        toUInt64(greatest(
            0, toUnixTimestamp64Nano(max(t.ended_at)) - toUnixTimestamp64Nano(min(t.started_at))
        )) AS duration_ns,
        toString(max(t.root_name)) AS root_name,
        toString(max(t.service_name)) AS service_name,
        toString(max(t.agent_name)) AS agent_name,
        toString(max(t.model)) AS model,
        max(t.task_id) AS task_id,
        max(t.session_id) AS session_id,
        toUInt32(length(groupUniqArrayArray(t.spans))) AS span_count,
        toUInt32(length(groupUniqArrayArray(t.failed_spans))) AS failed_span_count,
        toUInt32(length(maxMap(t.calls))) AS model_calls,
        arraySum(tokens -> bitShiftRight(tokens, 32), mapValues(maxMap(t.calls))) AS input_tokens,
        arraySum(tokens -> bitAnd(tokens, 4294967295), mapValues(maxMap(t.calls))) AS output_tokens
    FROM trace_summaries AS t
    WHERE {within}
    GROUP BY trace_id
)"""
TRACES: Final = Source(
    TRACES_TABLE,
    f"trace_id, started_at, duration_ns, root_name, service_name, {AGENT} AS agent, model, task_id, session_id, "
    "span_count, failed_span_count, model_calls, input_tokens + output_tokens AS tokens",
    "trace_id",
    {
        "started": SortColumn("started_at", _TIME),
        "root": SortColumn("root_name"),
        "service": SortColumn("service_name"),
        "agent": SortColumn(AGENT),
        "model": SortColumn("model"),
        "spans": SortColumn("span_count", "UInt32"),
        "failed": SortColumn("failed_span_count", "UInt32"),
        "calls": SortColumn("model_calls", "UInt32"),
        "tokens": SortColumn("input_tokens + output_tokens", "UInt64"),
        "duration": SortColumn("duration_ns", "UInt64"),
    },
    "started",
    "trace_id",
)

SESSIONS_TABLE: Final = """(
    SELECT
        session_id,
        min(started_at) AS first_at,
        max(ended_at) AS last_at,
        toUInt64(greatest(
            0, toUnixTimestamp64Nano(max(ended_at)) - toUnixTimestamp64Nano(min(started_at))
        )) AS lasted_ns,
        uniqExact(trace_id) AS turns,
        uniqExactIf(trace_id, notEmpty(failed_spans)) AS failed_turns,
        toString(max(service_name)) AS service,
        toString(max(model)) AS model_name,
        sum(input_tokens + output_tokens) AS tokens,
        argMin(trace_id, started_at) AS first_trace_id,
        argMax(trace_id, started_at) AS last_trace_id
    FROM (
        SELECT
            trace_id, session_id, started_at, ended_at, failed_spans, root_name, service_name, agent_name, model,
            task_id,
            toUInt64(greatest(0, toUnixTimestamp64Nano(ended_at) - toUnixTimestamp64Nano(started_at))) AS duration_ns,
            arraySum(tokens -> bitShiftRight(tokens, 32), mapValues(calls)) AS input_tokens,
            arraySum(tokens -> bitAnd(tokens, 4294967295), mapValues(calls)) AS output_tokens
        FROM trace_summaries
        WHERE session_id != '' AND {within}
    )
    WHERE {matching}
    GROUP BY session_id
)"""
SESSIONS: Final = Source(
    SESSIONS_TABLE,
    "session_id, first_at, last_at, lasted_ns, turns, failed_turns, service, model_name, tokens, "
    "first_trace_id, last_trace_id",
    "session_id",
    {
        "last": SortColumn("last_at", _TIME),
        "started": SortColumn("first_at", _TIME),
        "turns": SortColumn("turns", "UInt64"),
        "failed": SortColumn("failed_turns", "UInt64"),
        "service": SortColumn("service"),
        "tokens": SortColumn("tokens", "UInt64"),
        "duration": SortColumn("lasted_ns", "UInt64"),
    },
    "last",
    "session_id",
)


def parse_sort(source: Source, text: str) -> tuple[str, bool] | None:
    """Return the column and whether the largest comes first; None for a column that the list does not have."""
    if not text:
        return source.default_sort, True
    name = text.removeprefix("-")
    return (name, text.startswith("-")) if name in source.sorts else None
