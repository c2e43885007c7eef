"""Log records that name a span are its events: some instrumentors send messages and exceptions that way.

Invariant: the same records in any order, delivered once or twice, give the same events; a record that names no known
span changes nothing. A span is as new as its newest record, so that late ones make a new revision.
"""

from typing import Final

import polars as pl

from spanloop.semconv import attributes as names

from .. import frames
from ..dialects import BODY, CONVERSATION
from .request_bodies import BODIES, with_request_spans

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
"""Order of events at one time: that in which a conversation goes once around."""


def with_logs(spans: pl.DataFrame, logs: pl.DataFrame) -> pl.DataFrame:
    """``spans`` with the events of ``logs`` behind their own.

    Args:
        spans: The columns of ``frames.SPANS``, each span once.
        logs: The columns of ``frames.LOGS``.
    """
    by_span = _events(with_request_spans(spans, _named(frames.conform(logs, frames.LOGS)), _NAME))
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


def _named(logs: pl.DataFrame) -> pl.DataFrame:
    """``logs`` with the names of their events in a column of its own."""
    named = pl.col("LogAttributes").list.eval(
        pl.element().filter(pl.element().struct.field("key") == "event.name").struct.field("value")
    )
    event_name = (
        pl.when(pl.col("EventName").fill_null("") != "").then("EventName").otherwise(named.list.first()).fill_null("")
    )
    is_conversation = (event_name != "") & pl.col("Body").fill_null("").str.contains(_CONVERSATION_BEGINS)
    return logs.with_columns(pl.when(is_conversation).then(pl.lit(CONVERSATION)).otherwise(event_name).alias(_NAME))


_CONVERSATION_BEGINS: Final = r'^\s*\{\s*"(?:input|output)":\s*\{\s*"messages":'
"""Beginning of the body in which AWS's distribution (ADOT) keeps a span's content; the event is named by the scope."""


def _events(logs: pl.DataFrame) -> pl.DataFrame:
    """One row a span: its records' names and attributes (the body among them) in order, and the newest ingestion."""
    attributes = pl.col("LogAttributes").fill_null(pl.lit([]).cast(frames.STRING_ITEMS))
    body = pl.struct(pl.lit(BODY).alias("key"), pl.col("Body").fill_null("").alias("value"))
    content = attributes.list.eval(pl.element().struct.field("key") + "=" + pl.element().struct.field("value"))
    records = logs.with_columns(
        attributes.list.concat(pl.concat_list(body)).alias("LogAttributes"),
        content.list.sort().list.join("\n").alias("_content"),
    )
    is_content = pl.col(_NAME).str.starts_with("gen_ai.") & (pl.col(_NAME) != names.EVALUATION_EVENT_NAME)
    is_event = is_content | pl.col(_NAME).is_in([names.EXCEPTION_EVENT_NAME, *BODIES])
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


_TOKENS: Final = "token_ids"
_KEPT: Final = r"token_ids(?:\.0)?$|logprobs(?:\.content|\.token_logprobs)?(?:\.0)?$"


def with_event_tokens(spans: pl.DataFrame, logs: pl.DataFrame | None) -> pl.DataFrame:
    """``spans`` with the token ids and log-probabilities of their events among their attributes.

    What a span says itself counts: of those that have token ids of their own, the events are left alone.

    Args:
        spans: The columns of ``frames.SPANS``.
        logs: The columns of ``frames.LOGS``.
    """
    if logs is None and not spans["Events.Name"].list.len().sum():
        return spans
    parts = [_token_items(spans.select(*_KEYS, pl.col("Events.Attributes").alias("items")).explode("items"))]
    if logs is not None:
        records = frames.conform(logs, frames.LOGS)
        parts.append(_token_items(records.select(*_KEYS, pl.col("LogAttributes").alias("items"))))
    items = pl.concat(parts)
    if items.is_empty():
        return spans
    by_span = items.sort(*_KEYS, "item").unique(maintain_order=True).group_by(_KEYS, maintain_order=True).agg("item")
    has_ids = pl.col("SpanAttributes").list.eval(pl.element().struct.field("key").str.contains(_TOKENS, literal=True))
    nothing = pl.lit([]).cast(frames.STRING_ITEMS)
    more = pl.when(has_ids.list.any().fill_null(value=False)).then(nothing).otherwise(pl.col("item").fill_null(nothing))
    return (
        spans.join(by_span, on=_KEYS, how="left", maintain_order="left")
        .with_columns(pl.col("SpanAttributes").fill_null(nothing).list.concat(more))
        .drop("item")
    )


def _token_items(events: pl.DataFrame) -> pl.DataFrame:
    """The attributes of ``events`` that hold tokens, of the spans of which some event has token ids, one a row."""
    empty = events.clear().select(*_KEYS, pl.col("items").list.explode().alias("item"))
    if not events["items"].list.len().sum():
        return empty
    items = events.explode("items").rename({"items": "item"})
    key = pl.col("item").struct.field("key")
    if not items.select(key.str.contains(_TOKENS, literal=True).any()).item():
        return empty
    has_ids = key.str.contains(_TOKENS, literal=True).any().over(_KEYS)
    return items.filter(has_ids & key.str.contains(_KEPT) & (pl.col("SpanId").fill_null("") != ""))
