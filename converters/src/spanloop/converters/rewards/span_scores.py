"""Scores that came inside spans: an event ``gen_ai.evaluation.result``, or the same attributes on a span of its own.

OpenTelemetry's carrier is a log event, which the store turns into rows of ``scores`` by itself; some programs attach
the event to the span that they judge instead. Agent Lightning's rewards are spans of their own, each with one or
several of ``agentlightning.reward.N.name`` and ``.value``; through AgentOps they are what a span returned:
``{"type": "reward", "value": …}``.
"""

import re
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from math import nan
from typing import Final, cast

import numpy as np
import polars as pl

from spanloop.semconv import attributes as names

from .. import frames
from ..dialects.rows import fields_of
from ..reading.attributes import Attributes

_LIGHTNING: Final = re.compile(r"agentlightning\.reward\.(\d+)\.value$")


def _is_score(key: str) -> bool:
    return key in _VALUES or key.startswith("agentlightning.reward.")


def scores_in_spans(spans: pl.DataFrame, attributes: Attributes, links: pl.DataFrame | None = None) -> pl.DataFrame:
    """Rows of ``scores`` that the spans carry, one for each evaluation; most spans carry none.

    A span that links to one other span judges that span. A span that is delivered twice counts once, at the first time.

    Args:
        spans: The columns of ``frames.SPANS``.
        attributes: Of ``spans``.
        links: The columns ``Links.TraceId`` and ``Links.SpanId`` of ``spans``; None where they are not known.
    """
    has_event = spans["Events.Name"].list.contains(names.EVALUATION_EVENT_NAME).fill_null(value=False).to_numpy()
    places = np.flatnonzero(has_event | attributes.rows_with(attributes.matching(_is_score)))
    if not len(places):
        return frames.empty(frames.SCORES)
    carrier_spans = spans.select(
        "TraceId", "SpanId", pl.col("Timestamp", "IngestedAt").cast(pl.Int64), "Events.Name", "Events.Attributes"
    )[pl.Series(places)]
    values: list[Mapping[str, str]] = []
    counts: list[int] = []
    is_evaluation_span: list[bool] = []  # whether the span is the evaluation; else an event on the judged span is
    events = zip(*(carrier_spans[name].to_list() for name in ("Events.Name", "Events.Attributes")), strict=True)
    for (event_names, event_attributes), span_attributes in zip(events, attributes.texts(places), strict=True):
        before = len(values)
        values += [
            _texts(items)
            for name, items in zip(event_names or (), event_attributes or (), strict=False)
            if name == names.EVALUATION_EVENT_NAME
        ]
        if names.GEN_AI_EVALUATION_SCORE_VALUE in span_attributes:
            values.append(span_attributes)
        values += _lightning(span_attributes) or _returned(span_attributes)
        counts.append(len(values) - before)
        is_evaluation_span += [value is span_attributes for value in values[before:]]
    carried = np.repeat(np.arange(len(counts)), counts)
    carriers = carrier_spans.select("TraceId", "SpanId", "Timestamp", "IngestedAt")[carried]
    targets = carriers if links is None else _targets(carriers, links[pl.Series(places[carried])], is_evaluation_span)
    numbers = [number for count in counts for number in range(count)]
    ids = zip(carriers["TraceId"].to_list(), carriers["SpanId"].to_list(), numbers, strict=True)
    scores: dict[str, Sequence[object] | pl.Series] = {
        "score_id": [_score_id(*identity) for identity in ids],
        "name": [value.get(names.GEN_AI_EVALUATION_NAME) or "reward" for value in values],
        "value": [_number(value.get(names.GEN_AI_EVALUATION_SCORE_VALUE, "")) for value in values],
        "label": [value.get(names.GEN_AI_EVALUATION_SCORE_LABEL, "") for value in values],
        "response_id": [value.get(names.GEN_AI_RESPONSE_ID, "") for value in values],
        "trace_id": targets["TraceId"],
        "span_id": targets["SpanId"],
        "scored_at": carriers["Timestamp"],
        "ingested_at": carriers["IngestedAt"],
    }
    score_rows = pl.DataFrame([pl.Series(name, column, dtype=_raw(name)) for name, column in scores.items()])
    delivered_once = score_rows.sort("ingested_at", maintain_order=True).unique(
        ("score_id", "name", "value", "label", "response_id"), keep="first", maintain_order=True
    )
    return frames.conform(delivered_once, frames.SCORES).with_columns(
        pl.col("session_id", "episode_key").fill_null(""), pl.col("is_deleted").fill_null(0)
    )


def _targets(carriers: pl.DataFrame, links: pl.DataFrame, is_evaluation_span: Sequence[bool]) -> pl.DataFrame:
    """The span that each score judges: the only one that an evaluation's span links to, else the carrier itself."""
    has_one = pl.Series(is_evaluation_span, dtype=pl.Boolean) & (pl.col("Links.SpanId").list.len() == 1)
    return carriers.hstack(links).select(
        pl.when(has_one).then(pl.col(f"Links.{name}").list.first()).otherwise(name).alias(name)
        for name in ("TraceId", "SpanId")
    )


def _raw(column: str) -> pl.DataType:
    """The type in which a column is made: times are whole numbers first."""
    dtype = frames.SCORES[column]
    return pl.Int64() if dtype in {frames.TIME_NS, frames.TIME_US} else dtype


def _lightning(span_attributes: Mapping[str, str]) -> list[dict[str, str]]:
    """Agent Lightning's rewards under OpenTelemetry's names; its ``primary`` one is the reward."""
    scores: list[dict[str, str]] = []
    for key in sorted(span_attributes):
        match = _LIGHTNING.match(key)
        if match is not None:
            name = span_attributes.get(f"agentlightning.reward.{match.group(1)}.name", "")
            score = {names.GEN_AI_EVALUATION_NAME: "reward" if name == "primary" else name}
            scores.append({**score, names.GEN_AI_EVALUATION_SCORE_VALUE: span_attributes[key]})
    return scores


_RETURNED: Final = ("agentops.task.output", "agentops.entity.output")
_VALUES: Final = frozenset((names.GEN_AI_EVALUATION_SCORE_VALUE, *_RETURNED))


def _returned(span_attributes: Mapping[str, str]) -> list[dict[str, str]]:
    """The reward that a function returned which AgentOps traced."""
    for returned in (fields_of(span_attributes[key]) for key in _RETURNED if "reward" in span_attributes.get(key, "")):
        value = returned.get("value")
        if returned.get("type") == "reward" and isinstance(value, int | float):
            text = str(value + 0)  # true is 1; the text of a whole number beyond float64 is read as infinite
            return [{names.GEN_AI_EVALUATION_NAME: "reward", names.GEN_AI_EVALUATION_SCORE_VALUE: text}]
    return []


def _texts(items: object) -> dict[str, str]:
    return {item["key"]: item["value"] for item in cast("list[dict[str, str]]", items or [])}


def _score_id(trace_id: str | None, span_id: str | None, number: int) -> str:
    key = f"{trace_id}\0{span_id}\0{number}"
    return blake2b(key.encode("utf-8", "replace"), digest_size=16).hexdigest()


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return nan
