"""Scores → episodes: which score judges what, and what the reward of an episode is.

Invariant: a score counts for exactly one episode or is rejected by name, with its ids. It is joined by response id,
else ``spanloop.episode.id``, else span, else trace, else session, and only where that leaves one episode. A score of
a model call (by response id, or by its span) judges the step; any other judges the episode.

The episode's reward is the newest score named ``reward``; without one, the only score, or the mean of the scores by
name; without any of the episode, the mean of its steps' rewards. Of scores of one name for one target the newest
counts. Scores named ``spanloop.mark`` are no rewards: their labels mark the episode, also where they judge a step. So
do the tags of its spans, and those of spans of its trace that belong to no episode; a score with the same label wins.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import polars as pl

from spanloop.semconv.attributes import MARK_NAME
from spanloop.semconv.scores import is_valid_score

from .. import frames
from ..linking import SpanKey
from ..spans import Rejected, Span
from ..steps import Episode
from .base import REWARD_NAME, Rewards, Score
from .tags import NO_TAGS, Tags


class Joined(NamedTuple):
    """Rewards by episode id, and the scores that belong nowhere."""

    rewards: dict[str, Rewards]
    rejected: list[Rejected]


class _Target(NamedTuple):
    episode_id: str
    step: int | None


def read_scores(frame: pl.DataFrame) -> list[Score]:
    """The newest row of each score id, by (time, id)."""
    rows = (
        frames.conform(frame, frames.SCORES)
        .sort("ingested_at", "scored_at", "score_id", nulls_last=False)
        .unique("score_id", keep="last", maintain_order=True)
        .sort("scored_at", "score_id")
        .select(
            pl.col("score_id", "name").fill_null(""),
            pl.col("value").fill_null(math.nan),
            pl.col("label", "trace_id", "span_id", "response_id", "session_id", "episode_key").fill_null(""),
            pl.col("scored_at", "ingested_at").cast(pl.Int64).fill_null(0),
            pl.col("is_deleted").fill_null(0) != 0,
        )
    )
    return [Score(*values) for values in rows.iter_rows()]


def join_scores(episodes: Sequence[Episode], scores: Sequence[Score], tags: Tags = NO_TAGS) -> Joined:
    """Give every score to its episode or step, and every tag to its episode.

    Args:
        episodes: All episodes that a score may judge.
        scores: By (time, id): of one name and target the last counts.
        tags: Of spans.
    """
    index = _Index(episodes)
    located: dict[str, list[tuple[_Target, Score]]] = defaultdict(list)
    rejected: list[Rejected] = []
    for score in scores:
        target = index.locate(score)
        if isinstance(target, str):
            rejected.append(_rejection(score, target))
        elif not is_valid_score(score.value) and not score.is_deleted:
            reason = "score_out_of_range" if math.isfinite(score.value) else "score_not_finite"
            rejected.append(_rejection(score, reason, target.episode_id))
        elif score.name == MARK_NAME and not score.label:
            rejected.append(_rejection(score, "mark_without_label"))
        else:
            located[target.episode_id].append((target, score))
    labels: dict[str, set[str]] = defaultdict(set)
    for (trace_id, span_id), of_span in tags.items():
        for episode_id in index.episodes_of(trace_id, span_id):
            labels[episode_id].update(of_span)
    rewards = {
        episode: _rewards(located[episode], labels[episode]) for episode in [*located, *(labels.keys() - located)]
    }
    return Joined(rewards, rejected)


def _rejection(score: Score, reason: str, episode_id: str = "") -> Rejected:
    ids = {
        "episode": episode_id,
        "response": score.response_id,
        "episode key": score.episode_key,
        "session": score.session_id,
    }
    named = ", ".join(f"{name} {value}" for name, value in ids.items() if value)
    detail = f"score {score.score_id} {score.name!r} = {score.value!r}" + (f" for {named}" if named else "")
    return Rejected(score.trace_id, score.span_id, reason, detail)


class _Index:
    """Where each id occurs; an index is built when the first score asks for it."""

    def __init__(self, episodes: Sequence[Episode]) -> None:
        self._episodes = episodes

    @cached_property
    def _responses(self) -> dict[str, list[tuple[_Target, str]]]:
        responses: dict[str, list[tuple[_Target, str]]] = defaultdict(list)
        for episode in self._episodes:
            for step in episode.steps:
                if step.span.response_id:
                    target = _Target(episode.episode_id, step.index)
                    responses[step.span.response_id].append((target, step.span.trace_id))
        return responses

    @cached_property
    def _keys(self) -> dict[str, _Target]:
        return {
            episode.episode_key: _Target(episode.episode_id, None) for episode in self._episodes if episode.episode_key
        }

    @cached_property
    def _spans(self) -> dict[SpanKey, _Target]:
        spans: dict[SpanKey, _Target] = {}
        for episode in self._episodes:
            whole = _Target(episode.episode_id, None)
            spans.update(dict.fromkeys([span.key for span in episode.context], whole))
            spans.update((step.span.key, _Target(episode.episode_id, step.index)) for step in episode.steps)
        return spans

    @cached_property
    def _traces(self) -> dict[str, set[str]]:
        return self._episodes_by(lambda span: (span.trace_id,))

    @cached_property
    def _sessions(self) -> dict[str, set[str]]:
        return self._episodes_by(lambda span: (span.session_id, span.conversation_id))

    def _episodes_by(self, ids_of: Callable[[Span], Iterable[str]]) -> dict[str, set[str]]:
        episodes: dict[str, set[str]] = defaultdict(set)
        for episode in self._episodes:
            for span in episode.spans:
                for identity in ids_of(span):
                    if identity:
                        episodes[identity].add(episode.episode_id)
        return episodes

    def episodes_of(self, trace_id: str, span_id: str) -> Iterable[str]:
        """The episode that a span belongs to; of a span that belongs to none, those of its trace."""
        target = self._spans.get((trace_id, span_id))
        return (target.episode_id,) if target else self._traces.get(trace_id, ())

    def locate(self, score: Score) -> _Target | str:
        """Return the target of a score, or the reason why it has none."""
        if score.response_id and (answers := self._responses.get(score.response_id)):
            nearby = [target for target, trace_id in answers if trace_id == score.trace_id]
            return _only(nearby or [target for target, _ in answers])
        if score.episode_key and score.episode_key in self._keys:
            return self._keys[score.episode_key]
        if score.span_id and (score.trace_id, score.span_id) in self._spans:
            return self._spans[score.trace_id, score.span_id]
        if score.trace_id and score.trace_id in self._traces:
            return _only([_Target(episode_id, None) for episode_id in self._traces[score.trace_id]])
        if score.session_id and score.session_id in self._sessions:
            return _only([_Target(episode_id, None) for episode_id in self._sessions[score.session_id]])
        return "score_without_episode"


def _only(targets: Sequence[_Target]) -> _Target | str:
    return targets[0] if len(targets) == 1 else "score_ambiguous"


def _rewards(items: Iterable[tuple[_Target, Score]], tags: Iterable[str]) -> Rewards:
    whole: dict[str, Score] = {}
    steps: dict[int, dict[str, float]] = defaultdict(dict)
    is_marked = dict.fromkeys(tags, True)
    newest_us = 0
    for target, score in items:
        newest_us = max(newest_us, score.ingested_us)
        if score.is_deleted:
            continue
        if score.name == MARK_NAME:
            is_marked[score.label] = score.value != 0
        elif target.step is None:
            whole[score.name] = score
        else:
            steps[target.step][score.name] = score.value
    breakdown = {name: score.value for name, score in whole.items()}
    value = main_reward(breakdown)
    if value is None and steps:
        per_step = [
            step_reward for _, scores in sorted(steps.items()) if (step_reward := main_reward(scores)) is not None
        ]
        value = math.fsum(per_step) / len(per_step) if per_step else None
    marks = tuple(sorted(label for label, marked in is_marked.items() if marked))
    named = whole.get(REWARD_NAME) or (next(iter(whole.values())) if len(whole) == 1 else None)
    return Rewards(value, breakdown, named.label if named else "", dict(steps), newest_us, marks)


def main_reward(breakdown: Mapping[str, float]) -> float | None:
    """The score named ``reward``, else the mean over names; None without any."""
    if REWARD_NAME in breakdown:
        return breakdown[REWARD_NAME]
    values = [breakdown[name] for name in sorted(breakdown)]
    return math.fsum(values) / len(values) if values else None
