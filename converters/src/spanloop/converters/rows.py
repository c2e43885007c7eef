"""Columns of the four tables, by name, from judged episodes.

Invariant: rows of one episode agree on id, revision, task and group. Nothing is decided here that another module
decides. A column is a list over all rows: polars takes it as it is, and a row costs no object of its own.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import chain
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
import numpy as np
import polars as pl

from spanloop.converters.enums import TokenSource
from spanloop.foundation.tables.episodes import EPISODES
from spanloop.messages import digest, dump

from .attribution import Failure, decisive, has_unrecorded_end, is_incomplete
from .options import CONVERTER_VERSION
from .reading.arrow_lists import list_column
from .reading.finish_reasons import LENGTH
from .rewards import Rewards, broadcast, step_reward
from .spans import Problem
from .steps import Episode, Step
from .tokens.captures import IN_SPAN, Generation
from .tokens.message_numbers import NO_STATE, MessageNumbers, Ranges
from .tokens.trajectories import Row, exact_tokens, token_columns

_Value = TypeVar("_Value")

Columns = dict[str, Sequence[object] | pl.Series]
"""The columns of a table by name, all of one length."""

NO_ACTION: Final = '{"role":"assistant","parts":[]}'
"""The action of a call that gave none."""


class Judged(msgspec.Struct, frozen=True, gc=False):
    """One episode with its rewards, failures, problems and token rows."""

    episode: Episode
    revision: int
    outcome: str
    rewards: Rewards
    failures: tuple[Failure, ...]
    problems: Mapping[int, Problem]
    token_rows: tuple[Row, ...]
    group_id: str
    """See ``group_of``."""
    judgement_ids: tuple[str, ...] = ()
    """Judgements of people that count, sorted."""


def group_of(episode: Episode) -> str:
    """The task id, else a hash of what the episode started from: system prompt, tools, first user message.

    An episode of which neither is known is a group of its own.
    """
    task_id = episode.task_id
    if task_id:
        return task_id
    first = episode.first_step.span
    if not first.input:
        return episode.episode_id
    start: list[str] = [first.tools]
    for message in first.input:
        if message.role in {"system", "user"}:
            start.append(f"{message.role}:{message.digest.hex()}")
        if message.role == "user":
            break
    return digest(start).hex()


def newest_us(episode: Episode, rewards: Rewards) -> int:
    """The revision: ingestion time of the newest member, its scores and captures included, microseconds."""
    spans = max([span.ingested_us for span in episode.spans])
    captures = max([step.capture.ingested_us for step in episode.steps])
    return max(spans, captures, rewards.ingested_us)


def has_ended(step: Step) -> bool:
    """Whether the step is an end: an answer that was not cut off and whose tool calls, if any, all worked.

    An answer that is not recorded is an end where the model ended it by itself.
    """
    span = step.span
    if has_unrecorded_end(step):
        return True
    if span.has_failed or is_incomplete(step) or not span.output or span.finish_reason == LENGTH:
        return False
    hosted = {response.id for response in span.output[0].tool_responses}
    done = sum(not result.is_error or result.tool_call_id in hosted for result in step.results)
    return done == len(span.output[0].tool_calls)


def episode_columns(judged: Sequence[Judged]) -> Columns:
    """Columns of ``episodes``, a row for each episode."""
    episodes = [each.episode for each in judged]
    first = [episode.first_step for episode in episodes]
    spans = [episode.spans for episode in episodes]
    starts_ns = [min([span.start_ns for span in each]) for each in spans]
    ended = [has_ended(episode.steps[-1]) for episode in episodes]
    decided_by = [decisive(each.failures) if each.outcome != "success" else None for each in judged]
    return {
        "episode_id": [episode.episode_id for episode in episodes],
        "revision": [each.revision for each in judged],
        "converter_version": [CONVERTER_VERSION] * len(judged),
        "episode_key": [episode.episode_key for episode in episodes],
        "task_id": [episode.task_id for episode in episodes],
        "group_id": [each.group_id for each in judged],
        "session_id": [episode.session_id for episode in episodes],
        "service_name": [step.span.service_name for step in first],
        "agent_name": [step.agent_name for step in first],
        "model": [next((step.model for step in episode.steps if step.model), "") for episode in episodes],
        "policy_version": [
            next((step.policy_version for step in episode.steps if step.policy_version), "") for episode in episodes
        ],
        "trace_ids": [sorted({span.trace_id for span in each}) for each in spans],
        "started_at": starts_ns,
        "duration_ns": [
            max([span.end_ns for span in each]) - start_ns for each, start_ns in zip(spans, starts_ns, strict=True)
        ],
        "step_count": [len(episode.steps) for episode in episodes],
        "span_count": [len(each) for each in spans],
        "tool_call_count": [
            sum([len(step.span.output[0].tool_calls) for step in episode.steps if step.span.output])
            for episode in episodes
        ],
        "tool_error_count": [sum([_error_count(step) for step in episode.steps]) for episode in episodes],
        "input_tokens": [sum([step.span.input_tokens for step in episode.steps]) for episode in episodes],
        "output_tokens": [sum([step.span.output_tokens for step in episode.steps]) for episode in episodes],
        "outcome": [each.outcome for each in judged],
        "reward": [each.rewards.value for each in judged],
        "reward_breakdown": [_breakdown(each.rewards.breakdown) for each in judged],
        "is_terminated": ended,
        "is_truncated": [not is_end for is_end in ended],
        "error_class": [str(failure.finding.error_class) if failure else "" for failure in decided_by],
        "fault_owner": [str(failure.finding.owner) if failure else "" for failure in decided_by],
        "marks": [each.rewards.marks for each in judged],
        "judgements": [each.judgement_ids for each in judged],
    }


class _StepReward(NamedTuple):
    """The reward of a step, and its components."""

    value: float | None
    breakdown: dict[str, float]
    """One object for all steps that agree: see `map_series`."""


class NumberedStates(NamedTuple):
    """The states of an episode's steps as ranges of its messages' numbers."""

    messages: list[str]
    """JSON by number."""
    states: list[Ranges]
    next_states: list[Ranges]


def numbered_states(episode: Episode) -> NumberedStates:
    """Number the messages of an episode."""
    numbers = MessageNumbers()
    states: list[Ranges] = []
    next_states: list[Ranges] = []
    for step in episode.steps:
        states.append(numbers.add(step.span.history))
        following = None if step.following is None else episode.steps[step.following].span.history
        next_states.append(NO_STATE if following is None else numbers.add(following))
    return NumberedStates(numbers.messages, states, next_states)


def message_columns(judged: Sequence[Judged], numbered: Sequence[NumberedStates]) -> Columns:
    """Columns of ``episode_messages``, a row for each message of each episode."""
    counts = [len(each.messages) for each in numbered]
    places = pl.Series(np.repeat(np.arange(len(counts), dtype=np.uint32), counts))
    return {
        "episode_id": pl.Series([each.episode.episode_id for each in judged], dtype=pl.String)[places],
        "revision": pl.Series([each.revision for each in judged], dtype=pl.UInt64)[places],
        "number": [number for count in counts for number in range(count)],
        "message": [text for each in numbered for text in each.messages],
    }


def _range_column(ranges: Sequence[Ranges]) -> pl.Series:
    numbers = np.fromiter(chain.from_iterable(ranges), dtype=np.uint32)
    return list_column(numbers, np.fromiter(map(len, ranges), dtype=np.int64))


def transition_columns(judged: Sequence[Judged], numbered: Sequence[NumberedStates], tokens: pl.DataFrame) -> Columns:
    """Columns of ``transitions``, a row for each step; ``tokens`` are those of ``Generations``."""
    steps = [step for each in judged for step in each.episode.steps]
    outputs = [step.span.output for step in steps]
    generations = [step.capture.generation for step in steps]
    sampled = [_tokens(step) for step in steps]
    failures = [failure for each in judged for failure in _by_step(each, _first_failures(each))]
    problems = [problem for each in judged for problem in _by_step(each, each.problems)]
    rewards = [reward for each in judged for reward in _step_rewards(each)]
    is_last = [
        step.following is None and step.index not in each.episode.side_steps
        for each in judged
        for step in each.episode.steps
    ]
    is_end = [is_end and has_ended(step) for is_end, step in zip(is_last, steps, strict=True)]
    return {
        "transition_id": [f"{each.episode.episode_id}/{step.index}" for each in judged for step in each.episode.steps],
        **_of_episodes(judged),
        "step": _column(steps, "index"),
        "agent_name": _column(steps, "agent_name"),
        "trace_id": _column(steps, "span.trace_id"),
        "span_id": _column(steps, "span.span_id"),
        "response_id": _column(steps, "span.response_id"),
        "model": _column(steps, "model"),
        "policy_version": _column(steps, "policy_version"),
        "state": _range_column([ranges for each in numbered for ranges in each.states]),
        "tools": _column(steps, "span.tools"),
        "action": [output[0].json if output else NO_ACTION for output in outputs],
        "tool_results": [dump([each.as_json() for each in step.results]) if step.results else "[]" for step in steps],
        "next_state": _range_column([ranges for each in numbered for ranges in each.next_states]),
        "reward": _column(rewards, "value"),
        "reward_breakdown": _column(rewards, "breakdown"),
        "is_terminated": is_end,
        "is_truncated": [last and not end for last, end in zip(is_last, is_end, strict=True)],
        "finish_reason": _column(steps, "span.finish_reason"),
        "sampling": [
            _sampling(generation.sampling if generation else (), step.span.sampling)
            for generation, step in zip(generations, steps, strict=True)
        ],
        "token_source": [
            _token_source(step).value if generation else TokenSource.NONE.value
            for generation, step in zip(sampled, steps, strict=True)
        ],
        "capture_join": _column(steps, "capture.join"),
        **_gather_tokens(sampled, tokens),
        "is_trainable": [problem is None for problem in problems],
        "untrainable_reason": [problem.reason.value if problem else "" for problem in problems],
        "untrainable_detail": [
            problem.detail if problem else _unused_choices(step) for problem, step in zip(problems, steps, strict=True)
        ],
        "tool_error_count": [_error_count(step) if step.results else 0 for step in steps],
        "error_class": [str(failure.finding.error_class) if failure else "" for failure in failures],
        "fault_owner": [str(failure.finding.owner) if failure else "" for failure in failures],
        "input_tokens": _column(steps, "span.input_tokens"),
        "output_tokens": _column(steps, "span.output_tokens"),
        "started_at": _column(steps, "span.start_ns"),
        "duration_ns": _column(steps, "span.duration_ns"),
        "cached_tokens": _column(steps, "span.cached_tokens"),
        "first_token_ns": _column(steps, "span.first_token_ns"),
        "result_tools": [[name for name, _ in step.tool_runs] for step in steps],
        "result_durations_ns": [[duration_ns for _, duration_ns in step.tool_runs] for step in steps],
    }


def _column(items: Sequence[object], path: str) -> list[Any]:
    """The values of an attribute of each item; the path may have dots."""
    return list(map(attrgetter(path), items))


def _of_episodes(judged: Sequence[Judged]) -> dict[str, pl.Series]:
    """The columns that all steps of an episode agree on."""
    counts = [len(each.episode.steps) for each in judged]
    places = pl.Series(np.repeat(np.arange(len(counts), dtype=np.uint32), counts))
    return {
        name: pl.Series(_column(judged, path), dtype=EPISODES[name].dtype)[places]
        for name, path in (
            ("episode_id", "episode.episode_id"),
            ("revision", "revision"),
            ("task_id", "episode.task_id"),
            ("group_id", "group_id"),
        )
    }


def _by_step(judged: Judged, values: Mapping[int, _Value]) -> list[_Value | None]:
    """The value of each step; None for a step without one."""
    count = len(judged.episode.steps)
    return [values.get(index) for index in range(count)] if values else [None] * count


def _first_failures(judged: Judged) -> dict[int, Failure]:
    return {failure.step.index: failure for failure in reversed(judged.failures)}


def _step_rewards(judged: Judged) -> list[_StepReward]:
    rewards, steps = judged.rewards, judged.episode.steps
    side_steps = judged.episode.side_steps.difference(rewards.steps)
    whole = _StepReward(rewards.value, _breakdown(rewards.breakdown))
    of_steps = [whole] * len(steps)
    for index in rewards.steps.keys() & range(len(steps)) if rewards.steps else ():
        value, breakdown = broadcast(rewards, index)
        of_steps[index] = _StepReward(value, _breakdown(breakdown))
    for index in side_steps:
        of_steps[index] = _StepReward(None, {})
    return of_steps


def _breakdown(by_name: Mapping[str, float]) -> dict[str, float]:
    return dict(sorted(by_name.items()))


def _error_count(step: Step) -> int:
    return sum([result.is_error for result in step.results])


def _gather_tokens(sampled: Sequence[Generation | None], tokens: pl.DataFrame) -> dict[str, pl.Series]:
    """The tokens of each step's capture; empty lists for a step without one."""
    captures = pl.Series([generation.row if generation else None for generation in sampled], dtype=pl.UInt32)
    columns = tokens[captures]
    return (columns.with_columns(pl.all().fill_null([])) if captures.null_count() else columns).to_dict()


