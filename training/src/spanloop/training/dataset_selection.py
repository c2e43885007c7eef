"""Select the stored rows that a job trains on; reject the others with a reason.

Invariant: for rows, episodes and groups, accepted plus rejected (by reason) equals the input. Pure functions: a frame
in, frames and counts out.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

import polars as pl

from spanloop.semconv.enums import JobKind

from .row_age import too_old
from .sampling import sampling_of

REWARD_TOLERANCE: Final = 1e-6
"""Rewards of a group that lie closer together than this do not vary."""


class Rejection(StrEnum):
    """Why a row, an episode or a group is rejected; a row may also have the converter's ``UntrainableReason``."""

    NO_TRAJECTORY = "no_trajectory"
    """The episode has no token rows: nothing was captured."""
    UNTRAINABLE = "untrainable"
    """The converter refused the row without naming a reason."""
    MALFORMED = "malformed_row"
    """Arrays that should run parallel have different lengths, or prompt or response is empty."""
    NO_SAMPLED_TOKENS = "no_sampled_tokens"
    """The loss mask has no 1: the policy sampled nothing in this row."""
    NO_LOGPROBS = "no_logprobs"
    """grpo: the sampler's log-probabilities are missing or not finite."""
    UNKNOWN_TOKEN = "token_outside_vocabulary"  # noqa: S105 - a reason, not a secret
    """A token id that the base model does not have: the row was sampled by another family of models."""
    PROMPT_TOO_LONG = "prompt_too_long"
    RESPONSE_TOO_LONG = "response_too_long"
    CONTEXT_TOO_LONG = "longer_than_context"
    """Prompt and response together exceed what the base model can attend to."""
    GREEDY_SAMPLING = "greedy_sampling"
    """grpo: sampled at temperature 0, where the policy had no choice that a ratio could weigh."""
    TRUNCATED_SAMPLING = "truncated_sampling"
    """grpo: top_p, top_k, min_p, a penalty, a bias or a forced format bent the distribution that was sampled from."""
    OTHER_TEMPERATURE = "other_temperature"
    """grpo: the row's steps were not all sampled at the temperature that most rows of the job have."""
    NO_REWARD = "no_reward"
    """The episode was never scored, or its score is not a finite number."""
    BELOW_MIN_REWARD = "below_min_reward"
    TOO_OLD = "row_too_old"
    """More versions or days before the base than the job allows."""
    NOT_SUCCESSFUL = "not_successful"
    """sft: the episode's outcome is not ``success``, and the job takes only those."""
    NO_GROUP = "no_group"
    """grpo: the episode belongs to no group."""
    GROUP_TOO_SMALL = "group_too_small"
    """grpo: fewer than two episodes to compare."""
    REWARD_CONSTANT = "reward_constant"
    """grpo: all episodes of the group earned the same, so every advantage is zero."""
    NO_TRAINABLE_EPISODE = "no_trainable_episode"
    """grpo: every episode of the group was rejected for a reason of its own."""


class Rules(NamedTuple):
    """Limits of what a job can train on."""

    kind: JobKind
    max_prompt_tokens: int
    max_response_tokens: int
    context_tokens: int
    """Positions of the base model; prompt and response together."""
    vocabulary_size: int
    group_size: int
    """grpo: at most this many episodes in a group; a larger group becomes several of nearly equal size."""
    min_reward: float | None = None
    """sft: None takes every reward, and episodes without one."""
    max_age_versions: int | None = None
    max_age_days: float | None = None
    only_successful: bool = False
    """sft: only episodes whose outcome is ``success``."""


class Tally(NamedTuple):
    """Numbers of accepted items, and of rejected ones by reason."""

    accepted: int
    rejected: Mapping[str, int]

    @property
    def total(self) -> int:
        """The number of input items."""
        return self.accepted + sum(self.rejected.values())

    def __str__(self) -> str:
        reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(self.rejected.items()))
        return f"{self.accepted} of {self.total} accepted" + (f" (rejected: {reasons})" if reasons else "")


class Selection(NamedTuple):
    """Accepted rows, and the counts of all input."""

    rows: pl.DataFrame
    """The accepted input rows; grpo: with ``group_id`` made unique for each part of a split group and ``session``,
    the episode's number within it."""
    row_tally: Tally
    episode_tally: Tally
    group_tally: Tally
    """Input groups; a split group is accepted when any of its parts is."""
    temperature: float | None
    """grpo: the temperature of all accepted rows; None for sft, and when no row was accepted."""


