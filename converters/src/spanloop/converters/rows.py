"""An episode and all that was found out about it → rows of the four tables.

Invariant: rows of one episode agree on id, revision, task and group. Nothing is decided here that another module
decides: this one spells out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from spanloop.converters.enums import TokenSource
from spanloop.messages import digest, dump

from .attribution import Failure, decisive, has_unrecorded_end, is_incomplete
from .captures import IN_SPAN, Generation
from .finish_reasons import LENGTH
from .options import CONVERTER_VERSION
from .rewards import Rewards, broadcast, own_reward
from .spans import Problem
from .steps import Episode, Step
from .tool_results import ToolResult
from .trajectories import Row, exact_tokens

Values = tuple[object, ...]

NO_ACTION: Final = '{"role":"assistant","parts":[]}'
"""The action of a call that gave none."""


@dataclass(frozen=True, slots=True)
class Judged:
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
    spans = max(span.ingested_us for span in episode.spans)
    captures = max(step.capture.ingested_us for step in episode.steps)
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
    return sum(not result.is_error for result in step.results) == len(span.output[0].tool_calls)


def episode_row(judged: Judged) -> Values:
    """A row of ``episodes``."""
    episode, steps = judged.episode, judged.episode.steps
    spans, first, last = episode.spans, episode.first_step, steps[-1]
    started_ns = min([span.start_ns for span in spans])
    decided_by = decisive(judged.failures) if judged.outcome != "success" else None
    return (
        episode.episode_id,
        judged.revision,
        CONVERTER_VERSION,
        episode.episode_key,
        episode.task_id,
        judged.group_id,
        episode.session_id,
        first.span.service_name,
        first.agent_name,
        next((step.model for step in steps if step.model), ""),
        next((step.policy_version for step in steps if step.policy_version), ""),
        sorted({span.trace_id for span in spans}),
        started_ns,
        max(span.end_ns for span in spans) - started_ns,
        len(steps),
        len(spans),
        sum(len(step.span.output[0].tool_calls) for step in steps if step.span.output),
        sum(result.is_error for step in steps for result in step.results),
        sum(step.span.input_tokens for step in steps),
        sum(step.span.output_tokens for step in steps),
        judged.outcome,
        judged.rewards.value,
        dict(sorted(judged.rewards.breakdown.items())),
        has_ended(last),
        not has_ended(last),
        str(decided_by.finding.error_class) if decided_by else "",
        str(decided_by.finding.owner) if decided_by else "",
        judged.rewards.marks,
    )


def transition_rows(judged: Judged) -> list[Values]:
    """Rows of ``transitions``, by step; in the place of its tokens the row of ``Generations.tokens`` that has them."""
    by_step: dict[int, Failure] = {}
    for failure in judged.failures:
        by_step.setdefault(failure.step.index, failure)
    shared = _Shared(
        judged.episode.task_id,
        judged.group_id,
        judged.rewards.value,
        dict(sorted(judged.rewards.breakdown.items())),
        [step.span.history.json for step in judged.episode.steps],
    )
    return [_transition(judged, step, by_step.get(step.index), shared) for step in judged.episode.steps]


class _Shared(NamedTuple):
    """What the transitions of an episode have in common."""

    task_id: str
    group_id: str
    reward: float | None
    breakdown: dict[str, float]
    """One object for all of them: see ``frames.maps``."""
    states: list[str]
    """Of each step."""


def _transition(judged: Judged, step: Step, failure: Failure | None, shared: _Shared) -> Values:
    episode_id, span = judged.episode.episode_id, step.span
    reward, breakdown = shared.reward, shared.breakdown
    if judged.rewards.steps:
        reward, told = broadcast(judged.rewards, step.index)
        breakdown = dict(sorted(told.items()))
    is_side = step.index in judged.episode.side_steps
    if is_side and step.index not in judged.rewards.steps:
        reward, breakdown = None, {}
    problem = judged.problems.get(step.index)
    tokens = _tokens(step)
    generation = step.capture.generation
    is_last = step.following is None and not is_side
    is_end = is_last and has_ended(step)
    return (
        f"{episode_id}/{step.index}",
        episode_id,
        judged.revision,
        step.index,
        shared.task_id,
        shared.group_id,
        step.agent_name,
        span.trace_id,
        span.span_id,
        span.response_id,
        step.model,
        step.policy_version,
        shared.states[step.index],
        span.tools,
        span.output[0].json if span.output else NO_ACTION,
        _written(step.results) if step.results else "[]",
        "" if step.following is None else shared.states[step.following],
        reward,
        breakdown,
        is_end,
        is_last and not is_end,
        span.finish_reason,
        _sampling(generation.sampling if generation else (), span.sampling),
        _token_source(step).value if tokens else TokenSource.NONE.value,
        step.capture.join,
        tokens.row if tokens else None,
        problem is None,
        problem.reason.value if problem else "",
        problem.detail if problem else _unused_choices(step),
        sum([result.is_error for result in step.results]),
        str(failure.finding.error_class) if failure else "",
        str(failure.finding.owner) if failure else "",
        span.input_tokens,
        span.output_tokens,
        span.start_ns,
        span.duration_ns,
    )


def _unused_choices(step: Step) -> str:
    """That a request had other choices, which nothing is trained on; empty where it had none."""
    unused = max(len(step.span.output), step.capture.choice_count) - 1
    return f"span {step.span.span_id}: choices of its output that are no steps: {unused}" if unused > 0 else ""


def _written(results: Sequence[ToolResult]) -> str:
    return dump([result.as_json() for result in results])


@lru_cache(maxsize=256)
def _sampling(captured: tuple[tuple[str, str], ...], own: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """What the engine sampled with; one object for all calls that agree.

    The span adds only what the capture lacks, since instrumentors write defaults that were not sent.
    """
    return {**dict(own), **dict(captured)}


def _tokens(step: Step) -> Generation | None:
    """The ids of this step, also where a span that carries them has no log-probabilities beside them."""
    found = step.capture.generation
    has_only_ids = found is not None and found.prompt_tokens and found.response_tokens and not found.logprobs
    return found if has_only_ids and step.capture.join == IN_SPAN else exact_tokens(step)


def _token_source(step: Step) -> TokenSource:
    return TokenSource.SPAN if step.capture.join == IN_SPAN else TokenSource.CAPTURED


def trajectory_rows(judged: Judged) -> list[Values]:
    """Rows of ``trajectories``, by row number, without their tokens (see ``token_columns``)."""
    task_id, group_id = judged.episode.task_id, judged.group_id
    return [_trajectory(judged, number, row, (task_id, group_id)) for number, row in enumerate(judged.token_rows)]


def _trajectory(judged: Judged, number: int, row: Row, ids: tuple[str, str]) -> Values:
    episode_id, first, last = judged.episode.episode_id, row.steps[0], row.steps[-1]
    return (
        f"{episode_id}/{number}",
        episode_id,
        judged.revision,
        number,
        *ids,
        first.agent_name,
        first.policy_version,
        first.index,
        last.index,
        str(row.row_start),
        [step.index for step in row.steps],
        [segment.start for segment in row.segments],
        [segment.end for segment in row.segments],
        [own_reward(judged.rewards, step.index) for step in row.steps],
        sorted({step.tokenizer for step in row.steps}),
        broadcast(judged.rewards, last.index)[0],
        row.is_trainable,
        "" if row.is_trainable else str(row.problems[0].reason),
    )


def failure_rows(judged: Judged) -> list[Values]:
    """Rows of ``failures``, in the order of steps."""
    episode_id = judged.episode.episode_id
    return [
        (
            f"{episode_id}/{number}",
            episode_id,
            judged.revision,
            judged.episode.task_id,
            failure.trace_id,
            failure.span_id,
            failure.step.index,
            failure.step.agent_name,
            failure.tool_name,
            failure.step.model,
            failure.step.policy_version,
            str(failure.finding.error_class),
            str(failure.finding.owner),
            failure.is_recovered,
            failure.finding.message,
            dump(failure.finding.evidence),
            failure.finding.confidence,
            failure.rule,
            failure.fingerprint,
            failure.occurred_ns,
        )
        for number, failure in enumerate(judged.failures)
    ]
