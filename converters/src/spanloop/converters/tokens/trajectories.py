"""Steps → token rows: a step whose prompt is the row's tokens so far, token for token, extends the row.

Invariant: ``loss_mask``, ``logprobs`` and ``response_token_ids`` are always equally long; the mask is 1 exactly on
tokens that the policy sampled in a step that may be trained on, and never on a prompt or an observation.
``sampled_steps``, ``sampled_starts`` and ``sampled_ends`` tell which step sampled which of them. A step
extends only the row of the step before it in its thread, and only while that step is the row's last: a retry or a
branch starts a row of its own. Steps without exact tokens make no row.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
import polars as pl

from spanloop.converters.enums import RowStart

from .. import frames
from ..spans import Problem
from ..steps import Step
from .captures import Generation
from .row_starts import by_messages, by_tokens, common

Extensions = Mapping[tuple[int, int], RowStart | None]
"""Pairs of captures (rows of ``Generations.tokens``) → None where the second's prompt starts with all tokens of the
first, else what happened to the tokens, if the messages were left alone."""


class Segment(NamedTuple):
    """The tokens that one step adds to a row: its prompt from ``known`` on, then what was sampled."""

    capture: int
    """Row of ``Generations.tokens``."""
    known: int
    """Tokens of its prompt that the row has already."""
    is_trained_on: bool
    start: int
    """Position of the first sampled token in the row's response."""
    end: int
    """Position behind the last one."""


class Row(msgspec.Struct, gc=False):
    """A token row while it grows; finished when ``merge`` returns it."""

    steps: list[Step]
    row_start: RowStart
    prompt: int
    """Row of ``Generations.tokens`` whose prompt is the row's."""
    prompt_tokens: int
    length: int
    """Tokens so far, the prompt's included."""
    segments: list[Segment] = msgspec.field(default_factory=list[Segment])
    problems: list[Problem] = msgspec.field(default_factory=list[Problem])

    @property
    def is_trainable(self) -> bool:
        """Whether any token of the row may be trained on."""
        return any(segment.is_trained_on for segment in self.segments)

    def add(self, step: Step, sampled: Generation, problem: Problem | None) -> None:
        """Append a step: first what its prompt holds beyond the row, then what was sampled."""
        start = sampled.prompt_tokens - self.prompt_tokens
        end = start + sampled.response_tokens
        self.segments.append(Segment(sampled.row, self.length, problem is None, start, end))
        self.length = self.prompt_tokens + end
        if problem:
            self.problems.append(problem)
        if self.steps[-1] is not step:
            self.steps.append(step)


def merge(steps: Sequence[Step], problems: Mapping[int, Problem], extensions: Extensions) -> list[Row]:
    """The token rows of one episode, by their first step.

    Args:
        steps: All steps of the episode, in order.
        problems: Step → why it must not be trained on.
        extensions: See ``extensions``.
    """
    rows: list[Row] = []
    row_of: dict[int, Row] = {}
    agents: set[tuple[str, int]] = set()
    for step in steps:
        is_first = step.thread[:2] not in agents
        agents.add(step.thread[:2])
        sampled = exact_tokens(step)
        if sampled is None:
            continue
        before = None if step.previous is None else row_of.get(step.previous)
        place = RowStart.FIRST if is_first else _place(step, sampled, before, extensions)
        if isinstance(place, Row):
            row = place
        else:
            row = Row([step], place, sampled.row, sampled.prompt_tokens, sampled.prompt_tokens)
            rows.append(row)
        row.add(step, sampled, problems.get(step.index))
        row_of[step.index] = row
    return rows


def exact_tokens(step: Step) -> Generation | None:
    """Return the capture of this step when its tokens are known exactly and are whole."""
    sampled = step.capture.generation
    if sampled is None or not sampled.prompt_tokens or not sampled.response_tokens:
        return None
    return sampled if sampled.logprobs == sampled.response_tokens else None


def extensions(episodes: Iterable[Sequence[Step]], tokens: pl.DataFrame) -> dict[tuple[int, int], RowStart | None]:
    """The pairs of captures that ``merge`` will ask about: does the one go on where the other ended, and why not.

    Args:
        episodes: Steps of each episode, in order.
        tokens: ``Generations.tokens``.
    """
    row_pairs: list[tuple[int, int]] = []
    for steps in episodes if tokens.height else ():
        sampled = list(map(exact_tokens, steps))
        for step, other in zip(steps, sampled, strict=True):
            one = None if step.previous is None else sampled[step.previous]
            if one and other:
                row_pairs.append((one.row, other.row))
    if not row_pairs:
        return {}
    pairs = pl.DataFrame(row_pairs, schema={"one": pl.UInt32, "other": pl.UInt32}, orient="row")
    before, after = tokens[pairs["one"]], tokens[pairs["other"]]
    whole = before.select(pl.concat_list("prompt_token_ids", "response_token_ids").alias("whole"))["whole"]
    head = pl.DataFrame([whole, after["prompt_token_ids"]]).select(
        (pl.col("prompt_token_ids").list.head(pl.col("whole").list.len()) == pl.col("whole")).alias("goes_on")
    )["goes_on"]
    return {
        pair: None if goes_on else _mismatch(tokens, *pair)
        for pair, goes_on in zip(row_pairs, head.to_list(), strict=True)
    }


