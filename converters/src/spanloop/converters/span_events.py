"""Log records that name a span are its events: some instrumentors send messages and exceptions that way.

Invariant: the same records in any order, delivered once or twice, give the same events; a record that names no known
span changes nothing. A span is as new as its newest record, so that late ones make a new revision.
"""

from typing import Final

import polars as pl

from spanloop.semconv import attributes as names

from . import frames
from .dialects import BODY

_KEYS: Final = ["TraceId", "SpanId"]
_NAME: Final = "_name"
_RANK: Final = pl.col(_NAME).replace_strict(
    {
        "gen_ai.system.message": 0,
        "gen_ai.user.message": 1,
        "gen_ai.assistant.message": 2,
        "gen_ai.tool.message": 3,
        "gen_ai.choice": 5,
    },
    default=4,
    return_dtype=pl.UInt8,
)
"""Of events at one time: the order in which a conversation goes once around."""


def with_logs(spans: pl.DataFrame, logs: pl.DataFrame) -> pl.DataFrame:
    """``spans`` with the events of ``logs`` behind their own.

    Args:
        spans: The columns of ``frames.SPANS``, each span once.
        logs: The columns of ``frames.LOGS``.
    """
    by_span = _events(frames.conform(logs, frames.LOGS))
    if by_span.is_empty():
        return spans
    nothing = pl.lit([])
    return (
        spans.join(by_span, on=_KEYS, how="left", maintain_order="left")
        .with_columns(
            pl.max_horizontal("IngestedAt", "_ingested").alias("IngestedAt"),
            pl.col("Events.Name").fill_null([]).list.concat(pl.col("_names").fill_null([])).alias("Events.Name"),
            pl.col("Events.Attributes")
            .fill_null(nothing.cast(pl.List(frames.STRING_ITEMS)))
            .list.concat(pl.col("_attributes").fill_null(nothing.cast(pl.List(frames.STRING_ITEMS))))
            .alias("Events.Attributes"),
        )
        .drop("_ingested", "_names", "_attributes")
    )


def _events(logs: pl.DataFrame) -> pl.DataFrame:
    """One row a span: its records' names and attributes (the body among them) in order, and the newest ingestion."""
    attributes = pl.col("LogAttributes").fill_null(pl.lit([]).cast(frames.STRING_ITEMS))
    named = attributes.list.eval(
        pl.element().filter(pl.element().struct.field("key") == "event.name").struct.field("value")
    ).list.first()
    body = pl.struct(pl.lit(BODY).alias("key"), pl.col("Body").fill_null("").alias("value"))
    content = attributes.list.eval(pl.element().struct.field("key") + "=" + pl.element().struct.field("value"))
    records = logs.with_columns(
        pl.when(pl.col("EventName").fill_null("") != "").then("EventName").otherwise(named).fill_null("").alias(_NAME),
        attributes.list.concat(pl.concat_list(body)).alias("LogAttributes"),
        content.list.sort().list.join("\n").alias("_content"),
    )
    is_told = pl.col(_NAME).str.starts_with("gen_ai.") & (pl.col(_NAME) != names.EVALUATION_EVENT_NAME)
    is_event = is_told | (pl.col(_NAME) == names.EXCEPTION_EVENT_NAME)
    return (
        records.filter(is_event & (pl.col("SpanId").fill_null("") != ""))
        .sort("Timestamp", _RANK, _NAME, "Body", "_content", "IngestedAt")
        .unique(["Timestamp", *_KEYS, _NAME, "Body", "_content"], keep="first", maintain_order=True)
        .group_by(_KEYS, maintain_order=True)
        .agg(
            pl.col(_NAME).alias("_names"),
            pl.col("LogAttributes").alias("_attributes"),
            pl.col("IngestedAt").max().alias("_ingested"),
        )
    )
