"""Steps → token rows: a step whose prompt is the row's tokens so far, token for token, extends the row.

Invariant: ``loss_mask``, ``logprobs`` and ``response_token_ids`` are always equally long; the mask is 1 exactly on
tokens that the policy sampled in a step that may be trained on, and never on a prompt or an observation. A step
extends only the row of the step before it in its thread, and only while that step is the row's last: a retry or a
branch starts a row of its own. Steps without exact tokens make no row.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from spanloop.semconv.enums import RowStart

from .captures import Generation
from .spans import Problem
from .steps import Step


@dataclass(slots=True)
class Row:
    """A token row while it grows; finished when ``merge`` returns it."""

    steps: list[Step]
    row_start: RowStart
    prompt_token_ids: list[int]
    response_token_ids: list[int] = field(default_factory=list[int])
    loss_mask: list[int] = field(default_factory=list[int])
    """1 where the policy sampled the token; parallel to ``response_token_ids``."""
    logprobs: list[float] = field(default_factory=list[float])
    """0 where the mask is 0; parallel to ``response_token_ids``."""
    problems: list[Problem] = field(default_factory=list[Problem])

    @property
    def is_trainable(self) -> bool:
        """Whether any token of the row may be trained on."""
        return 1 in self.loss_mask

    def add(self, step: Step, sampled: Generation, problem: Problem | None) -> None:
        """Append a step: first what its prompt holds beyond the row, then what was sampled."""
        known = len(self.prompt_token_ids) + len(self.response_token_ids)
        observed = sampled.prompt_token_ids[known:]
        self.response_token_ids += observed
        self.loss_mask += [0] * len(observed)
        self.logprobs += [0.0] * len(observed)
        count = len(sampled.response_token_ids)
        self.response_token_ids += sampled.response_token_ids
        self.loss_mask += [0 if problem else 1] * count
        self.logprobs += [0.0] * count if problem else sampled.logprobs
        if problem:
            self.problems.append(problem)
        if self.steps[-1] is not step:
            self.steps.append(step)

    def is_prefix_of(self, prompt: Sequence[int]) -> bool:
        """Whether ``prompt`` starts with all of the row's tokens."""
        head, tail = len(self.prompt_token_ids), len(self.response_token_ids)
        return (
            len(prompt) >= head + tail
            and prompt[head : head + tail] == self.response_token_ids
            and prompt[:head] == self.prompt_token_ids
        )


def merge(steps: Sequence[Step], problems: Mapping[int, Problem]) -> list[Row]:
    """The token rows of one episode, by their first step.

    Args:
        steps: All steps of the episode, in order.
        problems: Step → why it must not be trained on.
    """
    rows: list[Row] = []
    row_of: dict[int, Row] = {}
    agents: set[tuple[str, bytes]] = set()
    for step in steps:
        is_first = step.thread[:2] not in agents
        agents.add(step.thread[:2])
        sampled = exact_tokens(step)
        if sampled is None:
            continue
        before = None if step.previous is None else row_of.get(step.previous)
        is_open = before is not None and before.steps[-1].index == step.previous
        if before is not None and is_open and before.is_prefix_of(sampled.prompt_token_ids):
            row = before
        else:
            row = Row([step], _row_start(step, before, is_first=is_first), sampled.prompt_token_ids)
            rows.append(row)
        row.add(step, sampled, problems.get(step.index))
        row_of[step.index] = row
    return rows


def exact_tokens(step: Step) -> Generation | None:
    """What was sampled in this step, when it is known exactly and is whole in itself."""
    sampled = step.capture.generation
    if sampled is None or not sampled.prompt_token_ids or not sampled.response_token_ids:
        return None
    return sampled if len(sampled.logprobs) == len(sampled.response_token_ids) else None


def _row_start(step: Step, before: Row | None, *, is_first: bool) -> RowStart:
    if is_first:
        return RowStart.FIRST
    if step.previous is None:
        return RowStart.PROMPT_DIVERGED
    if before is None:
        return RowStart.NO_TOKENS
    if step.continues == step.previous and before.steps[-1].index == step.previous:
        return RowStart.RETOKENISED
    return RowStart.PROMPT_DIVERGED
