"""Scores that came inside spans: an event ``gen_ai.evaluation.result``, or the same attributes on a span of its own.

OpenTelemetry's carrier is a log event, which the store turns into rows of ``scores`` by itself; some programs attach
the event to the span that they judge instead. Agent Lightning's rewards are spans of their own, each with one or
several of ``agentlightning.reward.N.name`` and ``.value``.
"""

import re
from collections.abc import Mapping
from hashlib import blake2b
from math import nan
from typing import Final, cast

import polars as pl

from spanloop.semconv import attributes as names

from .. import frames
from ..attributes import Attributes

_LIGHTNING: Final = re.compile(r"agentlightning\.reward\.(\d+)\.value$")


def _is_score(key: pl.Expr) -> pl.Expr:
    return (key == names.GEN_AI_EVALUATION_SCORE_VALUE) | key.str.starts_with("agentlightning.reward.")


def scores_in_spans(spans: pl.DataFrame, attributes: Attributes) -> pl.DataFrame:
    """Rows of ``scores`` that the spans carry, one for each evaluation; most spans carry none.

    Args:
        spans: Rows of ``otel_traces``.
        attributes: Of ``spans``.
    """
    wanted = ("TraceId", "SpanId", "Timestamp", "IngestedAt", "SpanAttributes", "Events.Name", "Events.Attributes")
    known = frames.conform(spans, pl.Schema({name: frames.SPANS[name] for name in wanted}))
    has_event = pl.col("Events.Name").list.contains(names.EVALUATION_EVENT_NAME)
    has_attribute = attributes.rows_with(attributes.matching(_is_score))
    found = known.filter(has_event.fill_null(value=False) | pl.Series(has_attribute, dtype=pl.Boolean))
    if found.is_empty():
        return frames.empty(frames.SCORES)
    rows: list[dict[str, object]] = []
    for row in found.with_columns(pl.col("Timestamp", "IngestedAt").cast(pl.Int64)).iter_rows(named=True):
        events = zip(row["Events.Name"] or (), row["Events.Attributes"] or (), strict=False)
        carried = [_texts(items) for name, items in events if name == names.EVALUATION_EVENT_NAME]
        own = _texts(row["SpanAttributes"])
        if names.GEN_AI_EVALUATION_SCORE_VALUE in own:
            carried.append(own)
        carried += _lightning(own)
        rows += [_row(row, number, values) for number, values in enumerate(carried)]
    times = {name: dtype for name, dtype in frames.SCORES.items() if dtype in {frames.TIME_NS, frames.TIME_US}}
    raw = {name: pl.Int64() if name in times else dtype for name, dtype in frames.SCORES.items()}
    return pl.DataFrame(rows, schema=raw).with_columns(pl.col(name).cast(dtype) for name, dtype in times.items())


def _lightning(own: Mapping[str, str]) -> list[dict[str, str]]:
    """Agent Lightning's rewards under OpenTelemetry's names; its ``primary`` one is the reward."""
    found: list[dict[str, str]] = []
    for key in sorted(own):
        numbered = _LIGHTNING.match(key)
        if numbered is not None:
            name = own.get(f"agentlightning.reward.{numbered.group(1)}.name", "")
            score = {names.GEN_AI_EVALUATION_NAME: "reward" if name == "primary" else name}
            found.append({**score, names.GEN_AI_EVALUATION_SCORE_VALUE: own[key]})
    return found


def _texts(items: object) -> dict[str, str]:
    return {item["key"]: item["value"] for item in cast("list[dict[str, str]]", items or [])}


def _row(span: Mapping[str, object], number: int, values: Mapping[str, str]) -> dict[str, object]:
    key = f"{span['TraceId']}\0{span['SpanId']}\0{number}"
    return {
        "score_id": blake2b(key.encode("utf-8", "replace"), digest_size=16).hexdigest(),
        "name": values.get(names.GEN_AI_EVALUATION_NAME) or "reward",
        "value": _number(values.get(names.GEN_AI_EVALUATION_SCORE_VALUE, "")),
        "label": values.get(names.GEN_AI_EVALUATION_SCORE_LABEL, ""),
        "trace_id": span["TraceId"],
        "span_id": span["SpanId"],
        "response_id": values.get(names.GEN_AI_RESPONSE_ID, ""),
        "session_id": "",
        "episode_key": "",
        "scored_at": span["Timestamp"],
        "ingested_at": span["IngestedAt"],
        "is_deleted": 0,
    }


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return nan
