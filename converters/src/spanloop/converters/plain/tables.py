"""Plain episodes → rows of the tables: columns out of columns.

Invariant: the same rows as ``rows`` makes of an episode without failures.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from spanloop.semconv import attributes as names
from spanloop.semconv.enums import RowStart, TokenSource, UntrainableReason

from .. import frames
from ..captures import BY_RESPONSE_ID, IN_SPAN
from ..options import CONVERTER_VERSION
from ..ragged import ragged
from ..rewards import Rewards, broadcast
from .episodes import Plain
from .screen import IS_SILENT

SAMPLING: Final = ("temperature", "top_p", "max_tokens", "seed")


class PlainTables(NamedTuple):
    """Rows of the tables, by trace; of failures there are none."""

    episodes: pl.DataFrame
    transitions: pl.DataFrame
    trajectories: pl.DataFrame
    context: pl.DataFrame
    """The spans that are no model call, with ``episode_id``."""


def tables(plain: Plain, tokens: pl.DataFrame, rewards: Sequence[Rewards], outcomes: Sequence[str]) -> PlainTables:
    """The rows of plain episodes.

    Args:
        plain: The episodes.
        tokens: Of all captures, where the calls' ``capture`` says.
        rewards: Of each episode.
        outcomes: Of each episode.
    """
    given = pl.Series([found.ingested_us for found in rewards], dtype=pl.Int64)
    calls = _with_reasons(_with_policy(plain.calls))
    whole = _with_steps(plain.episodes, calls, given)
    shared = ("episode", "episode_id", "revision", "task_id", "group_id")
    told = calls.drop("task_id").join(whole.select("trace", *shared), on="trace", how="left", maintain_order="left")
    breakdowns = _Breakdowns(rewards, told)
    return PlainTables(
        _episodes(whole, rewards, outcomes, breakdowns),
        _transitions(told, tokens, breakdowns),
        _trajectories(told, tokens, breakdowns, _agents_again(plain, told)),
        plain.context.join(whole.select("trace", "episode_id"), on="trace", how="left", maintain_order="left"),
    )


def _with_policy(calls: pl.DataFrame) -> pl.DataFrame:
    """``calls`` with the ``model`` and the ``policy`` that answered: see ``Step``."""
    versioned = pl.when(pl.col("response_model").str.contains("@", literal=True)).then("response_model")
    captured = pl.when(pl.col("captured_version") != "").then("captured_version")
    return calls.with_columns(
        policy=pl.coalesce(captured, versioned, pl.lit("")),
        model=pl.when(pl.col("response_model") != "").then("response_model").otherwise("request_model"),
    )


def _with_reasons(calls: pl.DataFrame) -> pl.DataFrame:
    """``calls`` with why each may not be trained on (``reason`` and ``detail``, both empty where it may)."""
    where = pl.format("span {}", "SpanId")
    is_silent, has_only_ids = IS_SILENT, pl.col("capture").is_not_null() & ~pl.col("is_exact")
    reason = (
        pl.when(is_silent | pl.col("is_orphan"))
        .then(pl.lit(UntrainableReason.MISSING_CONTENT.value))
        .when(has_only_ids)
        .then(pl.lit(UntrainableReason.MISSING_LOGPROBS.value))
        .otherwise(pl.lit(""))
    )
    detail = (
        pl.when(is_silent)
        .then(where + f", attribute {names.GEN_AI_INPUT_MESSAGES}: absent")
        .when("is_orphan")
        .then(where + f", attribute {names.GEN_AI_INPUT_MESSAGES}: answers a tool call that is not in it")
        .when(has_only_ids)
        .then(
            pl.format(
                "{}, generation {}/{}: {} response tokens without log-probabilities; ask the engine for logprobs",
                where,
                "TraceId",
                "SpanId",
                "response_tokens",
            )
        )
        .otherwise(pl.lit(""))
    )
    return calls.with_columns(reason.alias("reason"), detail.alias("detail"), is_silent.alias("is_silent"))


def _with_steps(episodes: pl.DataFrame, calls: pl.DataFrame, scored_us: pl.Series) -> pl.DataFrame:
    """``episodes`` with what their calls have in sum, and their revision."""
    steps = calls.group_by("trace", maintain_order=True).agg(
        pl.col("ServiceName", "agent").first(),
        *(pl.col(name).filter(pl.col(name) != "").first().fill_null("") for name in ("model", "policy")),
        pl.col("tool_call_count", "input_tokens", "output_tokens").cast(pl.UInt64).sum(),
        pl.col("captured_us").max().fill_null(0),
    )
    session = pl.when(pl.col("session_id") != "").then("session_id").otherwise("conversation_id")
    return (
        episodes.with_row_index("episode")
        .join(steps, on="trace", how="left", maintain_order="left")
        .with_columns(
            session.alias("session_id"),
            revision=pl.max_horizontal("ingested_us", "captured_us", scored_us),
        )
    )


class _Breakdowns:
    """Rewards of steps: those of their episodes, unless a step was scored itself."""

    def __init__(self, rewards: Sequence[Rewards], calls: pl.DataFrame) -> None:
        values = [found.value for found in rewards]
        parts = [dict(sorted(found.breakdown.items())) for found in rewards]
        places = calls["episode"].to_numpy().copy()
        if any(found.steps for found in rewards):
            episodes: list[int] = calls["episode"].to_list()
            for place, (episode, step) in enumerate(zip(episodes, calls["step"].to_list(), strict=True)):
                if step in rewards[episode].steps:
                    value, breakdown = broadcast(rewards[episode], step)
                    places[place] = len(values)
                    values.append(value)
                    parts.append(dict(sorted(breakdown.items())))
        self.parts = frames.maps("reward_breakdown", parts, frames.FLOAT_MAP)
        self.rewards = pl.Series("reward", values, dtype=pl.Float64)
        self.places = pl.Series("place", places, dtype=pl.UInt32)
        """Of each call, in the two above; that of an episode is its number."""


def _episodes(
    whole: pl.DataFrame, rewards: Sequence[Rewards], outcomes: Sequence[str], breakdowns: _Breakdowns
) -> pl.DataFrame:
    count = len(rewards)
    return _select(
        whole,
        frames.EPISODES,
        converter_version=pl.lit(CONVERTER_VERSION),
        service_name="ServiceName",
        agent_name="agent",
        policy_version="policy",
        trace_ids=pl.concat_list("TraceId"),
        started_at="started_ns",
        duration_ns=pl.col("ended_ns") - pl.col("started_ns"),
        step_count="calls",
        tool_error_count=pl.lit(0),
        outcome=pl.Series(outcomes, dtype=pl.String),
        reward=breakdowns.rewards.head(count),
        reward_breakdown=breakdowns.parts.head(count),
        is_terminated=~pl.col("is_silent"),
        is_truncated="is_silent",
        error_class=pl.lit(""),
        fault_owner=pl.lit(""),
    )


def _transitions(calls: pl.DataFrame, captured: pl.DataFrame, breakdowns: _Breakdowns) -> pl.DataFrame:
    tokens = {name: _gathered(captured[name], calls["capture"]) for name in captured.columns}
    is_captured, is_carried = pl.col("capture").is_not_null(), pl.col("is_carried").fill_null(value=False)
    return _select(
        calls,
        frames.TRANSITIONS,
        transition_id=pl.format("{}/{}", "episode_id", "step"),
        agent_name="agent",
        trace_id="TraceId",
        span_id="SpanId",
        policy_version="policy",
        reward=breakdowns.rewards.gather(breakdowns.places),
        reward_breakdown=breakdowns.parts.gather(breakdowns.places),
        is_terminated=pl.col("is_last") & ~pl.col("is_silent"),
        is_truncated=pl.col("is_last") & pl.col("is_silent"),
        sampling=_sampling(calls),
        token_source=pl.when(is_carried)
        .then(pl.lit(TokenSource.SPAN.value))
        .when(is_captured)
        .then(pl.lit(TokenSource.CAPTURED.value))
        .otherwise(pl.lit(TokenSource.NONE.value)),
        capture_join=pl.when(is_carried)
        .then(pl.lit(IN_SPAN))
        .when(is_captured)
        .then(pl.lit(BY_RESPONSE_ID))
        .otherwise(pl.lit("")),
        is_trainable=pl.col("reason") == "",
        untrainable_reason="reason",
        untrainable_detail="detail",
        tool_error_count=pl.lit(0),
        error_class=pl.lit(""),
        fault_owner=pl.lit(""),
        started_at="Timestamp",
        duration_ns="Duration",
        **tokens,
    )


def _gathered(lists: pl.Series, places: pl.Series) -> pl.Series:
    """The lists at ``places``, empty where that is null; tokens are heavy, and those in their place stay there."""
    if places.null_count():
        return lists.gather(places).fill_null([])
    in_place = lists.len() == places.len() and bool((places == pl.int_range(places.len(), eager=True)).all())
    return lists if in_place else lists.gather(places)


def _sampling(calls: pl.DataFrame) -> pl.Series:
    """The sampling parameters of each call: the capture's, with those that its span names over them."""
    # Most calls have no sampling of their own: what the captures say is told apart only where they say something.
    has_more = bool(calls["captured_sampling"].list.len().sum())
    told = (*SAMPLING, "captured_sampling") if has_more else SAMPLING
    key = pl.struct(*told).struct.json_encode() if has_more else pl.concat_str(*told, separator="\0")
    keys = calls.select(key.alias("key")).to_series()
    first = keys.arg_unique()
    captured: list[list[dict[str, str]] | None] = calls["captured_sampling"].gather(first).to_list()
    own = zip(*(calls[name].gather(first).to_list() for name in SAMPLING), strict=True)
    values = [
        {item["key"]: item["value"] for item in found or ()}
        | {name: value for name, value in zip(SAMPLING, told, strict=True) if value}
        for found, told in zip(captured, own, strict=True)
    ]
    places = keys.replace_strict(keys.gather(first), pl.int_range(first.len(), eager=True), return_dtype=pl.UInt32)
    return frames.maps("sampling", values, frames.STRING_MAP).gather(places)


