"""The conversion from end to end: frames in, frames out, nothing else touched.

Invariant: accepted + rejected = input. Every row of ``spans`` is exactly one transition or one row of ``rejected``;
spans that are no model call of their own count there as ``context``. Every score and judgement that no episode
takes is there too.
"""

import gc
from collections.abc import Collection, Generator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from spanloop.messages import MessageLog

from . import frames
from .attribution import attribute, decisive
from .errors.control_flow import without_control_flow
from .errors.error_texts import AnswerErrors
from .evaluations import Evaluations
from .judgements import NO_JUDGEMENTS, Judgements, PersonJudgement, join_judgements, read_judgements
from .linking import stitch
from .linking.affected_traces import transitive_traces
from .linking.continuation import is_recorded
from .linking.span_links import Links, kept_links, span_links
from .options import Options
from .reading.attributes import Attributes
from .reading.clock_skew import without_clock_skew
from .reading.duplicates import collapse
from .reading.normalise import normalise, read_spans
from .reading.processes import Processes
from .reading.span_events import with_event_tokens
from .rewards import (
    NO_REWARDS,
    Rewards,
    Tags,
    add_computed,
    join_scores,
    read_scores,
    scores_in_spans,
    tags_in_spans,
    with_judgements,
)
from .rows import Judged, group_of, has_ended, newest_us
from .spans import SpanKind
from .steps import Episode, Step, build_episode
from .tables import tables
from .tokens.captures import join_captures, read_generations
from .tokens.choices import CapturedTokens
from .tokens.span_tokens import join_carried, tokens_in_spans
from .tokens.trajectories import Extensions, extensions, merge
from .trainable import TRAINABLE_TEXT, abandoned, untrainable

CONTEXT: Final = "context"
"""The reason of spans that belong to an episode without being a model call: nothing is wrong with them."""

_SUCCESS_LABELS: Final = frozenset({"success", "succeeded", "pass", "passed", "correct", "resolved"})
_FAILURE_LABELS: Final = frozenset({"failure", "failed", "fail", "incorrect", "wrong", "unresolved"})
_LINKS: Final = ("Links.TraceId", "Links.SpanId")
_DEFAULTS: Final = Options()


class Converted(NamedTuple):
    """The tables' rows, each with exactly the columns of its schema in ``frames``."""

    episodes: pl.DataFrame
    transitions: pl.DataFrame
    trajectories: pl.DataFrame
    failures: pl.DataFrame
    rejected: pl.DataFrame
    """Rows of input that became no transition: trace_id, span_id, reason, detail."""
    open_joins: pl.DataFrame
    """Traces that one id names and that stay separate episodes, because nothing else says that they belong together:
    trace_id, span_id (of the call that answers the id; empty for a conversation id), other_trace_id, detail."""
    messages: pl.DataFrame
    """The messages that states of ``transitions`` refer to, by episode and number."""


def convert(
    spans: pl.DataFrame,
    *,
    scores: pl.DataFrame,
    generations: pl.DataFrame,
    logs: pl.DataFrame | None = None,
    judgements: pl.DataFrame | None = None,
    options: Options = _DEFAULTS,
    traces: frozenset[str] | None = None,
    stored_groups: Sequence[Collection[str]] = (),
) -> Converted:
    """Convert all of ``spans`` into episodes, transitions, token rows and failures.

    Args:
        spans: Rows of ``otel_traces`` with ``IngestedAt``, in any order, duplicates allowed.
        scores: Rows of ``scores``; withdrawn ones (``is_deleted``) count for the revision only.
        generations: Rows of ``generations``.
        logs: Rows of ``otel_logs``: messages and exceptions that instrumentors send as events beside their spans.
        judgements: Rows of ``judgements``, every version: what people say wins over scores and rules.
        options: What counts as success, and what joins traces.
        traces: Build only episodes that hold a span of one of these; the other spans are there to be stitched to, and
            those that are not come out nowhere. None builds all.
        stored_groups: Traces that were one episode so far. With one of them, and with one that shares an episode with
            one of ``traces``, all of them are built.

    Raises:
        polars.exceptions.PolarsError: When a column has a type that cannot be cast to its schema's.
    """
    with _without_cycle_collection():
        rows, scored = frames.conform(spans, frames.SPANS), frames.conform(scores, frames.SCORES)
        rows = with_event_tokens(rows, logs)
        attributes = Attributes(rows["SpanAttributes"])
        linked = spans.select(_LINKS) if set(_LINKS) <= set(spans.columns) else None
        scored = pl.concat([scored, scores_in_spans(rows, attributes, linked)])
        tags = tags_in_spans(rows, attributes)
        by_people = read_judgements(judgements) if judgements is not None else []
        batch = _Batch(rows, attributes, logs, generations, span_links(spans), Processes(spans), by_people)
        return _convert(batch, scored, tags, options, traces=traces, stored_groups=stored_groups)


