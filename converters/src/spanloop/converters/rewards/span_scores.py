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

import numpy as np
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
        spans: The columns of ``frames.SPANS``.
        attributes: Of ``spans``.
    """
    has_event = spans["Events.Name"].list.contains(names.EVALUATION_EVENT_NAME).fill_null(value=False).to_numpy()
    places = np.flatnonzero(has_event | attributes.rows_with(attributes.matching(_is_score)))
    if not len(places):
        return frames.empty(frames.SCORES)
    told = spans.select(
        "TraceId", "SpanId", pl.col("Timestamp", "IngestedAt").cast(pl.Int64), "Events.Name", "Events.Attributes"
    )[pl.Series(places)]
    rows: list[tuple[object, ...]] = []
    for (trace_id, span_id, *times, event_names, events), own in zip(
        told.iter_rows(), attributes.texts(places), strict=True
    ):
        carried = [
            _texts(items)
            for name, items in zip(event_names or (), events or (), strict=False)
            if name == names.EVALUATION_EVENT_NAME
        ]
        if names.GEN_AI_EVALUATION_SCORE_VALUE in own:
            carried.append(own)
        carried += _lightning(own)
        rows += [
            (_score_id(trace_id, span_id, number), *_told(values), trace_id, span_id, *times)
            for number, values in enumerate(carried)
        ]
    columns = ("score_id", "name", "value", "label", "response_id", "trace_id", "span_id", "scored_at", "ingested_at")
    found = dict(zip(columns, zip(*rows, strict=True), strict=True)) if rows else dict.fromkeys(columns, ())
    scores = {name: pl.Series(name, found[name], dtype=_raw(name)) for name in columns}
    return frames.conform(pl.DataFrame(list(scores.values())), frames.SCORES).with_columns(
        pl.col("session_id", "episode_key").fill_null(""), pl.col("is_deleted").fill_null(0)
    )


def _raw(column: str) -> pl.DataType:
    """The type in which a column is made: times are whole numbers first."""
    dtype = frames.SCORES[column]
    return pl.Int64() if dtype in {frames.TIME_NS, frames.TIME_US} else dtype


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


def _score_id(trace_id: str | None, span_id: str | None, number: int) -> str:
    key = f"{trace_id}\0{span_id}\0{number}"
    return blake2b(key.encode("utf-8", "replace"), digest_size=16).hexdigest()


def _told(values: Mapping[str, str]) -> tuple[str, float, str, str]:
    """Name, value, label and response id of an evaluation."""
    return (
        values.get(names.GEN_AI_EVALUATION_NAME) or "reward",
        _number(values.get(names.GEN_AI_EVALUATION_SCORE_VALUE, "")),
        values.get(names.GEN_AI_EVALUATION_SCORE_LABEL, ""),
        values.get(names.GEN_AI_RESPONSE_ID, ""),
    )


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return nan
