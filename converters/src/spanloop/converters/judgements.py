"""Judgements of people → episodes: which judgement counts for what.

Invariant: a judgement counts for exactly one episode, by its span, or is rejected by name with its ids. Of one person
and target the newest version counts, unless it takes the judgement back; of several people the newest judgement. Order
and repetition of the rows change nothing.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

import polars as pl

from spanloop.foundation.tables.judged_values import Scope, Verdict

from . import frames
from .linking import SpanKey
from .spans import Rejected
from .steps import Episode


class PersonJudgement(NamedTuple):
    """One version of a person's judgement."""

    judgement_id: str
    scope: str
    trace_id: str
    span_id: str
    fingerprint: str
    """Identifies the failure; empty for other scopes."""
    verdict: str
    """``good``, ``bad`` or empty."""
    fault_owner: str
    category: str
    number: float | None
    comment: str
    judged_by: str
    is_withdrawn: bool
    ingested_us: int

    @property
    def span(self) -> SpanKey:
        """The key of the judged span."""
        return self.trace_id, self.span_id


class Judgements(NamedTuple):
    """The judgements that count for one episode."""

    episode: PersonJudgement | None = None
    steps: Mapping[int, PersonJudgement] = {}
    """By step."""
    failures: Mapping[tuple[SpanKey, str], PersonJudgement] = {}
    """By span and fingerprint."""
    ingested_us: int = 0
    """Newest of all versions, withdrawn ones included; 0 without any."""

    @property
    def all(self) -> list[PersonJudgement]:
        """Every judgement that counts."""
        return [*([self.episode] if self.episode else []), *self.steps.values(), *self.failures.values()]

    @property
    def ids(self) -> tuple[str, ...]:
        """Sorted ids."""
        return tuple(sorted(each.judgement_id for each in self.all))

    @property
    def outcome(self) -> str:
        """``success`` or ``failure`` by the verdict on the whole episode; empty without one."""
        if self.episode is None or not self.episode.verdict:
            return ""
        return "success" if self.episode.verdict == Verdict.GOOD else "failure"


NO_JUDGEMENTS: Final = Judgements()


class JoinedJudgements(NamedTuple):
    """Judgements by episode id, and those that belong nowhere."""

    by_episode: dict[str, Judgements]
    rejected: list[Rejected]


def read_judgements(frame: pl.DataFrame) -> list[PersonJudgement]:
    """Return each version once, by (time, id)."""
    rows = (
        frames.conform(frame, frames.JUDGEMENTS)
        .sort("ingested_at", nulls_last=False)
        .unique("judgement_id", keep="last", maintain_order=True)
        .sort("judged_at", "judgement_id")
        .select(
            pl.col(
                *("judgement_id", "scope", "trace_id", "span_id", "fingerprint", "verdict", "fault_owner", "category")
            ).fill_null(""),
            "number",
            pl.col("comment", "judged_by").fill_null(""),
            pl.col("is_withdrawn").fill_null(0) != 0,
            pl.col("ingested_at").cast(pl.Int64).fill_null(0),
        )
    )
    return [PersonJudgement(*values) for values in rows.iter_rows()]


def join_judgements(
    episodes: Sequence[Episode],
    judgements: Sequence[PersonJudgement],
    representatives: Mapping[SpanKey, SpanKey] = MappingProxyType({}),
) -> JoinedJudgements:
    """Give every judgement to its episode.

    Args:
        episodes: All episodes that may be judged.
        judgements: Every version, by (time, id).
        representatives: Duplicate span → the span that stands for it.
    """
    if not judgements:
        return JoinedJudgements({}, [])
    spans = _spans(episodes)
    versions: dict[str, dict[tuple[object, ...], PersonJudgement]] = defaultdict(dict)
    newest_us: dict[str, int] = defaultdict(int)
    rejected: list[Rejected] = []
    for each in judgements:
        place = spans.get(each.span) or spans.get(representatives.get(each.span, each.span))
        if place is None or (each.scope == Scope.STEP and place[1] is None):
            reason = "judgement_without_episode" if place is None else "judgement_without_step"
            detail = f"judgement {each.judgement_id} of {each.judged_by} on a {each.scope}"
            rejected.append(Rejected(each.trace_id, each.span_id, reason, detail))
            continue
        episode_id, step = place
        target = _target(each, step)
        versions[episode_id].pop((*target, each.judged_by), None)
        versions[episode_id][*target, each.judged_by] = each
        newest_us[episode_id] = max(newest_us[episode_id], each.ingested_us)
    return JoinedJudgements(
        {episode_id: _counting(each.items(), newest_us[episode_id]) for episode_id, each in versions.items()}, rejected
    )


def _target(judgement: PersonJudgement, step: int | None) -> tuple[object, ...]:
    match judgement.scope:
        case Scope.EPISODE:
            return (Scope.EPISODE,)
        case Scope.STEP:
            return (Scope.STEP, step)
        case _:
            return (Scope.FAILURE, judgement.span, judgement.fingerprint)


def _counting(versions: Iterable[tuple[tuple[object, ...], PersonJudgement]], newest_us: int) -> Judgements:
    """Return the judgements that count, from versions of which the newest of each person and target comes last."""
    current = {key[:-1]: each for key, each in versions if not each.is_withdrawn}
    return Judgements(
        current.get((Scope.EPISODE,)),
        {key[1]: each for key, each in current.items() if key[0] == Scope.STEP and isinstance(key[1], int)},
        {(each.span, each.fingerprint): each for each in current.values() if each.scope == Scope.FAILURE},
        newest_us,
    )


def _spans(episodes: Sequence[Episode]) -> dict[SpanKey, tuple[str, int | None]]:
    """Span → its episode, and its step where it is a model call."""
    places: dict[SpanKey, tuple[str, int | None]] = {}
    for episode in episodes:
        places.update(dict.fromkeys([span.key for span in episode.context], (episode.episode_id, None)))
        places.update((step.span.key, (episode.episode_id, step.index)) for step in episode.steps)
    return places
