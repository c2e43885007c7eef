"""The columns and types of every frame that crosses the converters' border.

Output schemas equal the store's tables less the columns that ClickHouse fills in. What comes in may spell a ``Map``
column as polars' own map or as a list of ``{key, value}`` structs; what goes out is polars' map.
"""

from collections.abc import Mapping, Sequence
from typing import Final, cast

import polars as pl

from spanloop.foundation.surrogates import replace_surrogates

STRING_ITEMS: Final = pl.List(pl.Struct({"key": pl.String, "value": pl.String}))
"""A map as its items: the form in which attributes are taken apart."""

STRING_MAP: Final = pl.Map(pl.String, pl.String)
FLOAT_MAP: Final = pl.Map(pl.String, pl.Float64)
TIME_NS: Final = pl.Datetime("ns", "UTC")
TIME_US: Final = pl.Datetime("us", "UTC")

SPANS: Final = pl.Schema(
    {
        "Timestamp": TIME_NS,
        "TraceId": pl.String(),
        "SpanId": pl.String(),
        "ParentSpanId": pl.String(),
        "SpanName": pl.String(),
        "ServiceName": pl.String(),
        "ScopeName": pl.String(),
        "SpanAttributes": STRING_ITEMS,
        "Duration": pl.UInt64(),
        "StatusCode": pl.String(),
        "StatusMessage": pl.String(),
        "Events.Name": pl.List(pl.String),
        "Events.Attributes": pl.List(STRING_ITEMS),
        "DroppedAttributesCount": pl.UInt32(),
        "IngestedAt": TIME_US,
    }
)
"""What is read of ``otel_traces``; further columns are ignored."""

LOGS: Final = pl.Schema(
    {
        "Timestamp": TIME_NS,
        "TraceId": pl.String(),
        "SpanId": pl.String(),
        "EventName": pl.String(),
        "Body": pl.String(),
        "LogAttributes": STRING_ITEMS,
        "IngestedAt": TIME_US,
    }
)
"""What is read of ``otel_logs``: events that instrumentors send beside their spans."""

SCORES: Final = pl.Schema(
    {
        "score_id": pl.String(),
        "name": pl.String(),
        "value": pl.Float64(),
        "label": pl.String(),
        "trace_id": pl.String(),
        "span_id": pl.String(),
        "response_id": pl.String(),
        "session_id": pl.String(),
        "episode_key": pl.String(),
        "scored_at": TIME_NS,
        "ingested_at": TIME_US,
        "is_deleted": pl.UInt8(),
    }
)

GENERATIONS: Final = pl.Schema(
    {
        "generation_id": pl.String(),
        "response_id": pl.String(),
        "choice_index": pl.UInt16(),
        "trace_id": pl.String(),
        "parent_span_id": pl.String(),
        "policy_version": pl.String(),
        "tokenizer": pl.String(),
        "prompt_token_ids": pl.List(pl.UInt32),
        "response_token_ids": pl.List(pl.UInt32),
        "logprobs": pl.List(pl.Float32),
        "finish_reason": pl.String(),
        "is_complete": pl.Boolean(),
        "sampling": STRING_ITEMS,
        "ingested_at": TIME_US,
    }
)

EPISODES: Final = pl.Schema(
    {
        "episode_id": pl.String(),
        "revision": pl.UInt64(),
        "converter_version": pl.String(),
        "episode_key": pl.String(),
        "task_id": pl.String(),
        "group_id": pl.String(),
        "session_id": pl.String(),
        "service_name": pl.String(),
        "agent_name": pl.String(),
        "model": pl.String(),
        "policy_version": pl.String(),
        "trace_ids": pl.List(pl.String),
        "started_at": TIME_NS,
        "duration_ns": pl.UInt64(),
        "step_count": pl.UInt32(),
        "span_count": pl.UInt32(),
        "tool_call_count": pl.UInt32(),
        "tool_error_count": pl.UInt32(),
        "input_tokens": pl.UInt64(),
        "output_tokens": pl.UInt64(),
        "outcome": pl.String(),
        "reward": pl.Float64(),
        "reward_breakdown": FLOAT_MAP,
        "is_terminated": pl.Boolean(),
        "is_truncated": pl.Boolean(),
        "error_class": pl.String(),
        "fault_owner": pl.String(),
        "marks": pl.List(pl.String),
    }
)

