"""Which of the gateway's captures belongs to which model call.

Invariant: a call gets a capture only when the choices of exactly one response fit. The response id decides where it is
known to both sides; else the caller's trace context. Several fitting captures (a client's retries), or several calls
that claim one, are ``ambiguous_capture``; a capture that contradicts itself or the call's token counts is
``token_mismatch``. Here a call gets the capture of its first choice; ``choices`` finds the one that was used.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

import msgspec
import polars as pl
from msgspec.structs import replace

from spanloop.converters.enums import UntrainableReason

from .. import frames
from ..spans import Problem, Span, SpanKind

BY_RESPONSE_ID: Final = "response_id"
BY_TRACEPARENT: Final = "traceparent"
IN_SPAN: Final = "span"
"""The call's own span carried the tokens; nothing was joined."""


class Generation(msgspec.Struct, frozen=True, gc=False):
    """One sampled choice, as the gateway captured it."""

    generation_id: str
    response_id: str
    choice_index: int
    trace_id: str
    parent_span_id: str
    policy_version: str
    tokenizer: str
    """Fingerprint of tokenizer and chat template; empty where the gateway did not know it."""
    row: int
    """Where ``Generations.tokens`` has its token ids and logprobs."""
    prompt_tokens: int
    response_tokens: int
    logprobs: int
    """Number of log-probabilities: one for each response token, when nothing is wrong."""
    finish_reason: str
    is_complete: bool
    sampling: tuple[tuple[str, str], ...]
    ingested_us: int


class Generations(NamedTuple):
    """Captures; their tokens stay in columns, because nothing ever looks at one of them by itself."""

    rows: pl.DataFrame
    """One row a generation with the columns of ``Generation``; of the lists their lengths, never null."""
    tokens: pl.DataFrame
    """``prompt_token_ids``, ``response_token_ids`` and ``logprobs`` (natural log), where ``rows`` says, never null."""

    @property
    def generations(self) -> list[Generation]:
        """The rows, one by one."""
        columns: dict[str, list[Any]] = {name: self.rows[name].to_list() for name in self.rows.columns}
        columns["sampling"] = [
            tuple((item["key"], item["value"]) for item in cast("list[dict[str, str]]", items))
            for items in columns["sampling"]
        ]
        return list(map(Generation, *columns.values()))


class Capture(msgspec.Struct, frozen=True, gc=False):
    """The capture of one model call."""

    generation: Generation | None
    join: str
    problem: Problem | None
    ingested_us: int
    """Newest of all captures that had a say; 0 without any."""
    choices: tuple[Generation, ...] = ()
    """The captures of all choices of the response, by index, where it has several; else empty."""

    @property
    def choice_count(self) -> int:
        """Number of choices of the response, as far as captures show; at least 1."""
        return self.choices[-1].choice_index + 1 if self.choices else 1

    def of_choice(self, call: Span, index: int) -> "Capture":
        """The capture of another choice of the response; without a generation where that one was not captured."""
        generation = next((choice for choice in self.choices if choice.choice_index == index), None)
        if generation is None:
            return self.without_generation()
        return replace(self, generation=generation, problem=_mismatch(call, generation, self))

    def without_generation(self) -> "Capture":
        """The capture of a call whose choice is known, and its tokens are not."""
        return replace(self, generation=None, problem=None)


_TOKENS: Final = ("prompt_token_ids", "response_token_ids", "logprobs")

NO_CAPTURE: Final = Capture(None, "", None, 0)


def read_generations(frame: pl.DataFrame) -> Generations:
    """All choices of each response in ``frame``; the newest row of each generation id counts."""
    given = frames.conform(frame, frames.GENERATIONS)
    tokens = given.select(_TOKENS)
    if any(tokens[name].null_count() for name in _TOKENS):
        tokens = tokens.with_columns(pl.all().fill_null([]))
    choices = given.select(
        pl.col("generation_id", "response_id").fill_null(""),
        pl.col("choice_index").fill_null(0),
        pl.col("trace_id", "parent_span_id", "policy_version", "tokenizer").fill_null(""),
        pl.int_range(pl.len()).alias("row"),
        *(tokens[name].list.len() for name in _TOKENS),
        pl.col("finish_reason").fill_null(""),
        pl.col("is_complete").fill_null(value=False),
        pl.col("sampling").fill_null([]),
        "ingested_at",
    )
    newest = choices
    if choices["generation_id"].n_unique() < choices.height:
        in_order = choices.sort("ingested_at", "generation_id")
        newest = in_order.unique("generation_id", keep="last", maintain_order=True)
    return Generations(newest.with_columns(pl.col("ingested_at").cast(pl.Int64).fill_null(0)), tokens)


