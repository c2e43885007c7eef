"""Rows from the right answers that people wrote: the conversation up to a judged step, and their answer to it.

Invariant: each corrected step is one row, or is rejected with a reason. The answer stands for the step's own, whose
faults it does not have; what was not recorded of the conversation before it is not rendered. An answer that came after
the revision is not part of it.
"""

from collections.abc import Mapping
from typing import Any, Final

import polars as pl

from spanloop.converters.enums import UntrainableReason
from spanloop.converters.trainable import TRAINABLE_TEXT
from spanloop.foundation.tables.judged_values import Scope
from spanloop.messages import dump
from spanloop.store import Store

from ...spec.row_source import RowSource
from .rendering import Renderer
from .rows import EPISODE_COLUMNS, STEPS_QUERY, conform, render_episodes

QUERY: Final = "training_corrections"
_EPISODES_A_QUERY: Final = 4096
_OF_THE_ANSWER: Final = frozenset(
    {
        *TRAINABLE_TEXT,
        UntrainableReason.INCOMPLETE_STREAM,
        UntrainableReason.REQUEST_FAILED,
        UntrainableReason.ENVIRONMENT_FAULT,
        UntrainableReason.UNATTRIBUTED_FAILURE,
        UntrainableReason.ABANDONED_ATTEMPT,
    }
)
"""Reasons that concern a step's own answer or what became of it, not the conversation before it."""
_RIGHT: Final[Mapping[str, Any]] = {"outcome": "success", "decided_by": "", "reward": None}


def correction_rows(store: Store, rows: pl.DataFrame, renderer: Renderer) -> pl.DataFrame:
    """Return the rows of corrected steps.

    Args:
        store: Where the judgements and messages are.
        rows: Those of the episodes, which ``with_rendered_rows`` gave; the result has their columns.
        renderer: Of the base model.

    Raises:
        StoreError: ClickHouse is unreachable.
        JobError: The base's tokenizer cannot be loaded.
    """
    parts = [rows.clear()]
    next_rows = dict(rows.group_by("episode_id").agg(pl.col("row_number").max().fill_null(0) + 1).iter_rows())
    episodes = rows.select(EPISODE_COLUMNS).unique("episode_id", keep="first", maintain_order=True)
    for part in episodes.iter_slices(_EPISODES_A_QUERY):
        ids = {"episode_ids": part["episode_id"].to_list(), "revisions": part["revision"].to_list()}
        judged = store.query(QUERY, **ids)
        corrected = part.join(judged, on="episode_id", how="semi", maintain_order="left")
        if corrected.is_empty():
            continue
        ids = {"episode_ids": corrected["episode_id"].to_list(), "revisions": corrected["revision"].to_list()}
        steps = _corrected_steps(store.query(STEPS_QUERY, **ids), judged)
        rendered = render_episodes(steps, renderer, RowSource.CORRECTED, next_rows)
        right = corrected.with_columns(
            *(pl.lit(value, corrected.schema[name]).alias(name) for name, value in _RIGHT.items()),
            *(
                pl.lit([], corrected.schema[name]).alias(name)
                for name in corrected.columns
                if name.startswith("fault_")
            ),
        )
        parts.append(conform(rendered, right, rows.schema))
    return pl.concat(parts)


def _corrected_steps(steps: pl.DataFrame, judged: pl.DataFrame) -> pl.DataFrame:
    """Return the steps that a person corrected, with that answer as their action."""
    by_episode = judged.partition_by("episode_id", as_dict=True)
    corrected: list[dict[str, Any]] = []
    for (episode_id,), episode in steps.group_by("episode_id", maintain_order=True):
        rows = episode.to_dicts()
        answers: dict[int, str] = {}
        for judgement in by_episode[episode_id,].iter_rows(named=True):
            place = _place(judgement, rows)
            if place is not None and judgement["arrived_us"] <= rows[place]["revision"]:
                answers.setdefault(place, judgement["correction"])
        corrected += [_with_answer(rows[place], answers[place]) for place in sorted(answers)]
    return pl.DataFrame(corrected, schema=steps.schema, orient="row")


def _place(judgement: Mapping[str, Any], rows: list[dict[str, Any]]) -> int | None:
    """Return the place of the step that a judgement is about: of an episode the last one; None without such a step."""
    spans = [(row["trace_id"], row["span_id"]) for row in rows]
    span = (judgement["trace_id"], judgement["span_id"])
    if span in spans:
        return len(rows) - 1 if judgement["scope"] == Scope.EPISODE else spans.index(span)
    if judgement["scope"] != Scope.FAILURE or judgement["judged_episode_id"] != rows[0]["episode_id"]:
        return None
    # The failure's span is a tool's.
    return next((place for place, row in enumerate(rows) if row["step"] == judgement["step"]), None)


def _with_answer(row: Mapping[str, Any], text: str) -> dict[str, Any]:
    action = dump({"role": "assistant", "parts": [{"type": "text", "content": text}]})
    if not row["is_trainable"] and row["untrainable_reason"] not in _OF_THE_ANSWER:
        return {**row, "action": action}
    return {**row, "action": action, "is_trainable": True, "untrainable_reason": ""}