def _unused_choices(step: Step) -> str:
    """That a request had other choices, which nothing is trained on; empty where it had none."""
    unused = max(len(step.span.output), step.capture.choice_count) - 1
    return f"span {step.span.span_id}: choices of its output that are no steps: {unused}" if unused > 0 else ""


@lru_cache(maxsize=256)
def _sampling(captured: tuple[tuple[str, str], ...], requested: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """Return the engine's sampling parameters; one object for all calls that agree.

    The span adds only what the capture lacks, since instrumentors write defaults that were not sent.
    """
    return {**dict(requested), **dict(captured)}


def _tokens(step: Step) -> Generation | None:
    """The ids of this step, also where a span that carries them has no log-probabilities beside them."""
    generation = step.capture.generation
    has_only_ids = (
        generation is not None and generation.prompt_tokens and generation.response_tokens and not generation.logprobs
    )
    return generation if has_only_ids and step.capture.join == IN_SPAN else exact_tokens(step)


def _token_source(step: Step) -> TokenSource:
    return TokenSource.SPAN if step.capture.join == IN_SPAN else TokenSource.CAPTURED


def trajectory_columns(judged: Sequence[Judged], tokens: pl.DataFrame) -> Columns:
    """Columns of ``trajectories``, a row for each token row; ``tokens`` are those of ``Generations``."""
    numbered = [(each, number, row) for each in judged for number, row in enumerate(each.token_rows)]
    owners, rows = [each for each, _, _ in numbered], [row for _, _, row in numbered]
    return {
        "trajectory_id": [f"{each.episode.episode_id}/{number}" for each, number, _ in numbered],
        "episode_id": [each.episode.episode_id for each in owners],
        "revision": [each.revision for each in owners],
        "row_number": [number for _, number, _ in numbered],
        "task_id": [each.episode.task_id for each in owners],
        "group_id": [each.group_id for each in owners],
        "agent_name": [row.steps[0].agent_name for row in rows],
        "policy_version": [row.steps[0].policy_version for row in rows],
        "first_step": [row.steps[0].index for row in rows],
        "last_step": [row.steps[-1].index for row in rows],
        "row_start": [str(row.row_start) for row in rows],
        **{column.name: column for column in token_columns(rows, tokens)},
        "sampled_steps": [[step.index for step in row.steps] for row in rows],
        "sampled_starts": [[segment.start for segment in row.segments] for row in rows],
        "sampled_ends": [[segment.end for segment in row.segments] for row in rows],
        "step_rewards": [[step_reward(each.rewards, step.index) for step in row.steps] for each, _, row in numbered],
        "tokenizers": [sorted({step.tokenizer for step in row.steps}) for row in rows],
        "reward": [broadcast(each.rewards, row.steps[-1].index)[0] for each, _, row in numbered],
        "is_trainable": [row.is_trainable for row in rows],
        "untrainable_reason": ["" if row.is_trainable else str(row.problems[0].reason) for row in rows],
    }


def failure_columns(judged: Sequence[Judged]) -> Columns:
    """Columns of ``failures``, in the order of steps."""
    numbered = [(each, number, failure) for each in judged for number, failure in enumerate(each.failures)]
    owners, failures = [each for each, _, _ in numbered], [failure for _, _, failure in numbered]
    findings = [failure.finding for failure in failures]
    return {
        "failure_id": [f"{each.episode.episode_id}/{number}" for each, number, _ in numbered],
        "episode_id": [each.episode.episode_id for each in owners],
        "revision": [each.revision for each in owners],
        "task_id": [each.episode.task_id for each in owners],
        "trace_id": [failure.trace_id for failure in failures],
        "span_id": [failure.span_id for failure in failures],
        "step": [failure.step.index for failure in failures],
        "agent_name": [failure.step.agent_name for failure in failures],
        "tool_name": [failure.tool_name for failure in failures],
        "model": [failure.step.model for failure in failures],
        "policy_version": [failure.step.policy_version for failure in failures],
        "error_class": [str(finding.error_class) for finding in findings],
        "fault_owner": [str(finding.owner) for finding in findings],
        "is_recovered": [failure.is_recovered for failure in failures],
        "message": [finding.message for finding in findings],
        "evidence": [dump(finding.evidence) for finding in findings],
        "confidence": [finding.confidence for finding in findings],
        "rule": [failure.rule for failure in failures],
        "fingerprint": [failure.fingerprint for failure in failures],
        "occurred_at": [failure.occurred_ns for failure in failures],
    }