def select_rows(frame: pl.DataFrame, rules: Rules) -> Selection:
    """Apply ``rules`` to the rows of the query ``training_trajectories``."""
    temperature = None
    checked = _with_sampling(frame).with_columns(reason=_row_reason(rules))
    if rules.kind is JobKind.GRPO:
        temperature = _most_common_temperature(checked)
        checked = _check_groups(_check_temperature(checked, temperature), rules.group_size)
    else:
        checked = checked.with_columns(session=pl.lit(0, pl.UInt32), part=pl.col("group_id"))
    accepted = checked.filter(pl.col("reason") == "").with_columns(group_id=pl.col("part")).drop("part", "reason")
    return Selection(
        rows=accepted.sort("group_id", "session", "row_number"),
        row_tally=_tally(checked, "reason"),
        episode_tally=_tally(_first_unless_accepted(checked, "episode_id"), "reason"),
        group_tally=_tally(_group_reasons(checked, rules.kind), "reason"),
        temperature=temperature if accepted.height else None,
    )


def _with_sampling(frame: pl.DataFrame) -> pl.DataFrame:
    samplings = [sampling_of(steps or ()) for steps in frame["sampling"].to_list()]
    return frame.with_columns(
        pl.Series("temperature", [sampling.temperature for sampling in samplings], dtype=pl.Float64),
        pl.Series("is_truncated", [sampling.is_truncated for sampling in samplings], dtype=pl.Boolean),
    )


def _most_common_temperature(checked: pl.DataFrame) -> float | None:
    """Return the most common temperature of rows that break no rule; the higher of two equally common ones."""
    usable = checked.filter(pl.col("reason") == "").group_by("temperature").len().sort("len", "temperature")
    return float(usable["temperature"][-1]) if usable.height else None


def _check_temperature(checked: pl.DataFrame, temperature: float | None) -> pl.DataFrame:
    is_other = (pl.col("reason") == "") & (pl.col("temperature") != pl.lit(temperature, pl.Float64))
    reason = pl.when(is_other).then(pl.lit(Rejection.OTHER_TEMPERATURE.value)).otherwise(pl.col("reason"))
    return checked.with_columns(reason=reason)


def _row_reason(rules: Rules) -> pl.Expr:
    """Return the first rule that a row breaks, as a string expression; empty when it breaks none."""
    prompt, response = pl.col("prompt_token_ids"), pl.col("response_token_ids")
    prompt_tokens, response_tokens = prompt.list.len().cast(pl.Int64), response.list.len().cast(pl.Int64)
    converter_reason = pl.when(pl.col("untrainable_reason") == "").then(pl.lit(Rejection.UNTRAINABLE.value))
    reward = pl.col("reward")
    checks: list[tuple[pl.Expr, pl.Expr | Rejection]] = [
        (pl.col("trajectory_id").fill_null("") == "", Rejection.NO_TRAJECTORY),
        (~pl.col("is_trainable"), converter_reason.otherwise(pl.col("untrainable_reason"))),
        (
            (prompt_tokens == 0) | (response_tokens == 0) | (pl.col("loss_mask").list.len() != response_tokens),
            Rejection.MALFORMED,
        ),
        (pl.col("loss_mask").list.sum() == 0, Rejection.NO_SAMPLED_TOKENS),
        (pl.max_horizontal(prompt.list.max(), response.list.max()) >= rules.vocabulary_size, Rejection.UNKNOWN_TOKEN),
        (prompt_tokens > rules.max_prompt_tokens, Rejection.PROMPT_TOO_LONG),
        (response_tokens > rules.max_response_tokens, Rejection.RESPONSE_TOO_LONG),
        (prompt_tokens + response_tokens > rules.context_tokens, Rejection.CONTEXT_TOO_LONG),
    ]
    if rules.kind is JobKind.GRPO:
        logprobs = pl.col("logprobs")
        usable = (logprobs.list.len() == response_tokens) & logprobs.list.eval(pl.element().is_finite()).list.all()
        checks += [
            (~usable, Rejection.NO_LOGPROBS),
            (pl.col("is_truncated"), Rejection.TRUNCATED_SAMPLING),
            (pl.col("temperature").is_null(), Rejection.OTHER_TEMPERATURE),
            (pl.col("temperature") == 0, Rejection.GREEDY_SAMPLING),
            (~reward.is_finite().fill_null(value=False), Rejection.NO_REWARD),
            (pl.col("group_id") == "", Rejection.NO_GROUP),
        ]
    elif rules.min_reward is not None:
        checks += [
            (~reward.is_finite().fill_null(value=False), Rejection.NO_REWARD),
            (reward < rules.min_reward, Rejection.BELOW_MIN_REWARD),
        ]
    checks += [(is_old, Rejection.TOO_OLD) for is_old in too_old(rules.max_age_versions, rules.max_age_days)]
    if rules.only_successful:
        checks.append((pl.col("outcome") != "success", Rejection.NOT_SUCCESSFUL))
    return pl.coalesce(
        *(pl.when(broken).then(pl.lit(why.value) if isinstance(why, Rejection) else why) for broken, why in checks),
        pl.lit(""),
    )


