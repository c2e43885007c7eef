"""Tables that lists and lookups read instead of spans, log records, episodes and failures. Views fill them."""

from typing import Final

from .column import LOW_CARDINALITY, Column, Table
from .episodes import EPISODES, FAILURES, STEP_MEASURES, TRANSITION_ROWS

_REVISION_HASH: Final = Column("revision_hash", "UInt64", "hash of the episode's id and the revision", "MATERIALIZED")

TRACE_SUMMARIES: Final = Table(
    "trace_summaries",
    (
        Column("ten_minutes", "DateTime('UTC')", "the ten minutes in which the earliest of the spans starts"),
        Column("trace_id", "String", "the trace"),
        Column("started_at", "SimpleAggregateFunction(min, DateTime64(9, 'UTC'))", "start of the first span"),
        Column("ended_at", "SimpleAggregateFunction(max, DateTime64(9, 'UTC'))", "end of the last span"),
        Column("ingested_at", "SimpleAggregateFunction(max, DateTime64(6, 'UTC'))", "newest ingestion of a span"),
        Column("root_name", "SimpleAggregateFunction(max, LowCardinality(String))", "name of a span without a parent"),
        Column("service_name", "SimpleAggregateFunction(max, LowCardinality(String))", "`service.name`"),
        Column("agent_name", "SimpleAggregateFunction(max, LowCardinality(String))", "attribute `gen_ai.agent.name`"),
        Column(
            "model",
            "SimpleAggregateFunction(max, LowCardinality(String))",
            "model that answered, else that was requested",
        ),
        Column("task_id", "SimpleAggregateFunction(max, String)", "attribute `spanloop.task.id`"),
        Column("session_id", "SimpleAggregateFunction(max, String)", "session.id, else gen_ai.conversation.id"),
        Column("spans", "SimpleAggregateFunction(groupUniqArrayArray, Array(UInt64))", "hashes of span ids"),
        Column(
            "failed_spans",
            "SimpleAggregateFunction(groupUniqArrayArray, Array(UInt64))",
            "hashes of the ids of failed spans",
        ),
        Column(
            "calls",
            "SimpleAggregateFunction(maxMap, Map(UInt64, UInt64))",
            "hash of a model call's span id to input tokens * 2^32 + output tokens",
        ),
    ),
)
"""One row for each trace and insert, merged by reading them with `GROUP BY trace_id`."""

LOG_SUMMARIES: Final = Table(
    "log_summaries",
    (
        Column("ten_minutes", "DateTime('UTC')", "the ten minutes in which the records lie"),
        Column("trace_id", "String", "the trace"),
        Column("first_at", "SimpleAggregateFunction(min, DateTime64(9, 'UTC'))", "time of the first record"),
        Column("last_at", "SimpleAggregateFunction(max, DateTime64(9, 'UTC'))", "time of the last record"),
        Column("ingested_at", "SimpleAggregateFunction(max, DateTime64(6, 'UTC'))", "newest ingestion of a record"),
    ),
)
"""Where a trace's log records lie in time: one row for each trace and ten minutes."""

EPISODE_SUMMARIES: Final = Table(
    "episode_summaries",
    (
        *EPISODES.select("started_at", "episode_id", "revision"),
        Column("is_deleted", "UInt8", "1: a later revision lies elsewhere, or a tombstone"),
        *EPISODES.select("episode_key", "converter_version", "task_id", "group_id", "is_terminated"),
        Column("task_set", LOW_CARDINALITY, "test-, train-: up to the first separator", "MATERIALIZED"),
        *EPISODES.select("session_id", "service_name", "agent_name", "policy_version", "duration_ns", "step_count"),
        Column("trainable_step_count", "UInt32", "model calls that may be trained on"),
        *EPISODES.select(
            "span_count",
            "tool_call_count",
            "tool_error_count",
            "input_tokens",
            "output_tokens",
            "outcome",
            "reward",
            "reward_breakdown",
            "error_class",
            "fault_owner",
            "marks",
            "model",
            "trace_ids",
        ),
        Column("tool_names", "Array(LowCardinality(String))", "tools that its steps call or that spans name, sorted"),
        _REVISION_HASH,
    ),
)
"""The newest row of each episode, by start."""

FAILURE_SUMMARIES: Final = Table(
    "failure_summaries",
    (
        *FAILURES.select(
            "occurred_at",
            "episode_id",
            "revision",
            "failure_id",
            "task_id",
            "step",
            "span_id",
            "agent_name",
            "tool_name",
            "policy_version",
            "error_class",
            "fault_owner",
            "is_recovered",
        ),
        Column("headline", "String", "the message's first 300 characters"),
        *FAILURES.select("confidence", "rule"),
        Column("fingerprint", LOW_CARDINALITY, "groups the same failure over episodes"),
        *FAILURES.select("converted_at"),
        _REVISION_HASH,
    ),
)
"""Failures of every revision, by time."""

STEP_SUMMARIES: Final = Table(
    "step_summaries",
    (
        *TRANSITION_ROWS.select(
            "started_at",
            "episode_id",
            "revision",
            "step",
            "task_id",
            "model",
            "policy_version",
            "reward",
            "is_trainable",
            "untrainable_reason",
            "tool_error_count",
            "error_class",
            "fault_owner",
            "input_tokens",
            "output_tokens",
            "duration_ns",
            "finish_reason",
        ),
        Column("tool_names", "Array(LowCardinality(String))", "tools that the action calls"),
        *TRANSITION_ROWS.select("converted_at"),
        *TRANSITION_ROWS.select(*(column.name for column in STEP_MEASURES)),
        *TRANSITION_ROWS.select("agent_name", "trace_id", "span_id"),
        _REVISION_HASH,
        Column(
            "called_tools",
            "Array(LowCardinality(String))",
            "a tool for each call: those of the action, and those that only spans name",
            "MATERIALIZED",
        ),
    ),
)
"""Steps of every revision, by time."""

METRIC_SUMMARIES: Final = Table(
    "metric_summaries",
    (
        Column("job_id", "String", "the training job"),
        Column("name", LOW_CARDINALITY, "name of the metric"),
        Column("last_step", "SimpleAggregateFunction(max, UInt32)", "largest step that has the metric"),
        Column("last_recorded_at", "SimpleAggregateFunction(max, DateTime64(6, 'UTC'))", "newest record of the metric"),
    ),
)
"""The metrics that each job has recorded."""