TRANSITIONS: Final = pl.Schema(
    {
        "transition_id": pl.String(),
        "episode_id": pl.String(),
        "revision": pl.UInt64(),
        "step": pl.UInt32(),
        "task_id": pl.String(),
        "group_id": pl.String(),
        "agent_name": pl.String(),
        "trace_id": pl.String(),
        "span_id": pl.String(),
        "response_id": pl.String(),
        "model": pl.String(),
        "policy_version": pl.String(),
        "state": pl.List(pl.UInt32),
        "tools": pl.String(),
        "action": pl.String(),
        "tool_results": pl.String(),
        "next_state": pl.List(pl.UInt32),
        "reward": pl.Float64(),
        "reward_breakdown": FLOAT_MAP,
        "is_terminated": pl.Boolean(),
        "is_truncated": pl.Boolean(),
        "finish_reason": pl.String(),
        "sampling": STRING_MAP,
        "token_source": pl.String(),
        "capture_join": pl.String(),
        "prompt_token_ids": pl.List(pl.UInt32),
        "response_token_ids": pl.List(pl.UInt32),
        "logprobs": pl.List(pl.Float32),
        "is_trainable": pl.Boolean(),
        "untrainable_reason": pl.String(),
        "untrainable_detail": pl.String(),
        "tool_error_count": pl.UInt32(),
        "error_class": pl.String(),
        "fault_owner": pl.String(),
        "input_tokens": pl.UInt32(),
        "output_tokens": pl.UInt32(),
        "started_at": TIME_NS,
        "duration_ns": pl.UInt64(),
    }
)
"""``state`` and ``next_state`` are half-open ranges of numbers of the episode's messages, flattened: from, to, from, …;
``message_numbers.with_state_texts`` gives their texts."""

MESSAGES: Final = pl.Schema(
    {"episode_id": pl.String(), "revision": pl.UInt64(), "number": pl.UInt32(), "message": pl.String()}
)

TRAJECTORIES: Final = pl.Schema(
    {
        "trajectory_id": pl.String(),
        "episode_id": pl.String(),
        "revision": pl.UInt64(),
        "row_number": pl.UInt32(),
        "task_id": pl.String(),
        "group_id": pl.String(),
        "agent_name": pl.String(),
        "policy_version": pl.String(),
        "first_step": pl.UInt32(),
        "last_step": pl.UInt32(),
        "row_start": pl.String(),
        "prompt_token_ids": pl.List(pl.UInt32),
        "response_token_ids": pl.List(pl.UInt32),
        "loss_mask": pl.List(pl.UInt8),
        "logprobs": pl.List(pl.Float32),
        "sampled_steps": pl.List(pl.UInt32),
        "sampled_starts": pl.List(pl.UInt32),
        "sampled_ends": pl.List(pl.UInt32),
        "step_rewards": pl.List(pl.Float64),
        "tokenizers": pl.List(pl.String),
        "reward": pl.Float64(),
        "is_trainable": pl.Boolean(),
        "untrainable_reason": pl.String(),
    }
)

FAILURES: Final = pl.Schema(
    {
        "failure_id": pl.String(),
        "episode_id": pl.String(),
        "revision": pl.UInt64(),
        "task_id": pl.String(),
        "trace_id": pl.String(),
        "span_id": pl.String(),
        "step": pl.UInt32(),
        "agent_name": pl.String(),
        "tool_name": pl.String(),
        "model": pl.String(),
        "policy_version": pl.String(),
        "error_class": pl.String(),
        "fault_owner": pl.String(),
        "is_recovered": pl.Boolean(),
        "message": pl.String(),
        "evidence": pl.String(),
        "confidence": pl.Float32(),
        "rule": pl.String(),
        "fingerprint": pl.String(),
        "occurred_at": TIME_NS,
    }
)

