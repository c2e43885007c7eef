"""Scores: what somebody thinks of a span, a trace, a response, a session or an episode.

Invariant: a score is known by its key, and the last write wins: the same key again corrects it, or deletes it. Whoever
gives no key gets the one that target, name and source make, so that sending again is a correction too, not a second
opinion.
"""

import hashlib
import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final, Self

import polars as pl
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictBool, StringConstraints, model_validator

from spanloop.semconv.errors import ConfigurationError

from .store import Store

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TIME_LIMIT: Final = datetime(2106, 2, 7, tzinfo=UTC)
_TARGETS: Final = ("trace_id", "response_id", "session_id", "episode_id")
_TRACE_ID_DIGITS: Final = 32


def _not_zero(digits: str) -> str:
    if digits.strip("0") == "" and digits:
        raise ValueError("an id is not all zero")
    return digits


def _in_range(moment: datetime) -> datetime:
    aware = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    if not _EPOCH <= aware < _TIME_LIMIT:
        raise ValueError("a time is between 1970 and 2106")
    return aware


_Text = Annotated[str, StringConstraints(max_length=200)]
_Prose = Annotated[str, StringConstraints(max_length=100_000)]
_TraceId = Annotated[str, StringConstraints(to_lower=True, pattern=r"^([0-9a-fA-F]{32})?$"), AfterValidator(_not_zero)]
_SpanId = Annotated[str, StringConstraints(to_lower=True, pattern=r"^([0-9a-fA-F]{16})?$"), AfterValidator(_not_zero)]
_Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
_Moment = Annotated[datetime, AfterValidator(_in_range)]


class Score(BaseModel):
    """One score, as ``POST /v1/scores`` takes it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: _Text = ""
    """The key by which it is corrected and deleted; empty: made of target, name and source."""
    name: Annotated[str, StringConstraints(min_length=1, max_length=200)] = "reward"
    """Which score; the one named ``reward`` decides what an episode is worth."""
    value: StrictBool | _Number | None = None
    """Higher is better; true is 1. Needed unless ``deleted``."""
    label: _Text = ""
    comment: _Prose = ""
    source: _Text = "api"
    """Who says so: a person, a judge, a program."""
    trace_id: _TraceId = ""
    span_id: _SpanId = ""
    """A span of ``trace_id``."""
    response_id: _Text = ""
    """``id`` of a chat completion."""
    session_id: _Text = ""
    episode_id: _Text = ""
    """As the pages show it: the app's ``spanloop.episode.id``, else a trace id."""
    task_id: _Text = ""
    timestamp: _Moment | None = None
    """When it was given; default now."""
    deleted: bool = False

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if not any(getattr(self, name) for name in _TARGETS):
            raise ValueError(f"a score is for something: expected one of {', '.join(_TARGETS)}")
        if self.span_id and not self.trace_id:
            raise ValueError("span_id names a span of a trace: expected trace_id too")
        if self.value is None and not self.deleted:
            raise ValueError("value is missing; expected a finite number, or deleted: true")
        return self

    @property
    def key(self) -> str:
        """The score's id in the store."""
        if self.id:
            return self.id
        parts = (self.name, self.source, *(getattr(self, name) for name in (*_TARGETS, "span_id")))
        return hashlib.blake2b(json.dumps(parts).encode(), digest_size=16).hexdigest()

    @property
    def number(self) -> float:
        """The value; 0 for a deletion that gives none."""
        return 0.0 if self.value is None else float(self.value)

    @property
    def judged_trace_id(self) -> str:
        """The trace that it is for. An episode that the app did not name has the id of its first trace."""
        episode = self.episode_id.lower()
        is_trace = len(episode) == _TRACE_ID_DIGITS and all(digit in "0123456789abcdef" for digit in episode)
        return self.trace_id or (episode if is_trace else "")

    def moment_ns(self) -> int:
        """Nanoseconds since the epoch."""
        if self.timestamp is None:
            return time.time_ns()
        return (self.timestamp - _EPOCH) // timedelta(microseconds=1) * 1_000


def add_scores(store: Store, scores: Sequence[Score]) -> list[str]:
    """Write scores, corrections and deletions; returns their keys.

    Raises:
        StoreError: ClickHouse refused or is out of reach; send them again.
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
            "scored_at": score.moment_ns(),
            "is_deleted": int(score.deleted),
        }
        for score in scores
    ]
    schema = store.schema("scores")
    del schema["ingested_at"]
    store.insert("scores", pl.DataFrame(rows, schema=schema))
    return [score.key for score in scores]


def delete_scores(store: Store, score_ids: Sequence[str]) -> None:
    """Delete scores by their keys: they count no more, and the episodes that they judged are converted again.

    Raises:
        ConfigurationError: There is no such score; none is deleted.
        StoreError: ClickHouse refused or is out of reach.
    """
    found = store.query("scores_by_id", score_ids=list(score_ids))
    missing = sorted(set(score_ids) - set(found["score_id"].to_list()))
    if missing:
        raise ConfigurationError(
            f"There is no score {', '.join(missing)}.", next_step="spanloop scores list shows them with their ids."
        )
    # The whole row goes in again: its targets say which episodes are concerned.
    store.insert("scores", found.with_columns(pl.lit(1, pl.UInt8).alias("is_deleted")))