def _mismatch(tokens: pl.DataFrame, one: int, other: int) -> RowStart:
    prompts, responses = tokens["prompt_token_ids"], tokens["response_token_ids"]
    return by_tokens(prompts[one].to_list(), responses[one].to_list(), prompts[other].to_list())


def token_columns(rows: Sequence[Row], tokens: pl.DataFrame) -> list[pl.Series]:
    """The columns ``prompt_token_ids``, ``response_token_ids``, ``loss_mask`` and ``logprobs`` of trajectories.

    The mask is 1 where the policy sampled the token in a step that may be trained on; elsewhere logprobs are 0.
    """
    names = ("response_token_ids", "loss_mask", "logprobs")
    if not rows:
        return [pl.Series(name, dtype=frames.TRAJECTORIES[name]) for name in ("prompt_token_ids", *names)]
    prompts = tokens["prompt_token_ids"].gather([row.prompt for row in rows])
    added = [
        (number, segment.capture, segment.known, segment.is_trained_on)
        for number, row in enumerate(rows)
        for segment in row.segments
    ]
    schema = {"row": pl.UInt32, "capture": pl.UInt32, "known": pl.UInt32, "is_trained_on": pl.Boolean}
    segments = pl.DataFrame(added, schema=schema, orient="row")
    captured = segments.hstack(tokens[segments["capture"]])
    observed = pl.col("prompt_token_ids").list.slice(pl.col("known"))
    unseen, sampled = pl.col("observed").list.len(), pl.col("response_token_ids").list.len()
    zero = pl.lit(0.0, dtype=pl.Float32)
    added_tokens = captured.with_columns(observed.alias("observed")).select(
        "row",
        response_token_ids=pl.concat_list("observed", "response_token_ids"),
        loss_mask=pl.concat_list(
            pl.lit(0, dtype=pl.UInt8).repeat_by(unseen), pl.col("is_trained_on").cast(pl.UInt8).repeat_by(sampled)
        ),
        logprobs=pl.concat_list(
            zero.repeat_by(unseen),
            pl.when("is_trained_on").then("logprobs").otherwise(zero.repeat_by(sampled)),
        ),
    )
    joined = added_tokens.group_by("row", maintain_order=True).agg(pl.col(names).explode())
    return [prompts, *(joined[name].cast(frames.TRAJECTORIES[name]) for name in names)]


def _place(step: Step, sampled: Generation, before: Row | None, extensions: Extensions) -> Row | RowStart:
    """The row that a step extends, or why it begins one; for a step that is not its agent's first."""
    if step.previous is None:
        return RowStart.PROMPT_DIVERGED
    if before is None:
        return RowStart.NO_TOKENS
    last = before.steps[-1]
    if last.index != step.previous:
        return RowStart.BRANCH
    by_the_tokens = extensions[before.segments[-1].capture, sampled.row]
    return before if by_the_tokens is None else by_messages(last.span, step.span) or by_the_tokens


def shared_prompt_tokens(groups: pl.Series, prompts: pl.Series) -> pl.Series:
    """Number of tokens at the beginning that all rows of a group have in common: a trainer need compute them only once.

    Args:
        groups: Group id of each row.
        prompts: Prompt token ids of each row.

    Returns:
        UInt32, a number for each row; the same within a group. A row that is alone shares nothing: 0.
    """
    # What the smallest and the largest of some lists share, all between them share too.
    ends: dict[object, tuple[list[int], list[int], int]] = {}
    for group, prompt in zip(groups.to_list(), prompts.to_list(), strict=True):
        least, most, rows = ends.get(group, (prompt, prompt, 0))
        ends[group] = (min(least, prompt), max(most, prompt), rows + 1)
    shared = {group: common(least, most) if rows > 1 else 0 for group, (least, most, rows) in ends.items()}
    return pl.Series("shared_prompt_tokens", [shared[group] for group in groups.to_list()], dtype=pl.UInt32)