REJECTED: Final = pl.Schema(
    {
        "trace_id": pl.String(),
        "span_id": pl.String(),
        "reason": pl.String(),
        "detail": pl.String(),
    }
)

OPEN_JOINS: Final = pl.Schema(
    {
        "trace_id": pl.String(),
        "span_id": pl.String(),
        "other_trace_id": pl.String(),
        "detail": pl.String(),
    }
)


def empty(schema: pl.Schema) -> pl.DataFrame:
    """A frame of ``schema`` without rows."""
    return pl.DataFrame(schema=schema)


def conform(frame: pl.DataFrame, schema: pl.Schema) -> pl.DataFrame:
    """The columns of ``schema``, cast to its types; a missing column is filled with nulls.

    Raises:
        polars.exceptions.PolarsError: When a column cannot be cast, which names the column.
    """
    present = set(frame.columns)
    return frame.select(
        pl.col(name).cast(dtype) if name in present else pl.lit(None, dtype=dtype).alias(name)
        for name, dtype in schema.items()
    )


def build(rows: Sequence[tuple[object, ...]], schema: pl.Schema, columns: Sequence[pl.Series] = ()) -> pl.DataFrame:
    """A frame out of row tuples in the order of ``schema``.

    Text decoded from JSON may hold lone surrogates, which no UTF-8 column can; they become U+FFFD.

    Args:
        rows: One value for each column of ``schema`` that is not in ``columns``.
        schema: Of the frame.
        columns: Those that exist as columns already.
    """
    given = {column.name: column for column in columns}
    told = [(name, dtype) for name, dtype in schema.items() if name not in given]
    values = list(zip(*rows, strict=True)) if rows else [() for _ in told]
    given |= {name: _series(name, found, dtype) for (name, dtype), found in zip(told, values, strict=True)}
    return pl.DataFrame([given[name] for name in schema])


def _series(name: str, values: Sequence[object], dtype: pl.DataType) -> pl.Series:
    if dtype in {TIME_NS, TIME_US}:
        return pl.Series(name, values, dtype=pl.Int64).cast(dtype)
    if isinstance(dtype, pl.Map):
        return maps(name, cast("Sequence[Mapping[str, object]]", values), dtype)
    try:
        return pl.Series(name, values, dtype=dtype)
    except UnicodeEncodeError:
        return pl.Series(name, [clean_text(value) for value in values], dtype=dtype)


def clean_text(value: object) -> object:
    """``value``, with lone surrogates replaced when it is text."""
    return replace_surrogates(value) if isinstance(value, str) else value


def maps(name: str, values: Sequence[Mapping[str, object]], dtype: pl.Map) -> pl.Series:
    """A ``Map`` column out of flat columns: a struct for each row costs twenty times as much.

    Rows often share one object: each is written once.
    """
    distinct = {id(items): items for items in values}
    if len(distinct) < len(values):
        places = {identity: place for place, identity in enumerate(distinct)}
        found = maps(name, list(distinct.values()), dtype)
        return found.gather(pl.Series([places[id(items)] for items in values], dtype=pl.UInt32))
    rows = pl.DataFrame({"row": pl.int_range(len(values), dtype=pl.UInt32, eager=True)})
    flat = pl.DataFrame(
        [
            pl.Series("row", [row for row, items in enumerate(values) for _ in items], dtype=pl.UInt32),
            pl.Series("key", [key for items in values for key in items], dtype=dtype.key),
            pl.Series("value", [value for items in values for value in items.values()], dtype=dtype.value),
        ]
    )
    items = flat.group_by("row", maintain_order=True).agg(pl.struct("key", "value").alias(name))
    joined = rows.join(items, on="row", how="left", maintain_order="left")
    return joined[name].fill_null([]).cast(dtype)
