"""Select the stored rows that a job trains on; reject the others with a reason.

Invariant: for rows, episodes and groups, accepted plus rejected (by reason) equals the input. Pure functions: a frame
in, frames and counts out.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import polars as pl

from spanloop.converters.credit import NOT_THE_POLICYS, is_not_the_policys, is_policys_mistake
from spanloop.semconv.scores import SCORE_LIMIT
from spanloop.training.recipes.base import Recipe
from spanloop.training.recipes.choices import Credit, Outcomes
from spanloop.training.recipes.pairs import Preference
from spanloop.training.recipes.policy_gradient import Comparison, PolicyGradient
from spanloop.training.recipes.text import Imitation

from ..spec.row_source import RowSource
from .call_returns import with_compared_rewards
from .credit import mask_steps, token_advantages
from .groups import compare_groups
from .pairs import NO_PAIR, Pairing, pair_rows
from .rejections import REASONS_OF_GROUPS, Rejection
from .row_age import too_old
from .sampling import sampling_of
from .selector import NamedSelector, apply_selector
from .step_rewards import NO_STEP_ADVANTAGES, token_rewards, with_step_advantages
from .strategies.apply import apply_strategies, order_of
from .strategies.report import StrategyReport
from .strategies.settings import DataStrategies
from .tally import Tally


class Rules(NamedTuple):
    """Limits of what a job can train on."""

    recipe: Recipe
    max_prompt_tokens: int
    max_response_tokens: int
    context_tokens: int
    """Positions of the base model; prompt and response together."""
    vocabulary_size: int
    tokenizer: str
    """Fingerprint of the base model's tokenizer and chat template."""
    tokenizers: Mapping[str, str]
    """Policy version → that fingerprint of its own, for captures without one; a version that the registry does not
    have is absent."""
    max_age_versions: int | None = None
    max_age_days: float | None = None
    policy_version: str = ""
    """Only rows that this version sampled; empty takes all."""
    seed: int = 0
    """Orders attempts of equal reward, where pairs are made."""
    selector: NamedSelector | None = None
    """Of the user's; decides about rows that break no other rule."""
    strategies: DataStrategies = DataStrategies()
    """Choose among the groups or episodes that are left."""


class Selection(NamedTuple):
    """Accepted rows, and the counts of all input."""

    rows: pl.DataFrame
    """The accepted input rows, with masks and counts of ``dataset_credit``. Policy gradients: with ``group_id`` made
    unique for each part of a split group, ``session``, the episode's number within it, and ``advantages`` (null for
    ppo). dpo: the rows of each pair, so a row occurs once for each pair of its episode, with ``pair_id`` and
    ``side``."""
    row_tally: Tally
    episode_tally: Tally
    group_tally: Tally
    """Input groups; a split group is accepted when any of its parts is."""
    temperature: float | None
    """Policy gradients: the temperature of all accepted rows; None for others, and when no row was accepted."""
    reports: tuple[StrategyReport, ...]
    """What each data strategy kept, in the order in which they were applied."""
    constrained_by: Mapping[str, int] = MappingProxyType({})
    """Policy gradients: sampling parameter → rows rejected as ``truncated_sampling`` for it; a row may have several."""
    untrainable_calls: Mapping[str, int] = MappingProxyType({})
    """The converters' reason → model calls of accepted rows that are not in the loss for it."""
    out_of_range: tuple[str, ...] = ()
    """Ids of the episodes with a row rejected as ``reward_out_of_range``, in order."""
    held_out: pl.DataFrame | None = None
    """Rows for the gate after a stage (``held_out``), with the columns of ``rows``; None without a gate."""


