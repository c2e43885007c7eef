"""Schemas of the frames that cross the converters' border.

Output schemas equal the store's tables less the columns that ClickHouse fills in. An input may spell a ``Map`` column
as polars' own map or as a list of ``{key, value}`` structs; an output has polars' map.
"""

from typing import Final, cast

import polars as pl

from spanloop.foundation.tables import Column, Table, arrivals, episodes, judgements

STRING_ITEMS: Final = pl.List(pl.Struct({"key": pl.String, "value": pl.String}))
"""A map as its items: the form in which attributes are taken apart."""

TIME_NS: Final = pl.Datetime("ns", "UTC")
TIME_US: Final = pl.Datetime("us", "UTC")


def _items(dtype: pl.DataType) -> pl.DataType:
    """A type with items in the place of each map."""
    if isinstance(dtype, pl.Map):
        return pl.List(pl.Struct({"key": dtype.key, "value": dtype.value}))
    return pl.List(_items(cast("pl.DataType", dtype.inner))) if isinstance(dtype, pl.List) else dtype


def _read(table: Table, *names: str) -> pl.Schema:
    return pl.Schema({name: _items(table[name].dtype) for name in names})


SPANS: Final = _read(
    arrivals.OTEL_TRACES,
    *("Timestamp", "TraceId", "SpanId", "ParentSpanId", "SpanName", "ServiceName", "ScopeName", "SpanAttributes"),
    *("Duration", "StatusCode", "StatusMessage", "Events.Name", "Events.Attributes", "DroppedAttributesCount"),
    "IngestedAt",
)
"""Columns of ``otel_traces`` that are read; further ones are ignored."""

LINKS: Final = _read(arrivals.OTEL_TRACES, "TraceId", "SpanId", "SpanAttributes", "Links.TraceId", "Links.SpanId")
"""Columns of ``otel_traces`` that are read for the links of spans."""

RESOURCES: Final = _read(arrivals.OTEL_TRACES, "TraceId", "SpanId", "ResourceAttributes")
"""Columns of ``otel_traces`` that are read for the process of a span."""

LOGS: Final = _read(
    arrivals.OTEL_LOGS, "Timestamp", "TraceId", "SpanId", "EventName", "Body", "LogAttributes", "IngestedAt"
)
"""Columns of ``otel_logs`` that are read: events that instrumentors send beside their spans."""

SCORES: Final = _read(
    arrivals.SCORES,
    *("score_id", "name", "value", "label", "trace_id", "span_id", "response_id", "session_id", "episode_key"),
    *("scored_at", "ingested_at", "is_deleted"),
)

JUDGEMENTS: Final = _read(
    judgements.JUDGEMENTS,
    *("judgement_id", "scope", "trace_id", "span_id", "fingerprint", "verdict", "fault_owner", "category", "number"),
    *("comment", "judged_by", "judged_at", "is_withdrawn", "ingested_at"),
)

GENERATIONS: Final = _read(
    arrivals.GENERATIONS,
    *("generation_id", "response_id", "choice_index", "trace_id", "parent_span_id", "policy_version", "tokenizer"),
    *("prompt_token_ids", "response_token_ids", "logprobs", "finish_reason", "is_complete", "sampling", "ingested_at"),
)

EPISODES: Final = episodes.EPISODES.required
_TIMES: Final = {column.name: column.dtype for column in episodes.STEP_MEASURES}
_RANGES: Final = {name: episodes.TRANSITION_ROWS[name].dtype for name in ("state", "next_state")}
TRANSITIONS: Final = pl.Schema({**episodes.TRANSITIONS.required, **_RANGES, **_TIMES})
"""With states as ranges of message numbers; ``message_numbers.with_state_texts`` gives their texts."""
MESSAGES: Final = episodes.EPISODE_MESSAGES.required
TRAJECTORIES: Final = episodes.TRAJECTORIES.required
FAILURES: Final = episodes.FAILURES.required

REJECTED_ROWS: Final = Table(
    "rejected",
    (
        Column("trace_id", "String", "trace of the span; empty for a score that names none"),
        Column("span_id", "String", "the span; empty for a score that names none"),
        Column("reason", "String", "why the row became no transition"),
        Column("detail", "String", "expected and got"),
    ),
)
"""Rows of input that became no transition; the store has no such table."""
REJECTED: Final = REJECTED_ROWS.schema

OPEN_JOIN_ROWS: Final = Table(
    "open_joins",
    (
        Column("trace_id", "String", "the trace"),
        Column("span_id", "String", "the call that answers the id; empty for a conversation id"),
        Column("other_trace_id", "String", "another trace that the id names"),
        Column("detail", "String", "the id"),
    ),
)
"""Traces that one id names and that stay separate episodes; the store has no such table."""
OPEN_JOINS: Final = OPEN_JOIN_ROWS.schema


def empty(schema: pl.Schema) -> pl.DataFrame:
    """A frame of ``schema`` without rows."""
    return pl.DataFrame(schema=schema)


def conform(frame: pl.DataFrame, schema: pl.Schema) -> pl.DataFrame:
    """The columns of ``schema``, cast to its types; a missing column is filled with nulls.

    Raises:
        polars.exceptions.PolarsError: When a column cannot be cast, which names the column.
    """
    present = frame.schema
    if present == schema:
        return frame
    return frame.select(
        pl.lit(None, dtype=dtype).alias(name)
        if name not in present
        else name
        if present[name] == dtype
        else pl.col(name).cast(dtype)
        for name, dtype in schema.items()
    )