def _agents_again(plain: Plain, calls: pl.DataFrame) -> list[int]:
    """The first calls of conversations of which the same agent, told by its system prompt, had another one before."""
    found: list[int] = []
    several = [lanes for lanes, talk in zip(plain.lanes, plain.talks, strict=True) if len(lanes) > 1 and not talk.said]
    if several:
        begun = calls.filter(~pl.col("continues"))
        agents = dict(zip(begun["first"].to_list(), begun["agent"].to_list(), strict=True))
        for lanes in several:
            seen: set[tuple[str, tuple[bytes, ...]]] = set()
            for lane in lanes:
                agent = (agents[lane.first], lane.start[:-1])
                if agent in seen:
                    found.append(lane.first)
                seen.add(agent)
    return found


def _trajectories(
    calls: pl.DataFrame, tokens: pl.DataFrame, breakdowns: _Breakdowns, again: Sequence[int]
) -> pl.DataFrame:
    """One row a conversation of which the tokens are known: in a plain one every call goes on where the last ended."""
    known = calls.with_columns(breakdowns.places).filter("is_exact").sort("first", "step")
    if known.is_empty():
        return frames.empty(frames.TRAJECTORIES)
    first, last = known.filter(~pl.col("continues")), known.filter(pl.col("is_last"))
    is_again = pl.col("first").is_in(list(again))
    number = pl.int_range(pl.len(), dtype=pl.UInt32).over("episode")
    return _select(
        first.with_columns(number.alias("row_number")),
        frames.TRAJECTORIES,
        trajectory_id=pl.format("{}/{}", "episode_id", "row_number"),
        agent_name="agent",
        policy_version="policy",
        first_step="step",
        last_step=last["step"],
        row_start=pl.when(is_again)
        .then(pl.lit(RowStart.PROMPT_DIVERGED.value))
        .otherwise(pl.lit(RowStart.FIRST.value)),
        reward=breakdowns.rewards.gather(last["place"]),
        is_trainable=pl.col("reason") == "",
        untrainable_reason="reason",
        **_token_columns(known, first["capture"], last["capture"], tokens),
    )