def join_captures(spans: Sequence[Span], generations: Iterable[Generation]) -> dict[tuple[str, str], Capture]:
    """Model call → capture, for those calls for which something was found."""
    by_response: dict[str, list[Generation]] = defaultdict(list)
    by_context: dict[tuple[str, str], list[Generation]] = defaultdict(list)
    for generation in generations:
        if generation.response_id:
            by_response[generation.response_id].append(generation)
        if generation.trace_id and generation.parent_span_id:
            by_context[generation.trace_id, generation.parent_span_id].append(generation)
    if not by_response and not by_context:
        return {}
    calls = [span for span in spans if span.kind is SpanKind.LLM]
    claims: dict[str, int] = defaultdict(int)
    for call in calls:
        claims[call.response_id] += 1
    near = _near_captures(spans, by_context) if by_context else {}
    captures: dict[tuple[str, str], Capture] = {}
    for call in calls:
        fitting = by_response.get(call.response_id, []) if call.response_id else []
        if fitting and claims[call.response_id] == 1 and _is_one_response(fitting):
            captures[call.key] = checked(call, fitting, BY_RESPONSE_ID)
            continue
        nearby = near.get(call.key, ())
        if fitting:
            shared = [capture for capture in fitting if capture in nearby]
            claimed = 1 if shared else claims[call.response_id]
            captures[call.key] = _only(call, shared or fitting, BY_RESPONSE_ID, claims=claimed)
        elif nearby:
            captures[call.key] = _only(call, nearby, BY_TRACEPARENT)
    return captures


def _near_captures(
    spans: Sequence[Span], by_context: Mapping[tuple[str, str], Sequence[Generation]]
) -> dict[tuple[str, str], list[Generation]]:
    """Model call → captures of the trace contexts under which it may have called out: its own, an HTTP span's below."""
    near: dict[tuple[str, str], list[Generation]] = defaultdict(list)
    within = [span for span in spans if span.key in by_context]
    for kind in (SpanKind.LLM, SpanKind.OTHER):
        for span in within:
            if span.kind is kind:
                caller = span.key if kind is SpanKind.LLM else (span.trace_id, span.parent_span_id)
                near[caller] += by_context[span.key]
    return near


def _only(call: Span, fitting: Sequence[Generation], join: str, *, claims: int = 1) -> Capture:
    if claims == 1 and _is_one_response(fitting):
        return checked(call, fitting, join)
    named = ", ".join(sorted(capture.generation_id for capture in fitting)[:5])
    detail = (
        f"span {call.span_id}: {len(fitting)} captures ({named}) for {claims} calls by {join}, expected one for one"
    )
    problem = Problem(UntrainableReason.AMBIGUOUS_CAPTURE, detail)
    return Capture(None, join, problem, max(capture.ingested_us for capture in fitting))


def _is_one_response(fitting: Sequence[Generation]) -> bool:
    """Whether the captures are choices of one response, each of another one."""
    if len(fitting) == 1:
        return True
    response_ids = {capture.response_id for capture in fitting}
    return len(response_ids) == 1 and "" not in response_ids and _has_distinct_choices(fitting)


def _has_distinct_choices(fitting: Sequence[Generation]) -> bool:
    return len({capture.choice_index for capture in fitting}) == len(fitting)


def checked(call: Span, response: Sequence[Generation], join: str) -> Capture:
    """The capture of the first choice of ``response``, with what contradicts that it belongs to ``call``, if anything.

    Args:
        call: The model call.
        response: The captured choices of one response, in any order; at least one.
        join: How they were found.
    """
    choices = tuple(sorted(response, key=lambda choice: choice.choice_index)) if len(response) > 1 else (*response,)
    newest_us = max(choice.ingested_us for choice in choices)
    has_several = choices[-1].choice_index > 0
    capture = Capture(choices[0], join, None, newest_us, choices if has_several else ())
    problem = _mismatch(call, choices[0], capture)
    return capture if problem is None else replace(capture, problem=problem)


def _mismatch(call: Span, generation: Generation, capture: Capture) -> Problem | None:
    where = f"span {call.span_id}, generation {generation.generation_id}"
    ids = generation.response_tokens
    if not generation.is_complete:
        return Problem(UntrainableReason.INCOMPLETE_STREAM, f"{where}: the gateway saw the stream break off")
    if capture.join == IN_SPAN and ids and not generation.logprobs:
        detail = f"{where}: {ids} response tokens without log-probabilities; ask the engine for logprobs"
        return Problem(UntrainableReason.MISSING_LOGPROBS, detail)
    if generation.logprobs != ids:
        detail = f"{where}: {generation.logprobs} logprobs for {ids} response tokens, expected as many"
        return Problem(UntrainableReason.TOKEN_MISMATCH, detail)
    if not ids or not generation.prompt_tokens:
        detail = f"{where}: {generation.prompt_tokens} prompt and {ids} response tokens, expected some of each"
        return Problem(UntrainableReason.TOKEN_MISMATCH, detail)
    # APIs count the prompt once, and the tokens of all choices together.
    is_whole = len(capture.choices) == capture.choice_count if capture.choices else len(call.output) == 1
    sampled = sum(choice.response_tokens for choice in capture.choices) or ids
    counted = (
        ("gen_ai.usage.input_tokens", call.input_tokens, generation.prompt_tokens),
        ("gen_ai.usage.output_tokens", call.output_tokens, sampled),
    )
    for attribute, expected, captured in counted if is_whole else ():
        if expected and expected != captured:
            detail = f"{where}: {captured} tokens captured, attribute {attribute} says {expected}"
            return Problem(UntrainableReason.TOKEN_MISMATCH, detail)
    return None
