"""Scores: ratings of a span, a trace, a response, a session or an episode by a user, a judge model or a program.

Invariant: a key identifies a score, and the last write of a key wins: it corrects or deletes the score. A score without
an id has a key that is derived from target, name and source, so that sending it again is a correction as well.
"""

import hashlib
import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final, Self

import polars as pl
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictBool, StringConstraints, model_validator

from spanloop.foundation.errors import ConfigurationError
from spanloop.foundation.tables.arrivals import SCORES
from spanloop.semconv.attributes import MARK_NAME
from spanloop.semconv.scores import SCORE_RANGE, is_valid_score

from .store import Store

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TIME_LIMIT: Final = datetime(2106, 2, 7, tzinfo=UTC)
_TARGETS: Final = ("trace_id", "response_id", "session_id", "episode_id")
_TRACE_ID_DIGITS: Final = 32


def _not_zero(digits: str) -> str:
    if digits.strip("0") == "" and digits:
        raise ValueError("an id must not be all zeros")
    return digits


def _in_range(moment: datetime) -> datetime:
    aware = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    if not _EPOCH <= aware < _TIME_LIMIT:
        raise ValueError("a time must be between 1970 and 2106")
    return aware


def _valid_score(value: float) -> float:
    if not is_valid_score(value):
        raise ValueError(f"got {value!r}, expected {SCORE_RANGE}")
    return value


_Text = Annotated[str, StringConstraints(max_length=200)]
_Prose = Annotated[str, StringConstraints(max_length=100_000)]
_TraceId = Annotated[str, StringConstraints(to_lower=True, pattern=r"^([0-9a-fA-F]{32})?$"), AfterValidator(_not_zero)]
_SpanId = Annotated[str, StringConstraints(to_lower=True, pattern=r"^([0-9a-fA-F]{16})?$"), AfterValidator(_not_zero)]
_Value = Annotated[StrictBool | Annotated[float, Field(strict=True)], AfterValidator(_valid_score)]
_Moment = Annotated[datetime, AfterValidator(_in_range)]


class Score(BaseModel):
    """A score, as in the body of ``POST /v1/scores``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: _Text = ""
    """Key for correction and deletion; empty: derived from target, name and source, of a mark from its label too."""
    name: Annotated[str, StringConstraints(min_length=1, max_length=200)] = "reward"
    """Name of the score; ``reward`` is an episode's reward, ``spanloop.mark`` marks it with ``label``."""
    value: _Value | None = None
    """Higher is better; between -1e12 and 1e12, true is 1. Required unless ``deleted``."""
    label: _Text = ""
    comment: _Prose = ""
    source: _Text = "api"
    """Origin of the score: a user, a judge model or a program."""
    trace_id: _TraceId = ""
    span_id: _SpanId = ""
    """A span of ``trace_id``."""
    response_id: _Text = ""
    """``id`` of a chat completion."""
    session_id: _Text = ""
    episode_id: _Text = ""
    """Episode id as the dashboard shows it: the app's ``spanloop.episode.id``, else a trace id."""
    task_id: _Text = ""
    timestamp: _Moment | None = None
    """Time of the score; default now."""
    deleted: bool = False

    @model_validator(mode="after")
    def _check_fields(self) -> Self:
        if not any(getattr(self, name) for name in _TARGETS):
            raise ValueError(f"a score needs a target: expected one of {', '.join(_TARGETS)}")
        if self.span_id and not self.trace_id:
            raise ValueError("span_id needs a trace: expected trace_id too")
        if self.value is None and not self.deleted:
            raise ValueError(f"value is missing; expected {SCORE_RANGE}, or deleted: true")
        if self.name == MARK_NAME and not self.label:
            raise ValueError("a mark needs a label, such as good")
        return self

    @property
    def key(self) -> str:
        """The score's id in the store (``score_id``)."""
        if self.id:
            return self.id
        parts = (self.name, self.source, *(getattr(self, name) for name in (*_TARGETS, "span_id")))
        if self.name == MARK_NAME:
            parts += (self.label,)
        return hashlib.blake2b(json.dumps(parts).encode(), digest_size=16).hexdigest()

    @property
    def number(self) -> float:
        """The value; 0 for a deletion without a value."""
        return 0.0 if self.value is None else float(self.value)

    @property
    def judged_trace_id(self) -> str:
        """The trace that the score rates. An episode without an id of the app has the id of its first trace."""
        episode = self.episode_id.lower()
        is_trace = len(episode) == _TRACE_ID_DIGITS and all(digit in "0123456789abcdef" for digit in episode)
        return self.trace_id or (episode if is_trace else "")

    def timestamp_ns(self) -> int:
        """Return the time of the score in nanoseconds since the epoch."""
        if self.timestamp is None:
            return time.time_ns()
        return (self.timestamp - _EPOCH) // timedelta(microseconds=1) * 1_000


def require_targets(store: Store, score: Score) -> None:
    """Check that what a person's score rates is stored; a program's score may arrive before its spans.

    Raises:
        ConfigurationError: A trace, span, response, session or episode has no stored span; no score was stored.
        StoreError: ClickHouse is unreachable.
    """
    targets = {name: getattr(score, name) for name in (*_TARGETS, "span_id")}
    is_stored = store.query("scores_targets", **targets).row(0, named=True)
    missing = [f"{name.removesuffix('_id')} {targets[name]!r}" for name, stored in is_stored.items() if not stored]
    if missing:
        raise ConfigurationError(
            f"The store has no {' and no '.join(missing)}, so a score of it would count for nothing.",
            next_step="Copy the whole id from the dashboard. If the app sent its spans just now, try again in some "
            "seconds; spanloop status shows the spans that wait to be stored.",
        )


def add_scores(store: Store, scores: Sequence[Score]) -> list[str]:
    """Store scores, corrections and deletions; return their keys.

    Raises:
        StoreError: ClickHouse rejected the scores or is unreachable; store them again.
    """
    rows = [
        {
            "score_id": score.key,
            "name": score.name,
            "value": score.number,
            "label": score.label,
            "comment": score.comment,
            "source": score.source,
            "trace_id": score.judged_trace_id,
            "span_id": score.span_id,
            "response_id": score.response_id,
            "session_id": score.session_id,
            "episode_key": score.episode_id,
            "task_id": score.task_id,
            "scored_at": score.timestamp_ns(),
            "is_deleted": int(score.deleted),
        }
        for score in scores
    ]
    store.insert(SCORES.name, SCORES.from_dicts(rows))
    return [score.key for score in scores]


def delete_scores(store: Store, score_ids: Sequence[str]) -> None:
    """Delete scores by key; the pipeline converts their episodes again.

    Raises:
        ConfigurationError: A key is unknown; no score is deleted.
        StoreError: ClickHouse rejected the statement or is unreachable.
    """
    scores = store.query("scores_by_id", score_ids=list(score_ids))
    missing = sorted(set(score_ids) - set(scores["score_id"].to_list()))
    if missing:
        raise ConfigurationError(
            f"There is no score {', '.join(missing)}.", next_step="spanloop scores list shows all ids."
        )
    # Insert the complete row again: its targets determine the episodes that are converted again.
    store.insert("scores", scores.with_columns(pl.lit(1, pl.UInt8).alias("is_deleted")))