def select_rows(frame: pl.DataFrame, rules: Rules) -> Selection:
    """Apply ``rules`` to the rows of the query ``training_trajectories``."""
    temperature = None
    checked = _with_sampling(frame).with_columns(*NO_PAIR, reason=_row_reason(rules))
    out_of_range = checked.filter(pl.col("reason") == Rejection.REWARD_OUT_OF_RANGE)["episode_id"].unique().sort()
    recipe = rules.recipe
    if isinstance(recipe, PolicyGradient):
        temperature = _most_common_temperature(checked)
        checked = _check_temperature(checked, temperature)
    if rules.selector is not None:
        checked = apply_selector(checked, rules.selector)
    if isinstance(recipe, PolicyGradient):
        is_masking = is_not_the_policys if recipe.credit is Credit.ATTRIBUTED else None
        checked = mask_steps(checked, is_masking)
        checked = with_step_advantages(checked, recipe)
        checked = with_compared_rewards(checked, recipe)
        checked = usable = compare_groups(checked, recipe)
    elif isinstance(recipe, Preference):
        checked, paired = pair_rows(checked, Pairing.of(recipe, rules.seed))
        usable = _without_advantage(paired)
    else:
        checked = usable = _without_advantage(mask_steps(checked, is_policys_mistake))
    checked, accepted, reports = apply_strategies(checked, usable, recipe, rules.strategies)
    accepted = accepted.with_columns(group_id=pl.col("part")).drop("part")
    accepted = accepted.sort(*order_of(rules.strategies), "pair_id", "side", "group_id", "session", "row_number")
    return Selection(
        rows=accepted.with_columns(token_advantages(accepted, _credit(recipe))).with_columns(
            token_rewards(accepted, recipe)
        ),
        row_tally=_tally(checked, "reason"),
        episode_tally=_tally(_first_unless_accepted(checked, "episode_id"), "reason"),
        group_tally=_tally(_group_reasons(checked, recipe), "reason"),
        temperature=temperature if accepted.height else None,
        reports=reports,
        constrained_by=_counts(checked, "constrained_by", Rejection.TRUNCATED_SAMPLING.value),
        untrainable_calls=_counts(checked, "untrainable_calls", ""),
        out_of_range=tuple(out_of_range),
    )


def _credit(recipe: Recipe) -> Credit:
    return recipe.credit if isinstance(recipe, PolicyGradient) else Credit.BROADCAST