def _check_groups(checked: pl.DataFrame, group_size: int) -> pl.DataFrame:
    """Split large groups, number the sessions, and reject groups that give no advantage."""
    episodes = (
        checked.filter(pl.col("reason") == "")
        .select("group_id", "episode_id", "started_at", "reward")
        .unique("episode_id")
        .sort("group_id", "started_at", "episode_id")
        .with_columns(rank=pl.int_range(pl.len()).over("group_id"), members=pl.len().over("group_id").cast(pl.Int64))
        .with_columns(parts=(pl.col("members") + (group_size - 1)) // group_size)
        .with_columns(number=pl.col("rank") * pl.col("parts") // pl.col("members"))
        .with_columns(part=_part_name())
        .with_columns(
            session=pl.int_range(pl.len(), dtype=pl.UInt32).over("part"),
            spread=(pl.col("reward").max() - pl.col("reward").min()).over("part"),
            size=pl.len().over("part"),
        )
    )
    verdict = (
        pl.when(pl.col("size") < 2)
        .then(pl.lit(Rejection.GROUP_TOO_SMALL.value))
        .when(pl.col("spread") <= REWARD_TOLERANCE)
        .then(pl.lit(Rejection.REWARD_CONSTANT.value))
        .otherwise(pl.lit(""))
    )
    verdicts = episodes.select("episode_id", "part", "session", verdict=verdict)
    reason = pl.when(pl.col("reason") == "").then(pl.col("verdict")).otherwise(pl.col("reason"))
    return checked.join(verdicts, on="episode_id", how="left").with_columns(reason=reason).drop("verdict")


def _part_name() -> pl.Expr:
    numbered = pl.format("{}#{}", pl.col("group_id"), pl.col("number") + 1)
    return pl.when(pl.col("parts") > 1).then(numbered).otherwise(pl.col("group_id"))


def _group_reasons(checked: pl.DataFrame, kind: JobKind) -> pl.DataFrame:
    """Return one row for each group: accepted when any of its parts is, else with a reason."""
    if kind is not JobKind.GRPO:
        return pl.DataFrame(schema={"reason": pl.String})
    # A reason of one episode is not a reason of its group.
    is_episode_reason = ~pl.col("reason").is_in(["", Rejection.GROUP_TOO_SMALL.value, Rejection.REWARD_CONSTANT.value])
    reason = pl.when(is_episode_reason).then(pl.lit(Rejection.NO_TRAINABLE_EPISODE.value)).otherwise(pl.col("reason"))
    order = pl.col("reason").replace_strict({"": 0, Rejection.NO_TRAINABLE_EPISODE.value: 2}, default=1)
    ranked = checked.with_columns(reason=reason).with_columns(order=order).sort("order", "reason")
    return ranked.unique("group_id", keep="first").select("reason")


def _first_unless_accepted(checked: pl.DataFrame, key: str) -> pl.DataFrame:
    """Return one row for each ``key``: accepted when any of its rows is, else with the first row's reason."""
    ordered = checked.with_columns(lost=pl.col("reason") != "").sort("lost", "row_number", nulls_last=True)
    return ordered.unique(key, keep="first", maintain_order=True)


def _tally(frame: pl.DataFrame, column: str) -> Tally:
    counts = {str(reason): int(count) for reason, count in frame[column].value_counts().rows()}
    return Tally(counts.pop("", 0), counts)
