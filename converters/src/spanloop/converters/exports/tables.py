"""Rows as Parquet: a Hugging Face dataset of transitions, and token rows for verl.

Maps become JSON text, which every reader of Parquet understands.
"""

from collections import Counter
from typing import Final, cast

import polars as pl
import polars.selectors as cs

from spanloop.messages import MalformedMessagesError, dump, parse_json_or_none, parse_messages
from spanloop.semconv.scores import SCORE_LIMIT

from ..credit import CREDIT_METHODS, FAULT_COLUMNS, assign
from ..tokens.trajectories import shared_prompt_tokens
from .base import ExportOptions, Kind, Made, Source
from .conversation import MALFORMED

README: Final = """---
configs:
- config_name: default
  data_files:
  - split: train
    path: data/train-*.parquet
---

Transitions of LLM agents, exported by spanloop. `manifest.json` says which, and what was left out.
"""

_JSON_COLUMNS: Final = frozenset(
    {"state", "action", "tools", "tool_results", "next_state", "reward_breakdown", "sampling"}
)
_PROMPT: Final = pl.List(pl.Struct({"role": pl.String, "content": pl.String}))


def _transitions(rows: pl.DataFrame, options: ExportOptions) -> Made:
    """Credit is assigned before rows are left out: it needs whole groups of whole episodes."""
    credited = assign(rows, CREDIT_METHODS[options.credit], gamma=options.gamma) if options.credit else rows
    ordered = _json_maps(credited.drop(FAULT_COLUMNS)).sort("group_id", "episode_id", "step")
    taken = ordered.filter("is_trainable").drop("is_trainable", "untrainable_reason", "untrainable_detail")
    return Made(taken, taken.height, _reasons(ordered.filter(~pl.col("is_trainable"))))


def _token_rows(rows: pl.DataFrame, _: ExportOptions) -> Made:
    ordered = rows.sort("group_id", "episode_id", "row_number")
    unscored = pl.col("is_trainable") & pl.col("reward").is_null()
    out_of_range = pl.col("is_trainable") & (pl.col("reward").abs() > SCORE_LIMIT).fill_null(value=False)
    reason = pl.when(unscored).then(pl.lit("no_reward")).when(out_of_range).then(pl.lit("reward_out_of_range"))
    marked = ordered.with_columns(
        reason.otherwise("untrainable_reason").alias("untrainable_reason"),
        (pl.col("is_trainable") & ~unscored & ~out_of_range).alias("is_trainable"),
        (pl.col("episode_id").rank("dense").over("group_id") - 1).cast(pl.Int64).alias("session"),
    )
    states = marked.select("state", "is_trainable").iter_rows()
    openings = [_opening(state) if is_taken else None for state, is_taken in states]
    is_malformed = pl.col("is_trainable") & pl.col("prompt").is_null()
    marked = marked.with_columns(pl.Series("prompt", openings, dtype=_PROMPT)).with_columns(
        pl.when(is_malformed).then(pl.lit(MALFORMED)).otherwise("untrainable_reason").alias("untrainable_reason"),
        pl.col("is_trainable") & ~is_malformed,
    )
    taken = marked.filter("is_trainable")
    token_rows = taken.select(
        pl.col("service_name").alias("data_source"),
        "prompt",
        pl.col("group_id").alias("uid"),
        "session",
        pl.col("row_number").cast(pl.Int64).alias("index"),
        pl.col("prompt_token_ids").cast(pl.List(pl.Int64)).alias("prompt_ids"),
        pl.col("response_token_ids").cast(pl.List(pl.Int64)).alias("response_ids"),
        pl.col("loss_mask").cast(pl.List(pl.Int64)).alias("response_mask"),
        pl.col("logprobs").alias("rollout_log_probs"),
        shared_prompt_tokens(taken["group_id"], taken["prompt_token_ids"]),
        "reward",
        "agent_name",
        "policy_version",
        "task_id",
        "episode_id",
        "revision",
    )
    return Made(token_rows, token_rows.height, _reasons(marked.filter(~pl.col("is_trainable"))))


def _opening(state: str) -> list[dict[str, str]] | None:
    """The system and user messages that a conversation opens with; None for text that is no list of messages."""
    try:
        messages = parse_messages(state or "[]")
    except MalformedMessagesError:
        return None
    opening: list[dict[str, str]] = []
    for message in messages:
        if message.role not in {"system", "user"}:
            break
        opening.append({"role": message.role, "content": message.text})
    return opening


def _reasons(rows: pl.DataFrame) -> dict[str, int]:
    return dict(Counter(cast("list[str]", rows["untrainable_reason"].to_list())))


def _json_maps(rows: pl.DataFrame) -> pl.DataFrame:
    maps = [name for name, dtype in rows.schema.items() if isinstance(dtype, pl.Map)]
    return rows.with_columns(pl.Series(name, [_json(value) for value in rows[name].to_list()]) for name in maps)


def _json(value: object) -> str:
    items = cast("list[dict[str, object]] | dict[str, object]", value or {})
    entries = items if isinstance(items, dict) else {str(item["key"]): item["value"] for item in items}
    return dump(dict(sorted(entries.items())))


def _json_lines(rows: pl.DataFrame, options: ExportOptions) -> Made:
    """The rows of `PARQUET`; columns that hold JSON as text are values, and times are ISO 8601."""
    made = _transitions(rows, options)
    frame = cast("pl.DataFrame", made.rows).with_columns(cs.temporal().dt.to_string("iso:strict"))
    lines = [dump({name: _value(name, value) for name, value in row.items()}) for row in frame.iter_rows(named=True)]
    return made._replace(rows=lines)


def _value(name: str, value: object) -> object:
    return parse_json_or_none(str(value)) if name in _JSON_COLUMNS and value else value


JSONL: Final = Kind(Source.TRANSITIONS, "jsonl", _json_lines)
PARQUET: Final = Kind(Source.TRANSITIONS, "parquet", _transitions, README)
VERL: Final = Kind(Source.TRAJECTORIES, "parquet", _token_rows)