def _without_advantage(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(
        NO_STEP_ADVANTAGES,
        session=pl.lit(0, pl.UInt32),
        part=pl.col("group_id"),
        advantage=pl.lit(None, pl.Float64),
    )


def _with_sampling(frame: pl.DataFrame) -> pl.DataFrame:
    samplings = [sampling_of(steps or ()) for steps in frame["sampling"].to_list()]
    return frame.with_columns(
        pl.Series("temperature", [sampling.temperature for sampling in samplings], dtype=pl.Float64),
        pl.Series("constrained_by", [sampling.constrained_by for sampling in samplings], dtype=pl.List(pl.String)),
    )


def _counts(checked: pl.DataFrame, column: str, reason: str) -> dict[str, int]:
    """Return how often each text is in the lists of ``column`` of rows with ``reason``, the most frequent first."""
    texts = checked.filter(pl.col("reason") == reason)[column].explode(empty_as_null=False).drop_nulls()
    counts = texts.value_counts().sort("count", column, descending=[True, False])
    return {str(text): int(count) for text, count in counts.rows()}


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
    is_demonstration = pl.col("source").is_in([RowSource.DIALOG.value, RowSource.CORRECTED.value])
    checks: list[tuple[pl.Expr, pl.Expr | Rejection]] = [
        (pl.col("trajectory_id").fill_null("") == "", Rejection.NO_TRAJECTORY),
        (~pl.col("is_trainable"), converter_reason.otherwise(pl.col("untrainable_reason"))),
        (
            (prompt_tokens == 0) | (response_tokens == 0) | (pl.col("loss_mask").list.len() != response_tokens),
            Rejection.MALFORMED,
        ),
        (pl.col("loss_mask").list.sum() == 0, Rejection.NO_SAMPLED_TOKENS),
        *_sampler_checks(rules, pl.col("source") == RowSource.CAPTURED.value),
        (pl.max_horizontal(prompt.list.max(), response.list.max()) >= rules.vocabulary_size, Rejection.UNKNOWN_TOKEN),
        (prompt_tokens > rules.max_prompt_tokens, Rejection.PROMPT_TOO_LONG),
        (response_tokens > rules.max_response_tokens, Rejection.RESPONSE_TOO_LONG),
        (prompt_tokens + response_tokens > rules.context_tokens, Rejection.CONTEXT_TOO_LONG),
        (_is_out_of_range(reward) | _has_step_out_of_range(), Rejection.REWARD_OUT_OF_RANGE),
    ]
    recipe = rules.recipe
    if isinstance(recipe, PolicyGradient):
        logprobs = pl.col("logprobs")
        usable = (logprobs.list.len() == response_tokens) & logprobs.list.eval(pl.element().is_finite()).list.all()
        checks += [
            (~usable, Rejection.NO_LOGPROBS),
            (pl.col("constrained_by").list.len() > 0, Rejection.TRUNCATED_SAMPLING),
            (pl.col("temperature").is_null(), Rejection.OTHER_TEMPERATURE),
            (pl.col("temperature") == 0, Rejection.GREEDY_SAMPLING),
            (~reward.is_finite().fill_null(value=False), Rejection.NO_REWARD),
        ]
        if recipe.comparison is Comparison.GROUP:
            checks.append((pl.col("group_id") == "", Rejection.NO_GROUP))
        if recipe.credit is Credit.ATTRIBUTED:
            checks.append((pl.col("decided_by").is_in(sorted(NOT_THE_POLICYS)), Rejection.NOT_THE_POLICYS_FAULT))
    elif isinstance(recipe, Preference):
        checks += [
            (~reward.is_finite().fill_null(value=False), Rejection.NO_REWARD),
            (pl.col("group_id") == "", Rejection.NO_GROUP),
            (pl.col("decided_by").is_in(sorted(NOT_THE_POLICYS)), Rejection.NOT_THE_POLICYS_FAULT),
        ]
    elif isinstance(recipe, Imitation) and (recipe.min_reward is not None or recipe.max_reward is not None):
        checks += [
            (~is_demonstration & ~reward.is_finite().fill_null(value=False), Rejection.NO_REWARD),
            (reward < pl.lit(recipe.min_reward, pl.Float64), Rejection.BELOW_MIN_REWARD),
            (reward > pl.lit(recipe.max_reward, pl.Float64), Rejection.ABOVE_MAX_REWARD),
        ]
    checks += [(is_old, Rejection.TOO_OLD) for is_old in too_old(rules.max_age_versions, rules.max_age_days)]
    if isinstance(recipe, Imitation) and recipe.outcomes is Outcomes.SUCCESSFUL:
        checks.append((pl.col("outcome") != "success", Rejection.NOT_SUCCESSFUL))
    return pl.coalesce(
        *(pl.when(broken).then(pl.lit(why.value) if isinstance(why, Rejection) else why) for broken, why in checks),
        pl.lit(""),
    )


def _is_out_of_range(score: pl.Expr) -> pl.Expr:
    """Return whether a score exceeds the limit; NaN counts as no score."""
    return (score.is_not_nan() & (score.abs() > SCORE_LIMIT)).fill_null(value=False)


def _has_step_out_of_range() -> pl.Expr:
    return pl.col("step_rewards").list.eval(_is_out_of_range(pl.element())).list.any().fill_null(value=False)


def is_of_the_base(rules: Rules) -> pl.Expr:
    """Return whether a row has captured tokens of the base's tokenizer that the converter takes for trainable."""
    broken = [check for check, _ in _sampler_checks(rules._replace(policy_version=""), is_captured=pl.lit(value=True))]
    has_tokens = (pl.col("trajectory_id").fill_null("") != "") & pl.col("is_trainable").fill_null(value=False)
    return has_tokens & ~pl.any_horizontal(broken)


def _sampler_checks(rules: Rules, is_captured: pl.Expr) -> list[tuple[pl.Expr, Rejection]]:
    """Return the rules about the policy versions that sampled the steps of a row.

    The captures of the row say what its tokenizer was; those without a fingerprint (from before, or token ids in the
    spans themselves) have that of the registered policy version.
    """

    def all_of(versions: list[str]) -> pl.Expr:
        return pl.col("policy_versions").list.eval(pl.element().is_in(versions)).list.all()

    captured = pl.col("tokenizers").fill_null([])
    is_told = (captured.list.len() > 0) & ~captured.list.contains("")
    is_same = captured.list.eval(pl.element().is_in(["", rules.tokenizer])).list.all()
    same = [version for version, tokenizer in rules.tokenizers.items() if tokenizer == rules.tokenizer]
    checks = [
        (is_captured & ~is_same, Rejection.OTHER_TOKENIZER),
        (is_captured & ~is_told & ~all_of(list(rules.tokenizers)), Rejection.UNKNOWN_TOKENIZER),
        (is_captured & ~is_told & ~all_of(same), Rejection.OTHER_TOKENIZER),
    ]
    if rules.policy_version:
        checks.insert(0, (~all_of([rules.policy_version]), Rejection.OTHER_POLICY_VERSION))
    return checks


def _group_reasons(checked: pl.DataFrame, recipe: Recipe) -> pl.DataFrame:
    """Return one row for each group: accepted when any of its parts is, else with a reason."""
    if not recipe.has_groups:
        return pl.DataFrame(schema={"reason": pl.String})
    # A reason of one episode is not a reason of its group.
    is_episode_reason = ~pl.col("reason").is_in(["", *sorted(REASONS_OF_GROUPS)])
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