def _token_columns(
    calls: pl.DataFrame, first: pl.Series, last: pl.Series, tokens: pl.DataFrame
) -> dict[str, pl.Series]:
    """As ``trajectories.token_columns``: all tokens stand in the last call, what was sampled in each of them."""
    begun = tokens["prompt_token_ids"].gather(first)
    whole = pl.DataFrame([tokens["prompt_token_ids"].gather(last), tokens["response_token_ids"].gather(last)])
    after = whole.select(pl.concat_list(pl.all()).list.slice(pl.lit(begun.list.len())))
    sampled = calls["response_tokens"].to_numpy().astype(np.int64)
    ends = calls["prompt_tokens"].to_numpy().astype(np.int64) + sampled
    begins = ~calls["continues"].to_numpy()
    unseen = np.where(begins, 0, ends - sampled - np.roll(ends, 1))
    is_trained_on = calls.select(pl.col("reason") == "").to_series().to_numpy()
    parts = np.zeros(2 * len(sampled), dtype=np.uint8)
    parts[1::2] = is_trained_on
    mask = np.repeat(parts, np.stack([unseen, sampled], 1).ravel())
    logprobs = np.zeros(len(mask), dtype=np.float32)
    trained = calls["capture"].filter(pl.Series(is_trained_on))
    logprobs[mask == 1] = tokens["logprobs"].gather(trained).explode().to_numpy()
    lengths = np.add.reduceat(unseen + sampled, np.flatnonzero(begins))
    return {
        "prompt_token_ids": begun,
        "response_token_ids": after.to_series(),
        "loss_mask": ragged(mask, lengths),
        "logprobs": ragged(logprobs, lengths),
    }


def _select(frame: pl.DataFrame, schema: pl.Schema, **columns: pl.Expr | pl.Series | str) -> pl.DataFrame:
    """The columns of ``schema``: those given, else the ones of that name."""
    found = {name: columns.get(name, name) for name in schema}
    return frame.select(
        (pl.col(value) if isinstance(value, str) else pl.lit(value) if isinstance(value, pl.Series) else value)
        .cast(schema[name])
        .alias(name)
        for name, value in found.items()
    )