class _Batch(NamedTuple):
    """The rows that are converted together."""

    rows: pl.DataFrame
    """Columns of ``frames.SPANS``."""
    attributes: Attributes
    """Attributes of ``rows``."""
    logs: pl.DataFrame | None
    generations: pl.DataFrame
    links: Links
    processes: Processes
    judgements: Sequence[PersonJudgement]


@contextmanager
def _without_cycle_collection() -> Generator[None]:
    """A conversion keeps what it makes until it ends, and makes no cycles: looking for them cost a fifth of it."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _convert(
    batch: _Batch,
    scores: pl.DataFrame,
    tags: Tags,
    options: Options,
    *,
    traces: frozenset[str] | None,
    stored_groups: Sequence[Collection[str]],
) -> Converted:
    log = MessageLog()
    normalised = normalise(batch.rows, batch.logs, batch.attributes)
    read = read_spans(normalised, log)
    spans = Evaluations(batch.rows, batch.attributes).without_judges(read)
    results = (span.tool_result for span in spans if span.kind is SpanKind.TOOL)
    answer_errors = AnswerErrors(chain(log.tool_answers(), results))
    collapsed = collapse(without_clock_skew(spans, batch.links), batch.processes)
    links = kept_links(batch.links, collapsed.kept)
    stitched = stitch(collapsed.spans, links, session_is_episode=options.session_is_episode)
    if traces is not None:
        twice = ({gone[0], kept[0]} for gone, kept in collapsed.kept.items())
        groups = ({span.trace_id for span in group.spans} for group in stitched.groups)
        traces = transitive_traces(traces, chain(stored_groups, twice, groups))
        groups_to_build = [group for group in stitched.groups if any(s.trace_id in traces for s in group.spans)]
        stitched = stitched._replace(groups=groups_to_build)
    captured = read_generations(batch.generations)
    captures = join_captures(collapsed.spans, captured.generations)
    in_spans = tokens_in_spans(batch.rows, batch.attributes)
    captures, tokens = join_carried(collapsed.spans, collapsed.kept, captured, captures, in_spans)
    captured_tokens = CapturedTokens(tokens)
    episodes = [
        build_episode(group, stitched, captures, captured_tokens, answer_errors)
        for group in map(without_control_flow, stitched.groups)
    ]
    goes_on = extensions((episode.steps for episode in episodes), tokens)
    by_people = join_judgements(episodes, batch.judgements, collapsed.kept)
    joined = join_scores(episodes, read_scores(scores), tags)
    joined = add_computed(joined, episodes, options.reward_functions, by_people.by_episode)
    judged = [
        judge(
            episode,
            joined.rewards.get(episode.episode_id, NO_REWARDS),
            options,
            goes_on,
            by_people.by_episode.get(episode.episode_id, NO_JUDGEMENTS),
        )
        for episode in episodes
    ]
    rejected = [
        *normalised.rejected,
        *collapsed.rejected,
        *stitched.rejected,
        *joined.rejected,
        *by_people.rejected,
    ]
    open_joins = [join for join in stitched.open_joins if traces is None or join.trace_id in traces]
    rejections = pl.concat([frames.REJECTED_ROWS.from_records(rejected), _context(episodes)])
    return Converted(
        **tables(judged, tokens),
        rejected=rejections.sort(rejections.columns),
        open_joins=frames.OPEN_JOIN_ROWS.from_records(open_joins),
    )


def judge(
    episode: Episode,
    rewards: Rewards,
    options: Options,
    goes_on: Extensions,
    judgements: Judgements = NO_JUDGEMENTS,
) -> Judged:
    """Attribute, decide what may be trained on, and merge tokens, for one episode; what people say wins."""
    if judgements is not NO_JUDGEMENTS:
        rewards = with_judgements(rewards, judgements)
    by_score = _scored_outcome(rewards, options)
    scored = judgements.outcome or by_score
    failures = attribute(
        episode,
        has_failed=scored == "failure",
        reward=rewards.value if scored == by_score else None,
        rules=options.rules,
        judgements=judgements,
    )
    decided_by = decisive(failures) if scored != "success" else None
    outcome = scored or ("failure" if decided_by and not has_ended(episode.steps[-1]) else "unknown")
    masked_by = decided_by if outcome == "failure" else None
    after = {step.continues: step for step in reversed(episode.steps)}
    # One without an answer may have been sent a part of the turn only.
    after |= {step.continues: step for step in reversed(episode.steps) if is_recorded(step.span)}
    problems = {
        step.index: problem
        for step in episode.steps
        if (
            problem := untrainable(
                step,
                masked_by,
                after.get(step.index) or (_at(episode.steps, step.following) if step.is_continued else None),
                _at(episode.steps, step.previous),
            )
        )
        is not None
    }
    if not options.train_abandoned_attempts:
        of_text = {index: problem for index, problem in problems.items() if problem.reason not in TRAINABLE_TEXT}
        problems = problems | abandoned(episode.steps) | of_text
    token_rows = tuple(merge(episode.steps, problems, goes_on))
    return Judged(
        episode=episode,
        revision=newest_us(episode, rewards),
        outcome=outcome,
        rewards=rewards,
        failures=failures,
        problems=problems,
        group_id=group_of(episode),
        token_rows=token_rows,
        judgement_ids=judgements.ids,
    )


def _at(steps: Sequence[Step], index: int | None) -> Step | None:
    return None if index is None else steps[index]


def _scored_outcome(rewards: Rewards, options: Options) -> str:
    """``success`` or ``failure`` as the scores say; empty without a score."""
    label = rewards.label.strip().lower()
    if label in _SUCCESS_LABELS:
        return "success"
    if label in _FAILURE_LABELS:
        return "failure"
    if rewards.value is None:
        return ""
    return "success" if rewards.value >= options.success_threshold else "failure"


def _context(episodes: Sequence[Episode]) -> pl.DataFrame:
    """Rejections of the spans of episodes that are no model calls."""
    spans = [span for episode in episodes for span in episode.context]
    counts = [len(episode.context) for episode in episodes]
    owners = pl.Series(np.repeat(np.arange(len(counts), dtype=np.uint32), counts))
    columns = {
        "trace_id": [span.trace_id for span in spans],
        "span_id": [span.span_id for span in spans],
        "kind": [str(span.kind) for span in spans],
        "owner": pl.Series([episode.episode_id for episode in episodes], dtype=pl.String).gather(owners),
    }
    detail = pl.format("{} span of episode {}", "kind", "owner").alias("detail")
    rows = pl.DataFrame(columns, schema_overrides=dict.fromkeys(columns, pl.String()))
    return rows.select("trace_id", "span_id", pl.lit(CONTEXT).alias("reason"), detail)
